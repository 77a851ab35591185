"""The product's rows: every strategy with every batch size through the public API, so all costs of the library are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from sqlalchemy import MetaData, Table

from queue_db import (
    Adaptive,
    Job,
    LeasedJob,
    Optimistic,
    Pessimistic,
    Queue,
    QueueDB,
    SkipLocked,
    Strategy,
    UnsupportedError,
    Verdict,
)
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.compare.history import Notes
from queue_db.database.database import COUNTED
from queue_db.database.masking import mask, secrets_in
from queue_db.model import Counters
from queue_db.removal import Removal, removal_for
from queue_db.strategies.adaptive import RACES_WITH_LOCKS

#: The queue of all jobs.
QUEUE = "race"

#: Seconds; longer than any run, so no lease expires.
_LEASE = 7 * 86_400.0

#: Claims of a worker before it starts, with each of its statements.
_WARM_UP = 4


@dataclass(frozen=True)
class Product:
    """A row that claims through :class:`queue_db.Queue`.

    :param strategy: returns the strategy for a number of workers.
    :param wide: returns the width of its window in batches for a number of workers; None without a fixed window.
    """

    name: str
    claim: str
    strategy: Callable[[int], Strategy]
    wide: Callable[[int], float] | None = None
    batch: int = 1
    at_most_once: bool = False
    combined: bool = False  #: jobs are completed with the next claim
    removes: str | Removal = "delete"  #: how completed jobs leave the table
    family: str = field(default="product", init=False)
    index: str = field(default="(queue, priority, available_at, id)", init=False)

    @property
    def removal(self) -> str:
        """How finished jobs are removed."""
        if self.at_most_once:
            return "with the claim"
        return "fenced DELETE" if self.removes == "delete" else removal_for(self.removes).name

    def window(self, workers: int) -> float | None:
        """Width of the window, in jobs."""
        return None if self.wide is None else self.wide(workers) * self.batch

    def configuration(self) -> dict[str, str]:
        """Return no settings: the row uses the defaults."""
        return {}

    def refused(self, target: Target) -> str | None:
        """Return what the strategy needs and the database lacks."""
        try:
            self._open(target).close()
        except UnsupportedError as error:
            return mask(str(error), secrets_in(target.url))
        return None

    def set_up(self, target: Target, jobs: int) -> None:
        """Create the tables and enqueue the jobs."""
        with self._open(target) as db:
            db.migrate()
            db.queue(QUEUE).enqueue_many(("job", number) for number in range(jobs))
            with db.database.engine.connect() as connection:
                Laboratory.of(db.database.dialect).analyze(connection, db.store.tables.jobs)
                connection.commit()

    def work(self, target: Target, context: WorkerContext) -> None:
        """Claim and complete batches."""
        with self._open(target) as db:
            self._warm_up(db, context)
            queue = db.queue(QUEUE)
            start = replace(db.counters)
            context.wait_for_start()
            clone = context.clone
            done: list[LeasedJob] = []
            while not context.over:
                asked = time.monotonic()
                jobs = self._complete_and_claim(queue, context, done) if self.combined else self._take(queue)
                if not jobs:
                    context.record_empty_claim()
                    continue
                context.record_claim(asked, [job.payload for job in jobs])
                if clone:
                    context.enqueue_clones(len(jobs), lambda count: queue.enqueue_many([("job", -1)] * count))
                if self.at_most_once:
                    context.record_removal(len(jobs))
                    continue
                done += cast("list[LeasedJob]", jobs)
                if not self.combined:
                    _completed(context, done, queue.complete_many(done))
            if done:
                _completed(context, done, queue.complete_many(done))
            _note(context.notes, start, db.counters)
            # Who came when the others had done all has no window.
            if isinstance(db.strategy, Adaptive) and context.notes.rounds:
                if db.store.capabilities >= RACES_WITH_LOCKS:
                    context.notes.skip_locked = db.strategy.locks(db.store.dialect, db.store.capabilities, self.batch)
                if not context.notes.skip_locked:
                    context.notes.window = float(db.strategy.window(QUEUE) * self.batch)

    def tear_down(self, target: Target) -> None:
        """Drop the tables, that of the version too, which ``migrate`` keeps.

        MariaDB keeps a hidden column of it for each migration and its undoing, and refuses the next one after about 30 runs.
        """
        with self._open(target) as db:
            db.migrate(revision="base")
            version = Table(db.store.tables.version, MetaData(schema=target.schema))
        with autocommitting(target.url) as engine:
            version.drop(engine, checkfirst=True)

    def _open(self, target: Target) -> QueueDB:
        return QueueDB(target.url, self.strategy(target.workers), removal=self.removes, schema=target.schema, pool_size=1)

    def _take(self, queue: Queue) -> Sequence[LeasedJob | Job]:
        return queue.pop(self.batch) if self.at_most_once else queue.claim(self.batch, _LEASE)

    def _complete_and_claim(self, queue: Queue, context: WorkerContext, done: list[LeasedJob]) -> Sequence[LeasedJob]:
        """Complete ``done`` with the claim of the next jobs."""
        verdicts, jobs = queue.complete_and_claim(done, self.batch, _LEASE)
        if done:
            _completed(context, done, verdicts)
        return jobs

    def _warm_up(self, db: QueueDB, context: WorkerContext) -> None:
        """Connect and let SQLAlchemy compile the statements: both happen once per worker."""
        own, batch = db.core.strategy, min(self.batch, 2)  # the statements of two jobs are those of more
        for number, strategy in enumerate([own, *_parts_of(own)]):
            db.core.strategy = strategy
            queue = db.queue(f"warm-up-{context.number}-{number}")
            queue.enqueue_many([("job", 0)] * (_WARM_UP * batch))
            jobs: list[LeasedJob] = []
            for _ in range(_WARM_UP):
                if self.combined:
                    _, jobs = queue.complete_and_claim(jobs, batch, _LEASE)
                else:
                    queue.complete_many(queue.claim(batch, _LEASE))
            queue.complete_many(jobs)
        db.core.strategy = own


def _parts_of(strategy: Strategy) -> list[Strategy]:
    """Strategies with the statements of ``strategy`` that it does not use at once: a window of one batch, and a wider one."""
    return [Optimistic(window=1), Optimistic(window=64)] if isinstance(strategy, Adaptive) else []


def _completed(context: WorkerContext, done: list[LeasedJob], verdicts: Sequence[Verdict]) -> None:
    """Record what became of ``done``, and empty the list."""
    applied = sum(map(bool, verdicts))
    context.notes.lost += len(done) - applied
    done.clear()
    context.record_removal(applied)


def _note(notes: Notes, start: Counters, end: Counters) -> None:
    """Copy the product's own counters: a listener on the engine's events would make its statements take a slower path."""
    notes.rounds = end.attempts - start.attempts
    notes.candidates = end.candidates - start.candidates
    notes.won = end.claimed - start.claimed
    notes.statements += end.statements - start.statements
    for fault, name in COUNTED.items():
        notes.faults[fault] += getattr(end, name) - getattr(start, name)


def _pessimistic(workers: int) -> Strategy:
    return Pessimistic()


def _skip_locked(workers: int) -> Strategy:
    return SkipLocked()


def _optimistic(workers: int) -> Strategy:
    return Optimistic(window=workers)


def _adaptive(workers: int) -> Strategy:
    return Adaptive()


_HEAD = "head of the queue"

#: With a batch of 1; ``dataclasses.replace`` makes the others.
PRODUCT: tuple[Product, ...] = (
    Product("pessimistic", f"FOR UPDATE, {_HEAD}", _pessimistic),
    Product("skip_locked", f"FOR UPDATE SKIP LOCKED, {_HEAD}", _skip_locked),
    Product("optimistic", "by version, a slot of a window of N batches", _optimistic, float),
    Product(
        "adaptive", "by version, a slot of a window that follows the misses; SKIP LOCKED where it is clearly faster", _adaptive
    ),
    Product("complete_and_claim", "as adaptive, together with the completion of the last jobs", _adaptive, combined=True),
    Product("at_most_once", "as adaptive, deleted in the same transaction", _adaptive, at_most_once=True),
)
