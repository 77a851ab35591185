"""``python -m benchmarks spans``: consumers of a shared cursor on your own database, compared with consumers of a queue."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table
from sqlalchemy import make_url

from benchmarks import drains
from benchmarks.depth import old_snapshot
from benchmarks.drains import CURSOR, FEED, Contestant, Drained, Jobs, Rival, Spans, WorkerOfJobs, WorkerOfSpans, drain
from benchmarks.peers.sql_files import Pgmq, Pgque, SqlQueue
from benchmarks.running import add_options, own_tables, parsed, run, say, sql_of
from queue_db import QueueDB
from queue_db.feeds import SharedCursor

_EPILOG = """\
sections:
  drain     processes drain a backlog of a million messages or jobs, in claims of 100 and 500
  worker    one worker process with handlers that do nothing drains 100,000: 4 slots of spans, or 4 threads with 400 jobs prefetched
  depth     the median duration of a claim with 10,000 messages waiting and with --deep
  snapshot  the same with 10,000 messages waiting, after --trimmed messages were consumed and trimmed under an open snapshot

how it measures:
  Rows of a section run in turns; the figures are medians. A drain begins when all processes are ready, and ends when all is done
  and gone: the messages are trimmed meanwhile, by one more process, ten times a second; completed jobs are deleted. Each consumer
  returns the ids that it has completed: the columns lost, repeated and errors must be 0. "spans ÷ it" is the rate of spans of the
  same size divided by that of the row: above 1 the spans are faster.
  Claims are timed one by one, with 10 messages each, in turns on both sides.
  Everything happens in tables of its own, which are dropped afterwards, also after Ctrl-C.

other queues (PostgreSQL):
  --pgmq FILE   pgmq-extension/sql/pgmq.sql of https://github.com/pgmq/pgmq: read and delete, without partitions
  --pgque FILE  sql/pgque.sql of https://github.com/NikolayS/PgQue: cooperating consumers, a tick after each 100 or 500 messages.
                It needs a superuser, and leaves its three roles behind.
  Both are installed into a schema of their own (pgmq, pgque), which is dropped afterwards unless it was there before.

examples:
  python -m benchmarks spans --url postgresql://me@localhost/test --pgmq pgmq.sql --pgque pgque.sql
  python -m benchmarks spans --only drain --scale 0.05 --processes 2
  python -m benchmarks spans --only depth,snapshot --deep 100000 --trimmed 50000
"""

_SECTIONS = ("drain", "worker", "depth", "snapshot")
_SIZE, _WORKER_SIZE = 1_000_000, 100_000
#: Messages that wait on the side that others are compared with; messages of a claim; claims of a round.
_SHALLOW, _FEW, _CLAIMS = 10_000, 10, 200

_DRAIN: tuple[Contestant, ...] = (
    Spans("spans of 100", 100, trims=True),
    Spans("spans of 500", 500, trims=True),
    Jobs("jobs, 100 per claim", 100),
)
_WORKER: tuple[Contestant, ...] = (
    WorkerOfSpans("worker, spans of 100", 100, processes=1, trims=True),
    WorkerOfJobs("worker, jobs", 100, processes=1),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    return run(_measure, _parse(arguments))


def _measure(url: str, asked: argparse.Namespace) -> None:
    table = f"bench_spans_{os.getpid()}"
    with own_tables(url, table) as db, own_tables(url, f"{table}_b") as other:
        if "drain" in asked.only:
            with ExitStack() as stack:
                rivals = [Rival(queue.name, queue.batch, queue=queue) for queue in _rivals(url, asked, stack)]
                _race(url, table, db, [*_DRAIN, *rivals], round(_SIZE * asked.scale), asked)
        if "worker" in asked.only:
            _race(url, table, db, _WORKER, round(_WORKER_SIZE * asked.scale), asked)
        if "depth" in asked.only:
            drains.fill_feed(db, _SHALLOW)
            drains.fill_feed(other, asked.deep)
            _claims(db, other, f"claim with {asked.deep:,} messages waiting", asked)
        if "snapshot" in asked.only:
            drains.fill_feed(db, _SHALLOW)
            drains.fill_feed(other, asked.trimmed + _SHALLOW)
            with old_snapshot(url):
                _consume(other, asked.trimmed)
                _claims(db, other, f"claim after {asked.trimmed:,} messages were trimmed under an old snapshot", asked)


def _rivals(url: str, asked: argparse.Namespace, stack: ExitStack) -> list[SqlQueue]:
    """The other queues that can take part, installed; of each that cannot one sentence says why."""
    found: list[SqlQueue] = []
    for kind, file in ((Pgmq, asked.pgmq), (Pgque, asked.pgque)):
        if file is None:
            say(f"{kind.title} does not take part: its SQL is given with --{kind.schema} FILE (see --help)")
        elif make_url(url).get_backend_name() not in {"postgresql", "postgres"}:
            say(f"{kind.title} does not take part: it needs PostgreSQL")
        else:
            queues = [kind(file, batch) for batch in (100, 500)]
            stack.enter_context(queues[0].installed(url))
            found += queues
    return found


def _race(url: str, table: str, db: QueueDB, rows: Sequence[Contestant], size: int, asked: argparse.Namespace) -> None:
    """Drain backlogs in turns and print the rates."""
    size = max(1, size)
    runs: dict[str, list[Drained]] = {one.name: [] for one in rows}
    for turn in range(asked.repeat):
        for one in rows:
            say(f"{db.database.server}: {one.name}, {turn + 1} of {asked.repeat}")
            runs[one.name].append(drain(one, url, table, size, asked.processes))
    rates = {name: statistics.median(size / run.seconds for run in found) for name, found in runs.items()}
    title = f"{db.database.server}, {size:,} messages, {rows[0].processes or asked.processes} processes"
    sheet = Table("consumers", "per second", "spans ÷ it", "lost", "repeated", "errors", title=title)
    for one in rows:
        ours = next(other.name for other in rows if isinstance(other, Spans) and other.batch == one.batch)
        ratio = "" if one.name == ours else f"{rates[ours] / rates[one.name]:.2f}"
        wrong = [str(sum(getattr(run, what) for run in runs[one.name])) for what in ("lost", "repeated", "errors")]
        sheet.add_row(one.name, f"{rates[one.name]:,.0f}", ratio, *wrong)
    _print(sheet)


def _consume(db: QueueDB, size: int) -> None:
    """Consume ``size`` messages and trim them."""
    feed = db.feed(FEED)
    shared = feed.shared(CURSOR)
    while size > 0 and (span := shared.claim(min(size, _SHALLOW))) is not None:
        size -= len(span.messages)
        span.complete()
        feed.trim()


def _claims(few: QueueDB, many: QueueDB, name: str, asked: argparse.Namespace) -> None:
    """Claim in turns on both sides, and print the medians."""
    sides = {f"claim with {_SHALLOW:,} messages waiting": few, name: many}
    cursors = {side: db.feed(FEED).shared(CURSOR) for side, db in sides.items()}
    times: dict[str, list[float]] = {side: [] for side in sides}
    seqs: dict[str, list[int]] = {side: [] for side in sides}
    say(f"{few.database.server}: {name}")
    claims = min(_CLAIMS * asked.repeat, min(_SHALLOW, asked.deep) // _FEW - 1)
    for turn in range(claims):
        for side, shared in cursors.items():
            took = _claim(shared, seqs[side])
            if turn >= min(3, claims - 1):  # the first claims compile and prepare
                times[side].append(took)
    sheet = Table("side", "p50 ms", "ratio", "repeated", title=f"{few.database.server}, {claims} claims of {_FEW} messages")
    base = statistics.median(next(iter(times.values())))
    for side, found in times.items():
        middle = statistics.median(found)
        ratio = "" if side != name else f"{middle / base:.2f}"
        sheet.add_row(side, f"{middle * 1000:.3f}", ratio, str(len(seqs[side]) - len(set(seqs[side]))))
    _print(sheet)


def _claim(shared: SharedCursor, seqs: list[int]) -> float:
    """Claim and complete; return the seconds of the claim."""
    began = time.perf_counter()
    span = shared.claim(_FEW)
    took = time.perf_counter() - began
    if span is None:
        raise AssertionError("nothing is left to claim")
    seqs += [message.seq for message in span.messages]
    span.complete()
    return took


def _print(sheet: Table) -> None:
    Console(width=None if sys.stdout.isatty() else 110).print(sheet)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks spans",
        description="Measure consumers of a shared cursor, beside consumers of a queue. Sections: " + ", ".join(_SECTIONS) + ".",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, 3)
    parser.add_argument("--processes", type=int, default=10, metavar="N", help="consumers of a drain (default 10)")
    parser.add_argument("--deep", type=int, default=10_000_000, metavar="N", help="messages that wait (default 10,000,000)")
    parser.add_argument("--trimmed", type=int, default=1_000_000, metavar="N", help="messages trimmed (default 1,000,000)")
    parser.add_argument("--pgmq", type=sql_of("pgmq"), metavar="FILE", help="the SQL of pgmq, to take part")
    parser.add_argument("--pgque", type=sql_of("pgque"), metavar="FILE", help="the SQL of PgQue, to take part")
    asked = parsed(parser, arguments, _SECTIONS)
    if min(asked.processes, asked.trimmed) < 1 or asked.deep < 5 * _FEW:
        parser.error(f"--processes and --trimmed must be 1 or more, --deep {5 * _FEW} or more")
    return asked
