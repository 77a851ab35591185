"""``python -m benchmarks layouts``: other layouts of the jobs and of the index that a claim reads, beside the product's."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import make_url

from benchmarks.depth import old_snapshot
from benchmarks.layouts.figures import HEAD, Run, lines, middle
from benchmarks.layouts.probes import Costs, Probe, churn, stand
from benchmarks.layouts.processes import Gang, Task
from benchmarks.layouts.server import Meter, insert, maintain, refill, tables
from benchmarks.layouts.tables import LAYOUTS, POSTGRESQL_ONLY, Layout
from benchmarks.running import add_options, parsed, run, say
from queue_db import QueueDB
from queue_db.compare.machine import machine

_EPILOG = """\
layouts:
  today     the product's: a claim moves available_at, which is in the claim's index (queue, priority, available_at, id)
  leases    a claim locks the job and inserts a narrow row into a table of leases; a claim leaves out what has a lease
  moving    a claim deletes the job and inserts it into a table of leased jobs; a completion deletes it there
  narrow    a table of due times (queue, priority, available_at, id, version) beside the jobs; only its row moves
  hot       the index is (queue, priority, id): on PostgreSQL a claim changes no index (HOT), and leased rows are stepped over
  unpadded  without the column that is as long as what a claim writes, and which the claim empties: rows grow (InnoDB)
  sized     in its place values of the same size in the columns that a claim sets: it writes over them (InnoDB)
  fixed     the same by columns of a fixed length, as long as the longest name of a worker (InnoDB)
  partial   two partial indexes, of what waits and of what is leased (PostgreSQL)
  today-70, today-90, hot-70, hot-90   another fillfactor than 50 (PostgreSQL)

sections:
  drain     processes drain a backlog in claims of 1, 10 and 100, with a window and with SKIP LOCKED
  depth     the median duration of a claim with 10,000 jobs waiting and with --deep
  standing  the same behind 10,000 leases that last, and what the search for candidates reads
  churn     the same after --churned jobs came and went under an open snapshot
  costs     an enqueue, an extension of leases, and the jobs of a dead worker
  steady    one process enqueues while the others claim and complete

how it measures:
  Layouts take turns. Each has the product's columns, its other indexes and its fence (version): what is completed must still have
  the version of its claim. A claim is one commit, and a completion is one. Every run checks that each job was completed once.
  CPU is that of the server's processes, log the bytes of its WAL or redo log, both for each job, from the claim to the completion.
  Autovacuum is off (except in steady): "clean" is the VACUUM afterwards, or the purge of InnoDB, for each job. "÷ first" is the
  figure of the first layout divided by this one's, CPU and log with their clean-up: above 1 the layout costs less. Wall clock needs
  an idle machine; CPU and log less so. Claims are bare: no groups, no other priorities, no counting of misses.
  Leases in a table of their own have no index by their end: whoever looks for expired ones reads all of them.
  "rescan" is a claim without a low-water mark, as each process sends now and then.
  Tables of its own are made in the database, and dropped afterwards, also after Ctrl-C.

examples:
  python -m benchmarks layouts --url postgresql://me@localhost/test
  python -m benchmarks layouts --only drain --layouts today,moving,hot --batches 100 --repeat 5
  python -m benchmarks layouts --only drain --layouts today,narrow --batches 100 --payload 1500
"""

_SECTIONS = ("drain", "depth", "standing", "churn", "costs", "steady")
_DEFAULT = ("today", "leases", "moving", "narrow", "hot")
#: Jobs of a drain, by batch size.
_SIZES = {1: 5_000, 10: 20_000, 100: 100_000}
_SHALLOW, _STANDING, _LIVE, _COSTS, _STEADY = 10_000, 10_000, 1_000, 20_000, 10.0
_CLAIMS = {1: 200, 100: 50}


class _Bench:
    """One database."""

    def __init__(self, url: str, db: QueueDB, asked: argparse.Namespace) -> None:
        self.url, self.db, self.asked = url, db, asked
        self.meter = Meter(db)
        self.payload = f'"{"x" * max(0, asked.payload - 2)}"'
        self.keys = [key for key in asked.layouts if self.meter.postgresql or key not in POSTGRESQL_ONLY]

    @cached_property
    def gang(self) -> Gang:
        """The processes, started when a section first needs them."""
        return Gang(self.url, self.asked.processes)

    def close(self) -> None:
        """End the processes."""
        if "gang" in vars(self):
            self.gang.close()

    def sized(self, number: float) -> int:
        """A size, with the scale."""
        return max(20, round(number * self.asked.scale))

    @contextmanager
    def opened(self, *, autovacuum: bool = False) -> Iterator[dict[str, Layout]]:
        """New tables of each layout, by its key."""
        with ExitStack() as stack:
            yield {
                key: stack.enter_context(
                    tables(self.db, key, f"bench_{os.getpid()}_{key.replace('-', '_')}", autovacuum=autovacuum)
                )
                for key in self.keys
            }

    def tasks(self, key: str, layout: Layout, batch: int, *, skip: bool, until: float | None = None) -> list[Task]:
        """One task for each process; the first enqueues, if the end is a time."""
        name, number = layout.payloads.name, self.asked.processes
        return [
            Task(key, name, batch, skip, who, number, self.payload, until, inserts=until is not None and who == 0)
            for who in range(number)
        ]

    def print(self, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table."""
        sheet = Table(*head, title=f"{self.db.database.server}: {title}; load {os.getloadavg()[0]:.1f}", title_justify="left")
        for row in rows:
            sheet.add_row(*map(str, row))
        Console(width=None if sys.stdout.isatty() else 170).print(sheet)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    return run(_measure, _parse(arguments))


def _measure(url: str, asked: argparse.Namespace) -> None:
    if make_url(url).get_backend_name() == "sqlite":
        say("SQLite: one writer at a time, and no log to count: not measured")
        return
    with QueueDB(url) as db:
        bench = _Bench(url, db, asked)
        say(f"{db.database.server}; load {machine()['load before']}; payload of {asked.payload} bytes")
        sections = {"drain": _drain, "depth": _depth, "standing": _standing, "churn": _churn, "costs": _costs, "steady": _steady}
        try:
            for name in asked.only:
                sections[name](bench)
        finally:
            bench.close()


def _drain(bench: _Bench) -> None:
    with bench.opened() as layouts:
        for batch in bench.asked.batches:
            size = bench.sized(_SIZES.get(batch, 20_000))
            for way in bench.asked.ways:
                runs = {key: Run() for key in layouts}
                for turn in range(bench.asked.repeat):
                    say(f"drain ×{batch}, {way}, {turn + 1} of {bench.asked.repeat}")
                    for key, layout in layouts.items():
                        _one_drain(bench, runs[key], key, layout, batch, size, skip=way == "skip_locked")
                what = f"{size:,} jobs, {batch} per claim, {way}, {bench.asked.processes} processes"
                bench.print(what, HEAD, lines(runs))


def _one_drain(bench: _Bench, into: Run, key: str, layout: Layout, batch: int, size: int, *, skip: bool) -> None:
    refill(bench.db, layout, size, bench.payload)
    before = bench.meter.rows(layout)
    seconds, done = bench.gang.run(bench.tasks(key, layout, batch, skip=skip), bench.meter.begin)
    into.add(seconds, done, bench.meter.end(), size)
    time.sleep(0.3)  # a session that ends reports what it has changed
    after = bench.meter.rows(layout)
    into.dead.append(after["dead"] / size)
    into.hot.append(100 * (after["hot"] - before["hot"]) / max(1, after["updates"] - before["updates"]))
    cpu, log = bench.meter.clean(layout)
    into.clean_cpu.append(1e6 * cpu / size)
    into.clean_log.append(log / size)


def _claims(bench: _Bench, probes: dict[str, Probe], what: str) -> None:
    """Time claims of all in turns, and print them."""
    taken: dict[tuple[str, int, bool], list[float]] = {}
    for turn in range(bench.asked.repeat):
        say(f"{what}, {turn + 1} of {bench.asked.repeat}")
        for key, probe in probes.items():
            for batch, times in _CLAIMS.items():
                for rescan in (False, True):
                    number = max(3, round(times * min(1.0, bench.asked.scale) / (4 if rescan else 1)))
                    some = probe.claims(batch, number, bench.payload, rescan=rescan)
                    taken.setdefault((key, batch, rescan), []).append(middle(some))
    rows = []
    for key, probe in probes.items():
        probe.claims(1, 0, bench.payload)  # the low-water mark
        shown = [
            f"{middle(found):.2f} ({min(found):.2f}–{max(found):.2f})"
            for found in (taken[key, batch, rescan] for batch in _CLAIMS for rescan in (False, True))
        ]
        reads = [probe.reads(1), probe.reads(1, rescan=True)]
        rows.append((key, *shown, *(f"{entries:,}" + ("" if pages is None else f"; {pages:,}") for entries, pages in reads)))
    head = [f"×{batch} {kind}p50 ms" for batch in _CLAIMS for kind in ("", "rescan ")]
    bench.print(what, ("layout", *head, "reads: entries; pages", "rescan reads"), rows)


def _depth(bench: _Bench) -> None:
    for depth in (bench.sized(_SHALLOW), bench.asked.deep):
        with bench.opened() as layouts:
            for layout in layouts.values():
                refill(bench.db, layout, max(depth, 500), bench.payload)
            _claims(bench, {key: Probe(bench.db, layout) for key, layout in layouts.items()}, f"a claim with {depth:,} waiting")


def _standing(bench: _Bench) -> None:
    number = bench.sized(_STANDING)
    with bench.opened() as layouts:
        probes = {}
        for key, layout in layouts.items():
            refill(bench.db, layout, number + max(500, bench.sized(_SHALLOW)), bench.payload)
            probes[key] = Probe(bench.db, layout)
            stand(probes[key], number)
            maintain(bench.db, layout)
        _claims(bench, probes, f"a claim behind {number:,} leases that last")


def _churn(bench: _Bench) -> None:
    with bench.opened() as layouts:
        probes = {}
        with old_snapshot(bench.url):
            for key, layout in layouts.items():
                say(f"{key}: {bench.asked.churned:,} jobs come and go under an open snapshot")
                probes[key] = Probe(bench.db, layout)
                churn(probes[key], bench.asked.churned, bench.payload)
                insert(bench.db, layout, max(500, bench.sized(_LIVE)), bench.payload, ago=0)
                maintain(bench.db, layout)
            _claims(bench, probes, f"a claim after {bench.asked.churned:,} jobs came and went under an old snapshot")


def _costs(bench: _Bench) -> None:
    size = max(100, bench.sized(_COSTS))
    found: dict[str, list[dict[str, tuple[float, float]]]] = {key: [] for key in bench.keys}
    for turn in range(bench.asked.repeat):
        say(f"costs, {turn + 1} of {bench.asked.repeat}")
        with bench.opened() as layouts:
            for key, layout in layouts.items():
                maintain(bench.db, layout)
                found[key].append(Costs(Probe(bench.db, layout), bench.meter, size, bench.payload).measure())
    names = list(next(iter(found.values()))[0])
    rows = [
        (
            key,
            *(
                f"{middle([turn[name][0] for turn in turns]):.1f}; {middle([turn[name][1] for turn in turns]):,.0f}"
                for name in names
            ),
        )
        for key, turns in found.items()
    ]
    bench.print("server µs; bytes of log, for each job (looking for expired leases: for each look)", ("layout", *names), rows)


def _steady(bench: _Bench) -> None:
    if bench.asked.processes < 2:
        say("steady needs two processes: left out")
        return
    with bench.opened(autovacuum=True) as layouts:
        runs = {key: Run() for key in layouts}
        for turn in range(bench.asked.repeat):
            say(f"steady, {turn + 1} of {bench.asked.repeat}")
            for key, layout in layouts.items():
                refill(bench.db, layout, 20, bench.payload)
                tasks = bench.tasks(key, layout, 100, skip=True, until=max(0.5, _STEADY * bench.asked.scale))
                seconds, done = bench.gang.run(tasks, bench.meter.begin)
                runs[key].add(seconds, done, bench.meter.end(), None)
        what = f"one process enqueues, {bench.asked.processes - 1} claim 100 with skip_locked; CPU and log with the enqueue"
        bench.print(what, HEAD, lines(runs))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks layouts",
        description="Measure other layouts of the jobs, beside the product's, with bare statements. Sections: "
        + ", ".join(_SECTIONS),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, 3)
    parser.add_argument("--layouts", default=",".join(_DEFAULT), metavar="NAME,…", help=f"default {','.join(_DEFAULT)}")
    parser.add_argument("--batches", default="1,10,100", metavar="N,…", help="jobs of a claim, in drain (default 1,10,100)")
    parser.add_argument("--ways", default="window,skip_locked", metavar="NAME,…", help="of drain (default window,skip_locked)")
    parser.add_argument("--processes", type=int, default=10, metavar="N", help="of drain and steady (default 10)")
    parser.add_argument("--payload", type=int, default=100, metavar="N", help="bytes of a payload (default 100)")
    parser.add_argument("--deep", type=int, default=1_000_000, metavar="N", help="jobs that wait (default 1,000,000)")
    parser.add_argument("--churned", type=int, default=200_000, metavar="N", help="jobs that came and went (default 200,000)")
    asked = parsed(parser, arguments, _SECTIONS)
    asked.layouts, asked.ways = asked.layouts.split(","), asked.ways.split(",")
    if unknown := {*asked.layouts} - {*LAYOUTS} | {*asked.ways} - {"window", "skip_locked"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    try:
        asked.batches = [int(number) for number in asked.batches.split(",")]
    except ValueError:
        parser.error("--batches: whole numbers, with commas")
    if min(*asked.batches, asked.processes, asked.deep, asked.churned) < 1:
        parser.error("--batches, --processes, --deep and --churned must be 1 or more")
    return asked


if __name__ == "__main__":
    sys.exit(main())
