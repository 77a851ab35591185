"""The product's rows: every strategy with every batch, on its own layout, by the public API, so that all it costs is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from queue_db import Adaptive, Job, LeasedJob, Optimistic, Pessimistic, Queue, QueueDB, SkipLocked, Strategy, UnsupportedError
from queue_db.compare.contestant import Desk, Place
from queue_db.compare.history import Notes
from queue_db.database.database import COUNTED
from queue_db.database.masking import mask, secrets_in
from queue_db.model import Counters

_QUEUE = "race"

#: Seconds; longer than any run, so that no lease ends while its worker is at it.
_LEASE = 600.0


@dataclass(frozen=True)
class Product:
    """A claim through :class:`queue_db.Queue`.

    :param strategy: makes the strategy in each worker, given the number of workers.
    :param wide: width of its window in batches, given the number of workers; None without a fixed one.
    """

    name: str
    claim: str
    strategy: Callable[[int], Strategy]
    wide: Callable[[int], float] | None = None
    batch: int = 1
    at_most_once: bool = False
    family: str = field(default="product", init=False)
    index: str = field(default="(queue, priority, available_at, id)", init=False)

    @property
    def removal(self) -> str:
        """How jobs leave."""
        return "with the claim" if self.at_most_once else "fenced DELETE"

    def window(self, workers: int) -> float | None:
        """Width of the window, in jobs."""
        return None if self.wide is None else self.wide(workers) * self.batch

    @property
    def pick(self) -> str | None:
        """How jobs are drawn from the window."""
        return "slot" if self.wide is not None else None

    def configuration(self) -> dict[str, str]:
        """Nothing beyond the defaults."""
        return {}

    def refused(self, place: Place) -> str | None:
        """What the strategy needs and the database lacks."""
        try:
            self._open(place).close()
        except UnsupportedError as error:
            return mask(str(error), secrets_in(place.url))
        return None

    def set_up(self, place: Place, jobs: int) -> None:
        """Migrate, and enqueue."""
        with self._open(place) as db:
            db.migrate()
            db.queue(_QUEUE).enqueue_many(("job", number) for number in range(jobs))
            with db.database.engine.connect() as connection:
                db.database.dialect.analyze(connection, db.store.tables.jobs)
                connection.commit()

    def work(self, place: Place, desk: Desk) -> None:
        """Claim a batch, complete it."""
        with self._open(place) as db:
            self._warm_up(db, desk)
            queue = db.queue(_QUEUE)
            start = replace(db.counters)
            desk.ready()
            clone = desk.clone
            while not desk.over:
                asked = time.monotonic()
                jobs = self._take(queue)
                if not jobs:
                    desk.found_nothing()
                    continue
                desk.claimed(asked, [job.payload for job in jobs])
                if clone:
                    desk.copy(len(jobs), lambda count: queue.enqueue_many([("job", -1)] * count))
                if self.at_most_once:
                    desk.left(len(jobs))
                    continue
                applied = sum(map(bool, queue.complete_many(cast("list[LeasedJob]", jobs))))
                desk.notes.lost += len(jobs) - applied
                desk.left(applied)
            _note(desk.notes, start, db.counters)
            if isinstance(db.strategy, Adaptive):
                desk.notes.window = float(db.strategy.window(_QUEUE) * self.batch)

    def tear_down(self, place: Place) -> None:
        """Drop the tables."""
        with self._open(place) as db:
            db.migrate(revision="base")

    def _open(self, place: Place) -> QueueDB:
        return QueueDB(place.url, self.strategy(place.workers), schema=place.schema, pool_size=1)

    def _take(self, queue: Queue) -> Sequence[LeasedJob | Job]:
        return queue.pop(self.batch) if self.at_most_once else queue.claim(self.batch, _LEASE)

    def _warm_up(self, db: QueueDB, desk: Desk) -> None:
        """Connect, and let SQLAlchemy compile what will be needed: both happen once in a worker's life."""
        queue = db.queue(f"warm-up-{desk.number}")
        for _ in range(3):
            queue.enqueue_many([("job", 0)] * self.batch)
            queue.complete_many(queue.claim(self.batch, _LEASE))


def _note(notes: Notes, start: Counters, end: Counters) -> None:
    """What the product counts itself: with a listener on its statements they would take a longer way."""
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

#: With batches of one; ``dataclasses.replace`` makes the others.
PRODUCT: tuple[Product, ...] = (
    Product("pessimistic", f"FOR UPDATE, {_HEAD}", _pessimistic),
    Product("skip_locked", f"FOR UPDATE SKIP LOCKED, {_HEAD}", _skip_locked),
    Product("optimistic", "by version, a slot of a window of N batches", _optimistic, float),
    Product("adaptive", "by version, a slot of a window that tunes itself", _adaptive),
    Product("at_most_once", "as adaptive, deleted in the same transaction", _adaptive, at_most_once=True),
)
