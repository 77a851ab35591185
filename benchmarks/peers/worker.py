"""The product's :class:`queue_db.worker.Worker` as a row: the cost of a complete worker, not only of claims."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import PATIENCE, POLL_INTERVAL, Peer, take_over_work
from queue_db import QueueDB
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.dialects import Laboratory

_QUEUE = "race"


@dataclass(frozen=True)
class OwnWorker(Peer):
    """One claiming thread, ten handler threads and one completing thread per process.

    :param batch: prefetched jobs; 1: none.
    """

    name: str = "worker"
    claim: str = "adaptive, for all free slots at once"
    removal: str = "fenced DELETE, in batches"
    index: str = "(queue, priority, available_at, id)"
    mode: str = "at_least_once"
    concurrency: int = 10

    databases = ("postgresql", "mysql", "mariadb", "sqlite")

    def configuration(self) -> dict[str, str]:
        """Return its settings: threads and mode."""
        return {"concurrency": str(self.concurrency), "prefetch": str(self._ahead), "mode": self.mode.replace("_", " ")}

    @property
    def _ahead(self) -> int:
        return 0 if self.batch == 1 else self.batch

    def set_up(self, target: Target, jobs: int) -> None:
        """Create the tables and enqueue the jobs."""
        with QueueDB(target.url, schema=target.schema) as db:
            db.migrate()
            db.queue(_QUEUE).enqueue_many(("job", number) for number in range(jobs))
            with db.database.engine.connect() as connection:
                Laboratory.of(db.database.dialect).analyze(connection, db.store.tables.jobs)
                connection.commit()

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run the worker until the run is over."""
        from queue_db.worker import Worker

        with QueueDB(target.url, schema=target.schema) as db:
            queue = db.queue(_QUEUE)
            seconds = take_over_work(context)
            # Recorded in batches after completion: recording each job would cost as much as the job.
            begun: deque[tuple[float, int]] = deque()
            worker = Worker(db, _QUEUE, concurrency=self.concurrency, prefetch=self._ahead, mode=self.mode, schedules=False)
            once = self.mode == "at_most_once"
            settle = queue.complete_many

            def complete_many(jobs: Any, **options: Any) -> Any:
                verdicts = settle(jobs, **options)
                _record_starts(context, begun)
                context.record_removal(sum(map(bool, verdicts)))
                return verdicts

            @worker.handles("job")
            def job(job: Any) -> None:
                begun.append((time.monotonic(), job.payload))
                if seconds:
                    time.sleep(seconds)

            queue.complete_many = complete_many  # type: ignore[method-assign]
            for _ in range(3):
                warm = db.queue(f"warm-up-{context.number}")
                warm.enqueue_many([("job", 0)] * 10)
                warm.complete_many(warm.claim(10))
            context.wait_for_start()
            running = threading.Thread(target=worker.run, name="worker")
            running.start()
            while not context.over:
                time.sleep(POLL_INTERVAL)
                if once:
                    context.record_removal(_record_starts(context, begun))
            worker.stop()
            running.join(PATIENCE)
            _record_starts(context, begun)

    def tear_down(self, target: Target) -> None:
        """Drop the tables."""
        with QueueDB(target.url, schema=target.schema) as db:
            db.migrate(revision="base")


def _record_starts(context: WorkerContext, begun: deque[tuple[float, int]]) -> int:
    """Record the start times of jobs."""
    recorded = [begun.popleft() for _ in range(len(begun))]
    if recorded:
        context.notes.times.extend(when for when, _ in recorded)
        context.notes.jobs.extend(number for _, number in recorded)
        context.tally.add(context.number, begun=len(recorded))
        if context.protocol is not None:
            context.protocol([number for _, number in recorded], [when for when, _ in recorded])
    return len(recorded)
