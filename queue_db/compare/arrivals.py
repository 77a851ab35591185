"""The product's strategies under a fixed arrival rate: how long a job waits until a worker has it.

The rows of the comparison drain a full table. Here jobs arrive one after the other at a rate that does not depend on the workers:
job *n* is due to arrive *n* ÷ rate seconds after the start signal, and its wait is counted from that moment, also if it is enqueued
late. Worker 0 enqueues what is due; the others claim.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.history import History
from queue_db.compare.measures import Latency
from queue_db.compare.product import PRODUCT, QUEUE, Product
from queue_db.compare.results import ArrivalTurn, Row

#: Of the jobs/s that the default strategy has processed; a queue that is nearly saturated would show the backlog, not the claim.
SHARE = 0.25

#: The default strategy, from which the rate follows.
_DEFAULT = "adaptive"

# Seconds that a worker pauses after an empty claim, for each worker: together they ask about a thousand times a second.
_IDLE = 0.001


@dataclass(frozen=True)
class Arriving(Product):
    """A row of the product whose worker 0 enqueues ``jobs`` jobs at ``rate`` jobs/s, and whose other workers claim them."""

    rate: float = 1.0
    jobs: int = 1

    @classmethod
    def like(cls, product: Product, rate: float, jobs: int) -> Self:
        """Return a row that claims as ``product`` does."""
        return cls(**{one.name: getattr(product, one.name) for one in fields(product) if one.init}, rate=rate, jobs=jobs)

    def set_up(self, target: Target, jobs: int) -> None:
        """Create the tables, without jobs."""
        super().set_up(target, 0)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Enqueue or claim."""
        if context.number:
            context.idle = _IDLE * target.workers
            super().work(target, context)
            return
        with self._open(target) as db:
            queue = db.queue(QUEUE)
            db.ready()
            began, sent = context.wait_for_start(), 0
            while sent < self.jobs and not context.over:
                due = min(self.jobs, int((time.monotonic() - began) * self.rate) + 1)
                if due > sent:
                    queue.enqueue_many(("job", number) for number in range(sent, due))
                    sent = due
                else:
                    time.sleep(max(0.0, began + sent / self.rate - time.monotonic()))

    def turn(self, history: History) -> ArrivalTurn:
        """Return the measures of a turn."""
        waits = sorted(
            when - history.began - number / self.rate
            for note in history.notes
            for when, number in zip(note.times, note.jobs, strict=True)
        )
        return ArrivalTurn(
            jobs=self.jobs,
            left=history.total("left"),
            seconds=history.seconds,
            pickup=Latency.of(waits),
            faults=dict(sorted(history.faults.items())),
        )


def arriving_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the product's rows with the smallest batch that was measured."""
    known = {one.name for one in PRODUCT}
    ours = [row for row in rows if row.family == "product" and row.name in known]
    least = min((row.batch for row in ours), default=0)
    return [row for row in ours if row.batch == least]


def offered_rate(rows: Sequence[Row]) -> float | None:
    """Return a quarter of the default strategy's jobs/s, or of the slowest one's, with two digits; None without rows."""
    measured = {row.name: row.rate.median for row in arriving_rows(rows) if row.rate is not None}
    if not measured:
        return None
    return max(1.0, float(f"{SHARE * measured.get(_DEFAULT, min(measured.values())):.2g}"))
