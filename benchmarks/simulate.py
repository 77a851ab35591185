"""Simulate workers that race for jobs: ``python -m benchmarks simulate``.

``--measure`` records what calls cost on real servers, ``--validate`` compares the simulation with real workers, ``--curves`` prints
and draws what it says for more workers, nodes and distance than one machine has.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import delete, make_url

from benchmarks.lab import Lab, Pools, lab_at
from benchmarks.running import say
from benchmarks.simulation import MEASURED, Costs, Outcome, Setting, Simulation
from queue_db import Adaptive, LeasedJob, Optimistic, SkipLocked, Strategy
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.compare.product import Product
from queue_db.compare.report import drawing
from queue_db.compare.results import Run
from queue_db.compare.worker_pool import Assignment, WorkerPool
from queue_db.dialects import dialect_for
from queue_db.dialects.claim_sql import candidates
from queue_db.dialects.transactions import Sender
from queue_db.model import ClaimRequest, ClaimResult
from queue_db.store import lease
from queue_db.store.base import Transaction

_LEASE = 86_400.0

# Calls are measured in blocks. Other programs slow some: the quickest blocks count, and their quickest calls.
_BLOCKS, _BLOCK, _KEPT = 20, 100, 3

# As many quantiles of the durations are kept.
_QUANTILES = 10

# The place of the wide window whose read is measured beside that of the first place.
_WIDE = 64


# --- measure ----------------------------------------------------------------------------------------------------------


class _Reader(Optimistic):
    """Reads one place of a window, and takes nothing."""

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        start = self.window - 1
        window = lease.CandidateWindow(lease.Order.SLICE, read=start + 1, start=start) if start else lease.HEAD
        text, parameters = lease._asked(tx, request, window)  # noqa: SLF001 - a read of the same candidates that a claim reads
        tx.fetch(text.made(candidates), parameters)
        return ClaimResult(request.queue, request.limit)


def _processor(server: psutil.Process) -> float:
    """The processor time of the threads of a server's processes that run, seconds; finer than that of ``server_clock``."""
    total = 0
    for process in (server, *server.children(recursive=True)):
        for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(task.read_text().split()[0])
    return total / 1e9


def _server(url: str) -> psutil.Process:
    """The topmost process of the server."""
    with autocommitting(url) as engine, engine.connect() as connection:
        pid = Laboratory.of(dialect_for(engine.dialect.name)).process(connection)
        server = psutil.Process(pid)
        while (parent := server.parent()) is not None and parent.name() == server.name():
            server = parent
    return server


def _timed(call: Callable[[], object], server: psutil.Process) -> dict[str, Any]:
    """What calls cost, microseconds."""
    blocks = []
    for _ in range(_BLOCKS):
        walls = []
        theirs, ours = _processor(server), time.process_time()
        for _ in range(_BLOCK):
            began = time.perf_counter()
            call()
            walls.append(time.perf_counter() - began)
        blocks.append((sum(walls), (time.process_time() - ours) / _BLOCK, (_processor(server) - theirs) / _BLOCK, walls))
    kept = sorted(blocks)[:_KEPT]
    client, own = (statistics.median(block[place] for block in kept) for place in (1, 2))
    walls = sorted(wall for block in kept for wall in block[3])[: len(kept) * _BLOCK // 4]
    mean = statistics.mean(walls)
    spread = [walls[int((number + 0.5) / _QUANTILES * len(walls))] / mean for number in range(_QUANTILES)]
    micros = {"client": client * 1e6, "server": own * 1e6, "wait": max(0.0, mean - client - own) * 1e6}
    return {name: round(one, 1) for name, one in micros.items()} | {"spread": [round(one, 2) for one in spread]}


def measure(url: str, *others: str) -> dict[str, Any]:
    """What calls cost on a server, or on the first node of a cluster, that one worker uses."""
    with lab_at(url, repeat=1, scale=1.0, pools=Pools()) as lab, lab.tables("jobs") as (db,):
        server = _server(lab.target.url)
        queue = db.queue("measured")
        queue.enqueue_many([("job", 0)] * (3 * _BLOCKS * _BLOCK + 2 * _WIDE))
        claimed: list[LeasedJob] = []

        def claim() -> None:
            claimed.extend(queue.claim(1, _LEASE))

        def complete() -> None:
            queue.complete_many([claimed.pop()])

        def both() -> None:
            claim()
            complete()

        calls, apply, elsewhere = {}, 0.0, [*map(_server, others)]
        rows: list[tuple[str, Strategy, Callable[[], object]]] = [
            ("read", _Reader(1), lambda: queue.claim(1)),
            ("wide", _Reader(_WIDE), lambda: queue.claim(1)),
            ("claim", Optimistic(1), both),
            ("skip_locked", SkipLocked(), both),
            ("complete", SkipLocked(), complete),
        ]
        for name, strategy, call in rows:
            db.core.strategy = strategy
            if name == "complete":
                claimed.extend(queue.claim(_BLOCKS * _BLOCK, _LEASE))
            before = sum(map(_processor, elsewhere))
            calls[name] = _timed(call, server)
            if name == "claim" and others:
                apply = (sum(map(_processor, elsewhere)) - before) / len(others) / (2 * _BLOCKS * _BLOCK)
            say(f"{name}: {calls[name]}")
        # A claim alone would leave jobs in its way.
        for name in ("claim", "skip_locked"):
            for part in ("client", "server", "wait"):
                calls[name][part] = round(max(0.0, calls[name][part] - calls["complete"][part]), 1)
        place = max(0.0, (calls.pop("wide")["server"] - calls["read"]["server"]) / (_WIDE - 1))
        trips = 1 if db.store.dialect.deletes_on_claim else 2
    return {
        "server": lab.bench.server,
        "round_trips": trips,
        "place": round(place, 2),
        "apply": round(apply * 1e6, 1),
        "calls": calls,
    }


# --- validate ---------------------------------------------------------------------------------------------------------


def _optimistic(window: int, _: int = 0, *, rng: random.Random | None = None) -> Strategy:
    return Optimistic(window, rng=rng or random.Random())


def _adaptive(window: int, _: int = 0, *, rng: random.Random | None = None) -> Strategy:
    return Adaptive(window, rng=rng or random.Random())


def _skip_locked(_: int = 0, *, rng: random.Random | None = None) -> Strategy:
    return SkipLocked()


#: By name: functions that make a strategy, for a number of workers or from a random number generator.
STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "optimistic(10)": partial(_optimistic, 10),
    "optimistic(64)": partial(_optimistic, 64),
    "adaptive": partial(_adaptive, 64),
    "adaptive(1000)": partial(_adaptive, 1000),
    "skip_locked": _skip_locked,
}


_FETCH, _EXECUTE = Sender.fetch, Sender.execute


def _far(trip: float) -> None:
    """Let statements of this process arrive and be answered half of ``trip`` seconds later each, from now on."""

    def late(send: Callable[..., Any]) -> Callable[..., Any]:
        def sent(*arguments: Any) -> Any:
            time.sleep(trip / 2)
            try:
                return send(*arguments)
            finally:
                time.sleep(trip / 2)

        return sent if trip else send

    Sender.fetch, Sender.execute = late(_FETCH), late(_EXECUTE)  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Placed(Product):
    """A row whose workers take the nodes in turns, and are far from them. Its tables stay for the next run."""

    urls: tuple[str, ...] = ()
    trip: float = 0.0

    def tear_down(self, target: Target) -> None:
        with self._open(target) as db, db.database.begin() as connection:
            connection.execute(delete(db.store.tables.jobs))

    def work(self, target: Target, context: WorkerContext) -> None:
        here, there = make_url(target.url), make_url(self.urls[context.number % len(self.urls)])
        url = here.set(host=there.host, port=there.port).render_as_string(hide_password=False)
        start, cycle = context.start, Setting(1, trip=self.trip).cycle

        def begin() -> float:
            when = start()  # all have prepared themselves
            _far(self.trip)
            time.sleep(random.random() * cycle)
            return when

        context.start = begin
        _far(0.0)
        super().work(replace(target, url=url), context)


@dataclass(frozen=True)
class Point:
    """Workers to compare."""

    strategy: str
    workers: int
    nodes: int = 1
    idle: int = 0
    trip: float = 0.0
    think: float = 0.0

    def jobs(self) -> int:
        """How many jobs they have: those of workers without a delay last for seconds too."""
        return max(120, 15 * self.workers) if self.trip else 6000


def real(lab: Lab, pool: WorkerPool, point: Point, urls: Sequence[str]) -> Run:
    """Let real workers do the jobs."""
    row = _Placed("simulated", "", STRATEGIES[point.strategy], urls=tuple(urls[: point.nodes]), trip=point.trip)
    target, jobs = replace(lab.target, workers=point.workers), point.jobs()
    row.set_up(target, jobs)
    try:
        history = pool.run(Assignment(row, target, point.think, 0.0, verify=False), jobs, limit=120.0)
    finally:
        _far(0.0)
        row.tear_down(target)
    return Run.of(history, client_cpu=None, server_cpu=None)


def simulated(costs: Costs, point: Point, seed: int, **more: Any) -> Outcome:
    """Simulate them, on one machine."""
    placed = {"workers": point.workers, "nodes": point.nodes, "idle": point.idle, "shared": True}
    setting = Setting(**placed, trip=point.trip, think=point.think, backlog=point.jobs(), **more)
    make = STRATEGIES[point.strategy]
    return Simulation(setting, costs, lambda rng: make(rng=rng), seed).run(point.jobs())


def validate(name: str, urls: Sequence[str], points: Sequence[Point], repeat: int) -> Iterator[str]:
    """Lines of a table: measured and simulated, medians of ``repeat`` turns. Smaller pools come first."""
    costs = Costs.measured(name)
    with lab_at(urls[0], repeat=repeat, scale=1.0, pools=Pools()) as lab:
        for workers in sorted({point.workers for point in points}):
            runs: dict[Point, list[Run]] = {point: [] for point in points if point.workers == workers}
            with WorkerPool(workers, start_limit=600.0) as pool:
                for _ in range(repeat):
                    for point, found in runs.items():
                        found.append(real(lab, pool, point, urls))
                        say(f"{point}: {found[-1].rate:.0f} jobs/s, {found[-1].miss_ratio:.1%} missed, {found[-1].faults}")
            switch = _switch(costs, runs)
            yield from (_line(name, costs, point, found, switch) for point, found in runs.items())


def _switch(costs: Costs, runs: Mapping[Point, Sequence[Run]]) -> float:
    """Seconds of processor time that a statement costs more than one worker's alone: switches and cold caches of many processes.

    The row of locks on one node, which never loses a job, shows how much. 0 if the workers are far away.
    """
    for point, found in runs.items():
        if point.strategy == "skip_locked" and point.nodes == 1 and not point.trip:
            statements = 2 if costs.round_trips == 1 else 5
            spent = [1 / statistics.median(run.rate for run in found), 1 / simulated(costs, point, 0).rate]
            return Setting(point.workers).cores * (spent[0] - spent[1]) / statements
    return 0.0


def _line(name: str, costs: Costs, point: Point, found: Sequence[Run], switch: float) -> str:
    """A measured point beside the simulated one."""
    own = [simulated(costs, point, seed, switch=switch) for seed in range(5)]
    rates = [statistics.median(one.rate for one in side) for side in (found, own)]
    missed = [statistics.median(one.miss_ratio for one in side) for side in (found, own)]
    setting = f"{name} {point.nodes} | {point.trip * 1e3:g} | {point.strategy} | {point.workers} | {switch * 1e6:.0f}"
    return f"| {setting} | {rates[0]:.0f} | {rates[1]:.0f} | {rates[1] / rates[0]:.2f} | {missed[0]:.1%} | {missed[1]:.1%} |"


# --- curves -----------------------------------------------------------------------------------------------------------

#: What the curves suppose of every node: cores, a disk, and how far the workers and the other nodes are (a round trip).
_CORES, _FLUSH, _NEAR = 8, 0.0005, 0.0005

_WORKERS = (10, 30, 100, 300, 1000, 10_000)
_NODES = (1, 3, 5, 9)
_TRIPS = (0.0001, 0.001, 0.01, 0.05)

_COLOURS = (drawing.ORANGE, drawing.GREEN, drawing.BLUE, drawing.PALE, drawing.VERMILION)

#: By title: servers, settings and the label of their axis.
_SWEEPS: tuple[tuple[str, str, str, dict[float, Setting]], ...] = tuple(
    (title, name, axis, {at: Setting(cores=_CORES, flush=_FLUSH, **how) for at, how in found.items()})
    for title, name, axis, found in (
        *(
            (title, title.lower(), "workers", {n: {"workers": n, "trip": _NEAR} for n in _WORKERS})
            for title in ("PostgreSQL", "MariaDB")
        ),
        (
            "Galera, 100 workers",
            "galera",
            "nodes",
            {n: {"workers": 100, "nodes": n, "trip": _NEAR, "between": _NEAR} for n in _NODES},
        ),
        (
            "Galera, 3 nodes, 100 workers",
            "galera",
            "ms between any two machines",
            {trip * 1e3: {"workers": 100, "nodes": 3, "trip": trip, "between": trip} for trip in _TRIPS},
        ),
    )
)


def curve(name: str, setting: Setting, strategy: str) -> Outcome:
    """Simulate workers that never wait for work, after they have found their windows.

    A cluster is simulated for longer: its conflicts let workers pause for up to seconds.
    """
    make, jobs = STRATEGIES[strategy], max(1500 if setting.nodes == 1 else 6000, setting.workers)
    return Simulation(setting, Costs.measured(name), lambda rng: make(rng=rng)).run(jobs, 2 * jobs, misses=2 * jobs)


def waiting(name: str, setting: Setting, strategy: str, rate: float) -> Outcome:
    """Simulate arrivals."""
    make = STRATEGIES[strategy]
    jobs = 3000
    return Simulation(replace(setting, rate=rate), Costs.measured(name), lambda rng: make(rng=rng)).run(jobs, warm_up=jobs)


def curves(picture: Path) -> Iterator[str]:
    """Lines of tables of all curves, which are drawn into ``picture``."""
    points = [(name, one, strategy) for _, name, _, settings in _SWEEPS for strategy in STRATEGIES for one in settings.values()]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(points, pool.map(curve, *zip(*points, strict=True)), strict=True))
    picture.write_text(_drawn(found))
    for title, name, axis, settings in _SWEEPS:
        yield f"\n| {title}: {axis} | " + " | ".join(STRATEGIES) + " |\n|---|" + "---|" * len(STRATEGIES)
        for at, setting in settings.items():
            yield f"| {at:g} | " + " | ".join(_cell(found[name, setting, strategy]) for strategy in STRATEGIES) + " |"


def _drawn(found: Mapping[tuple[str, Setting, str], Outcome]) -> str:
    """Throughput above misses, a column for each sweep."""
    figure, axes = drawing.blank(5.2, 2, len(_SWEEPS))
    for column, (title, name, axis, settings) in enumerate(_SWEEPS):
        above, below = axes[column], axes[column + len(_SWEEPS)]
        for strategy, colour in zip(STRATEGIES, _COLOURS, strict=True):
            outcomes = [found[name, one, strategy] for one in settings.values()]
            # The window of `adaptive` is at most 64: a thin line on a thick one.
            line = {"marker": ".", "color": colour, "linewidth": 3.5 if strategy == "optimistic(64)" else 1.2}
            above.plot([*settings], [one.rate for one in outcomes], label=None if column else strategy, **line)
            below.plot([*settings], [100 * one.miss_ratio for one in outcomes], **line)
        for one in (above, below):
            one.set(xscale="linear" if axis == "nodes" else "log", ylim=(0, None))
            one.tick_params(labelsize=7)
        drawing.plain(above, "y")
        above.set_title(title, fontsize=8, color=drawing.INK)
        below.set_xlabel(axis, fontsize=8)
    axes[0].set_ylabel("jobs a second", fontsize=8)
    axes[len(_SWEEPS)].set_ylabel("missed, %", fontsize=8)
    figure.legend(loc="outside lower center", ncols=len(STRATEGIES), fontsize=8, frameon=False)
    return drawing.alone(figure, "Simulated jobs per second and misses by workers, nodes and distance, for each strategy")


def _cell(one: Outcome) -> str:
    window = f", W {one.window:.0f}" if one.window and one.window not in (10, 64) else ""
    return f"{one.rate:,.0f}, {one.miss_ratio:.0%}{window}"


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulate", description=__doc__)
    kinds = parser.add_mutually_exclusive_group(required=True)
    named = "NAME=URL[,URL…]"
    kinds.add_argument("--measure", type=_named, metavar=named, help=f"record what calls cost, in {MEASURED.name}")
    kinds.add_argument("--validate", type=_named, metavar=named, help="compare with real workers, on 1 node, 2 nodes …")
    kinds.add_argument("--curves", type=Path, metavar="FILE", help="print what is simulated, and draw it into this SVG")
    parser.add_argument("--workers", default="2,4,8,16,32,64", metavar="N,…", help="of a validation (default 2,4,8,16,32,64)")
    parser.add_argument("--trip", type=float, default=200.0, metavar="MS", help="how far the workers are (default 200 ms)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each point of a validation (default 3)")
    asked = parser.parse_args(arguments)
    if asked.measure:
        name, urls = asked.measure
        measured = json.loads(MEASURED.read_text()) | {name: measure(*urls)}
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
        return 0
    lines = curves(asked.curves) if asked.curves else _validation(asked)
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


def _validation(asked: argparse.Namespace) -> Iterator[str]:
    name, urls = asked.validate
    points = [
        Point(strategy, int(workers), nodes, len(urls) - nodes, asked.trip / 1e3)
        for workers in asked.workers.split(",")
        for nodes in range(1, len(urls) + 1)
        for strategy in STRATEGIES
    ]
    yield "| server, nodes | ms | strategy | workers | switch, µs | jobs/s | simulated | ÷ | missed | simulated |\n|" + "---|" * 10
    yield from validate(name, urls, points, asked.repeat)


def _named(text: str) -> tuple[str, list[str]]:
    name, _, urls = text.partition("=")
    return name, urls.split(",")


if __name__ == "__main__":
    sys.exit(main())
