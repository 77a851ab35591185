"""The environment of a benchmark: a schema in the database, worker pools, sizes, and runs in turns."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.figures import Side
from queue_db import QueueDB
from queue_db.compare.contestant import Contestant, Target
from queue_db.compare.engines import autocommitting
from queue_db.compare.machine import server_clock
from queue_db.compare.plan import Plan
from queue_db.compare.results import Bench, Run
from queue_db.compare.scratch import scratch_target
from queue_db.compare.worker_pool import Assignment, WorkerPool
from queue_db.dialects import dialect_for

#: Jobs per run with single claims at scale 1; :meth:`Plan.jobs_for` returns more for batches.
JOBS = 10_000

#: Seconds; a run that takes longer counts as unfinished.
LIMIT = 300.0


def say_nothing(words: str) -> None:
    """Ignore a message."""


@dataclass
class Lab:
    """One database during the measurement.

    :param scale: factor for all sizes.
    :param workers: number of worker processes, unless a bar sets its own.
    """

    target: Target
    bench: Bench
    plan: Plan
    scale: float
    pools: Callable[[int], WorkerPool]
    say: Callable[[str], None] = say_nothing
    #: The SQL of pgmq.
    pgmq: Path | None = None
    #: Another checkout of this project, to take part.
    old: Path | None = None

    @property
    def repeat(self) -> int:
        """Runs per side."""
        return self.plan.repeat

    def sized(self, number: int, least: int = 1) -> int:
        """Return ``number`` at this scale."""
        return max(least, int(number * self.scale))

    def jobs_for(self, batch: int) -> int:
        """Return the jobs per run: enough for every worker to claim a few times."""
        return max(self.plan.workers * batch, self.plan.jobs_for(batch))

    def at(self, workers: int) -> Target:
        """Return the target with another number of workers."""
        return replace(self.target, workers=workers)

    def open(self, table: str = "jobs", pool_size: int = 1) -> QueueDB:
        """Open the product with its defaults and one connection, or more."""
        return QueueDB(self.target.url, table=table, schema=self.target.schema, pool_size=pool_size)

    @contextmanager
    def tables(self, *names: str) -> Iterator[list[QueueDB]]:
        """Yield databases with migrated tables of these names, which are dropped afterwards."""
        with ExitStack() as stack:
            opened = []
            for name in names:
                db = stack.enter_context(self.open(name))
                stack.callback(db.migrate, revision="base")
                db.migrate()
                opened.append(db)
            yield opened

    def turns(self, rows: Sequence[tuple[Contestant, int]], workers: int | None = None) -> list[Side]:
        """Run all ``(row, jobs)`` in turns, so that other load on the machine affects all of them."""
        number = workers or self.plan.workers
        runs: list[list[Run]] = [[] for _ in rows]
        for turn in range(self.repeat):
            for (row, jobs), done in zip(rows, runs, strict=True):
                self.say(f"{title(row)}, {jobs:,} jobs, {turn + 1} of {self.repeat}")
                done.append(self._once(row, jobs, number))
                self.say(f"    {done[-1].rate:,.0f} jobs/s" + ("" if done[-1].finished else ", not finished"))
        return [Side.of(title(row), done) for (row, _), done in zip(rows, runs, strict=True)]

    def _once(self, row: Contestant, jobs: int, workers: int) -> Run:
        target = self.at(workers)
        try:
            row.set_up(target, jobs)
            assignment = Assignment(row, target, work_seconds=0.0, clone=0.0, verify=False)
            spent: list[float | None] = []
            with autocommitting(target.url) as engine:
                clock = server_clock(engine, dialect_for(engine.dialect.name))
            history = self.pools(workers).run(
                assignment, jobs, limit=self.plan.limit, before=lambda: spent.append(clock()) if clock else None
            )
            used = clock() if clock else None
            server_cpu = used - spent[0] if used is not None and spent and spent[0] is not None else None
        finally:
            row.tear_down(target)
        return Run.of(history, client_cpu=history.total("cpu"), server_cpu=server_cpu)


@dataclass
class Pools:
    """Worker pools by number of workers, for all databases and bars: starting processes takes seconds."""

    _pools: dict[int, WorkerPool] = field(default_factory=dict)

    def __call__(self, workers: int) -> WorkerPool:
        if workers not in self._pools:
            self._pools[workers] = WorkerPool(workers)
        return self._pools[workers]

    def close(self) -> None:
        """End all workers; the next run starts new ones. After a failure the state of the workers is unknown."""
        while self._pools:
            _, pool = self._pools.popitem()
            with suppress(OSError):
                pool.close()


@contextmanager
def lab_at(
    url: str,
    *,
    repeat: int,
    scale: float,
    pools: Callable[[int], WorkerPool],
    workers: int = 10,
    limit: float = LIMIT,
    say: Callable[[str], None] = say_nothing,
    pgmq: Path | None = None,
    old: Path | None = None,
) -> Iterator[Lab]:
    """Yield a lab in a new schema of this database; the schema is dropped afterwards, also after an error."""
    plan = Plan(jobs=max(1, int(JOBS * scale)), workers=workers, repeat=repeat, limit=limit)
    with ExitStack() as stack:
        with _signals_blocked():
            target, bench = stack.enter_context(scratch_target(url, plan))
        yield Lab(target, bench, plan, scale, pools, say, pgmq, old)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block Ctrl-C while the schema is created: it would not be dropped yet."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def title(row: Contestant) -> str:
    """Return name and batch size."""
    return row.name if row.batch == 1 else f"{row.name} ×{row.batch}"
