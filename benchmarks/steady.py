"""Producing and consuming at the same time, compared with draining."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks.beside import Beside
from benchmarks.figures import Line
from benchmarks.lab import Lab
from queue_db import QueueDB
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.laboratory import contestants

#: The queue of the laboratory's product rows, the consumers.
_QUEUE = "race"

#: Jobs per enqueue_many, and the largest backlog.
ROWS = 500
BACKLOG = 30_000

Start = Literal["drain", "filled", "empty"]

_NAMES: dict[Start, str] = {
    "drain": "drain",
    "filled": "steady, started on a filled table",
    "empty": "steady, started on an empty table",
}


@dataclass(frozen=True, kw_only=True)
class Steady(Beside):
    """The first workers produce, the others consume like the other row.

    :param start: drain: all jobs are enqueued before, the producers only wait; filled: the largest backlog is enqueued before;
        empty: the table is empty, also while the consumers connect and prepare their statements.
    """

    start: Start
    jobs: int
    backlog: int = BACKLOG
    producers: int = 2

    @property
    def _there(self) -> int:
        """Number of jobs at the start."""
        return {"drain": self.jobs, "filled": min(self.backlog, self.jobs), "empty": 0}[self.start]

    def set_up(self, target: Target, jobs: int) -> None:
        """Create the tables with the jobs of the start."""
        super().set_up(target, self._there)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Produce or consume."""
        # Producers do not claim.
        target = replace(target, workers=target.workers - self.producers)
        if context.number >= self.producers:
            self.like.work(target, context)
            return
        tally: Any = context.tally
        with QueueDB(target.url, schema=target.schema, pool_size=1) as db:
            queue = db.queue(_QUEUE)
            queue.db.ready()
            context.wait_for_start()
            # Each makes every nth block of jobs, and sees to as large a part of the backlog.
            blocks = iter(range(self._there + ROWS * context.number, self.jobs, ROWS * self.producers))
            block = next(blocks, None)
            while not context.over:
                if block is not None and block - tally.left < self.backlog:
                    queue.enqueue_many([("job", number) for number in range(block, min(block + ROWS, self.jobs))], ids=False)
                    block = next(blocks, None)
                else:
                    time.sleep(0.001)


def steady(lab: Lab, jobs: int | None = None, consumers: int = 6, batch: int = 100, producers: int = 2) -> Iterator[Line]:
    """PostgreSQL: a fixed number of jobs with each start, in turns."""
    count = jobs or lab.sized(500_000, consumers * batch)
    (consumer,) = contestants(["adaptive"], [batch])
    backlog = max(BACKLOG if lab.scale >= 1 else lab.sized(BACKLOG), consumers * batch)
    rows = [
        Steady(like=consumer, name=name, start=start, jobs=count, backlog=backlog, producers=producers)
        for start, name in _NAMES.items()
    ]
    drain, filled, empty = lab.turns([(row, count) for row in rows], consumers + producers)
    processes = f"{producers} producers, {consumers} consumers"
    yield Line(f"steady ×{batch}, started on a filled table, against drain ({processes})", filled, drain, 0.65)
    yield Line(f"steady ×{batch}, started on an empty table, against drain ({processes})", empty, drain, 0.65)
    # Runs vary by a few percent.
    yield Line(f"steady ×{batch}, prepared on an empty table against a filled one", empty, filled, 0.95)
