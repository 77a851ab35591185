"""What a graph costs beside plain jobs: ``python -m benchmarks graphs --url URL``.

Five shapes of as many jobs: plain jobs, a fan-out (one parent), a fan-in (one child), layers (20, each node waits for three), and a
chain. One process enqueues, then claims and completes until nothing is left. Of plain jobs and of a shape it takes turns; the ratio
is that of the medians. A chain has one job at a time, so it stands beside plain jobs that are claimed and completed one by one.
On a busy machine only the ratio of processor time says much. Each job must run once, after its parents; otherwise the run fails.
The tables are its own, named ``bench_graphs``; they are dropped afterwards.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import delete, select

from benchmarks.running import own_tables
from queue_db import NewGraph, NewNode, Queue, QueueDB
from queue_db.compare.machine import server_clock
from queue_db.graphs.tables import graph_tables

#: Layers, and parents of each node, of the shape ``layers``.
LAYERS, PARENTS = 20, 3

#: Jobs of one claim and of one completion, and those of the chain.
BATCH, SINGLE = 100, 1


class Took(NamedTuple):
    """Seconds of one run: by the clock, and of processor time of this process and the server together."""

    enqueue: float
    run: float
    processor: float

    @property
    def all(self) -> float:
        """From the first statement to the last."""
        return self.enqueue + self.run


Clock = Callable[[], float | None]


Parents = Callable[[int, int], Sequence[int]]
"""A function: number of jobs, position of a job → the positions of its parents, which are lower."""


def _layers(jobs: int, at: int) -> Sequence[int]:
    wide = max(1, jobs // LAYERS)
    if at < wide:
        return ()
    first = (at // wide - 1) * wide
    return sorted({first + (at + step) % wide for step in range(PARENTS)})


SHAPES: dict[str, tuple[Parents, int]] = {
    "fan-out": (lambda _, at: (0,) if at else (), BATCH),
    "fan-in": (lambda jobs, at: range(jobs - 1) if at == jobs - 1 else (), BATCH),
    "layers": (_layers, BATCH),
    "chain": (lambda _, at: (at - 1,) if at else (), SINGLE),
}


def _add(graph: NewGraph, queue: str, edges: Sequence[Sequence[int]]) -> None:
    made: list[NewNode] = []
    for at, parents in enumerate(edges):
        made.append(graph.add(queue, "bench", at, after=[made[parent] for parent in parents]))


def _drain(queue: Queue, jobs: int, batch: int, parents: Parents | None) -> None:
    """Claim and complete all jobs, and check that each comes once, after its parents."""
    done: set[int] = set()
    while claimed := queue.claim(batch):
        numbers = [job.payload for job in claimed]
        if len(set(numbers)) < len(numbers) or not done.isdisjoint(numbers):
            raise AssertionError("a job came twice")
        if parents is not None and not all(done.issuperset(parents(jobs, number)) for number in numbers):
            raise AssertionError("a job came before its parents")
        if not all(queue.complete_many(claimed)):
            raise AssertionError("a lease was lost")
        done.update(numbers)
    if len(done) != jobs:
        raise AssertionError(f"{len(done)} of {jobs} jobs came")


@contextmanager
def _queue(db: QueueDB) -> Iterator[Queue]:
    """A queue; its graphs and jobs are deleted afterwards."""
    queue = db.queue(f"bench-{secrets.token_hex(4)}")
    try:
        yield queue
    finally:
        tables, jobs = graph_tables(db.store.tables), db.store.tables.jobs
        with db.database.begin() as connection:
            mine = select(tables.nodes.c.id).where(tables.nodes.c.queue == queue.name)
            graphs = list(
                connection.execute(select(tables.nodes.c.graph_id).where(tables.nodes.c.queue == queue.name).distinct()).scalars()
            )
            connection.execute(delete(tables.edges).where(tables.edges.c.parent.in_(mine)))
            connection.execute(delete(tables.nodes).where(tables.nodes.c.queue == queue.name))
            connection.execute(delete(tables.graphs).where(tables.graphs.c.id.in_(graphs)))
            connection.execute(delete(jobs).where(jobs.c.queue == queue.name))


def once(db: QueueDB, jobs: int, batch: int, parents: Parents | None, server: Clock | None = None) -> Took:
    """Run plain jobs, or a shape.

    :param server: processor time of the server; None: it is not known, or there is no server.
    """

    def processor() -> float:
        return time.process_time() + ((server() or 0.0) if server else 0.0)

    edges = [] if parents is None else [parents(jobs, at) for at in range(jobs)]
    with _queue(db) as queue:
        used, began = processor(), time.perf_counter()
        if parents is None:
            queue.enqueue_many([("bench", number) for number in range(jobs)])
        else:
            with db.graph("bench") as graph:
                _add(graph, queue.name, edges)
        enqueued = time.perf_counter()
        _drain(queue, jobs, batch, parents if jobs <= 1000 else None)
        return Took(enqueued - began, time.perf_counter() - enqueued, processor() - used)


def measure(db: QueueDB, jobs: int, repeat: int, shapes: Sequence[str]) -> Iterator[tuple[str, Took, Took]]:
    """For each shape its name, the medians of plain jobs, and those of the shape."""
    server = server_clock(db.database.engine, db.database.dialect)
    for name in shapes:
        parents, batch = SHAPES[name]
        runs: tuple[list[Took], list[Took]] = ([], [])
        for _ in range(repeat):
            runs[0].append(once(db, jobs, batch, None, server))
            runs[1].append(once(db, jobs, batch, parents, server))
        plain, mine = (Took(*(statistics.median(part) for part in zip(*side, strict=True))) for side in runs)
        yield name, plain, mine


def show(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 1 if a shape costs more than ``--most`` times plain jobs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks graphs", description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=sorted(SHAPES), nargs="*", default=list(SHAPES))
    parser.add_argument("--most", type=float, default=2.0, help="the highest ratio that is met")
    asked = parser.parse_args(arguments)
    met = True
    with own_tables(asked.url, "bench_graphs") as db:
        show(f"{db.url}: {asked.jobs:,} jobs, medians of {asked.repeat}; seconds: enqueue + run")
        for name, plain, mine in measure(db, asked.jobs, asked.repeat, asked.only):
            ratio = mine.all / plain.all
            met = met and ratio <= asked.most
            sides = f"plain {plain.enqueue:.2f} + {plain.run:.2f}, graph {mine.enqueue:.2f} + {mine.run:.2f}"
            more = f"run alone {mine.run / plain.run:.2f}, processor time {mine.processor / plain.processor:.2f}"
            show(f"{name:8} {sides}: {ratio:.2f} times; {more}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
