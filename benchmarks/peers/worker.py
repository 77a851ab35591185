"""Our own :class:`queue_db.worker.Worker` as a row: what a whole worker costs, not a claim alone."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import GLANCE, PATIENCE, Peer, take_over_work
from queue_db import QueueDB
from queue_db.compare.contestant import Desk, Place

_QUEUE = "race"


@dataclass(frozen=True)
class OwnWorker(Peer):
    """One claimer, ten handlers on threads, one acknowledger in each process.

    :param batch: jobs that are claimed ahead of free slots; 1: none.
    """

    name: str = "worker"
    claim: str = "adaptive, for all free slots at once"
    removal: str = "fenced DELETE, in batches"
    index: str = "(queue, priority, available_at, id)"
    mode: str = "at_least_once"
    concurrency: int = 10

    databases = ("postgresql", "mysql", "mariadb", "sqlite")

    def configuration(self) -> dict[str, str]:
        """Threads and mode."""
        return {"concurrency": str(self.concurrency), "prefetch": str(self._ahead), "mode": self.mode.replace("_", " ")}

    @property
    def _ahead(self) -> int:
        return 0 if self.batch == 1 else self.batch

    def set_up(self, place: Place, jobs: int) -> None:
        """Migrate, and enqueue."""
        with QueueDB(place.url, schema=place.schema) as db:
            db.migrate()
            db.queue(_QUEUE).enqueue_many(("job", number) for number in range(jobs))
            with db.database.engine.connect() as connection:
                db.database.dialect.analyze(connection, db.store.tables.jobs)
                connection.commit()

    def work(self, place: Place, desk: Desk) -> None:
        """Run it until the run is over."""
        from queue_db.worker import Worker

        with QueueDB(place.url, schema=place.schema) as db:
            queue = db.queue(_QUEUE)
            seconds = take_over_work(desk)
            # Told to the desk in batches, when they are settled: to tell it job by job costs as much as the jobs.
            begun: deque[tuple[float, int]] = deque()
            worker = Worker(db, _QUEUE, concurrency=self.concurrency, prefetch=self._ahead, mode=self.mode, schedules=False)
            once = self.mode == "at_most_once"
            settle = queue.complete_many

            def complete_many(jobs: Any, **options: Any) -> Any:
                verdicts = settle(jobs, **options)
                _tell(desk, begun)
                desk.left(sum(map(bool, verdicts)))
                return verdicts

            @worker.handles("job")
            def job(job: Any) -> None:
                begun.append((time.monotonic(), job.payload))
                if seconds:
                    time.sleep(seconds)

            queue.complete_many = complete_many  # type: ignore[method-assign]
            for _ in range(3):
                warm = db.queue(f"warm-up-{desk.number}")
                warm.enqueue_many([("job", 0)] * 10)
                warm.complete_many(warm.claim(10))
            desk.ready()
            running = threading.Thread(target=worker.run, name="worker")
            running.start()
            while not desk.over:
                time.sleep(GLANCE)
                if once:
                    desk.left(_tell(desk, begun))
            worker.stop()
            running.join(PATIENCE)
            _tell(desk, begun)

    def tear_down(self, place: Place) -> None:
        """Drop the tables."""
        with QueueDB(place.url, schema=place.schema) as db:
            db.migrate(revision="base")


def _tell(desk: Desk, begun: deque[tuple[float, int]]) -> int:
    """Let the desk know which jobs were begun when."""
    told = [begun.popleft() for _ in range(len(begun))]
    if told:
        desk.notes.times.extend(when for when, _ in told)
        desk.notes.jobs.extend(number for _, number in told)
        desk.tally.add(desk.number, begun=len(told))
        if desk.protocol is not None:
            desk.protocol([number for _, number in told], [when for when, _ in told])
    return len(told)
