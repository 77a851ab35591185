"""What a consumer holds: a thread extends the leases of its messages, and does nothing else that they would wait for."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable

from queue_db import LeasedJob, QueueDB
from queue_db.contrib.kombu.rounds import RETRY, Rounds

log = logging.getLogger("queue_db.kombu")

#: A lease is extended after this share of it: there is time for another attempt.
_SHARE = 1 / 3


class Leases:
    """The messages that one connection holds, by delivery tag. A thread extends their leases until the connection is closed.

    After a fork the child has none of them: they are its parent's.

    :param seconds: of a lease.
    """

    def __init__(self, db: QueueDB, seconds: float) -> None:
        self._db = db
        self.seconds = seconds
        self._jobs: dict[str, LeasedJob] = {}
        self._lock = threading.Lock()
        self._rounds = Rounds("leases", self._round, first=seconds * _SHARE)

    def add(self, tag: str, job: LeasedJob) -> None:
        """Extend the lease of a message from now on."""
        with self._lock:
            self._jobs[tag] = job
        self._rounds.start()

    def take(self, tag: str) -> LeasedJob | None:
        """The message, whose lease is no longer extended; None: it is not held here, or its lease was lost."""
        with self._lock:
            return self._jobs.pop(tag, None) if self._rounds.is_here else None

    def take_all(self, tags: Iterable[str]) -> list[LeasedJob]:
        """:meth:`take` for several."""
        return [job for job in map(self.take, tags) if job is not None]

    def close(self) -> None:
        """End the thread. What is still held returns to its queue when its lease ends."""
        self._rounds.close()

    def _round(self) -> float:
        again = self.seconds * _SHARE
        return again if self._rounds.succeeds("extending leases", self._extend) else min(RETRY, again)

    def _extend(self) -> None:
        by_queue: dict[str, list[tuple[str, LeasedJob]]] = defaultdict(list)
        with self._lock:
            for tag, job in self._jobs.items():
                by_queue[job.queue].append((tag, job))
        for queue, held in by_queue.items():
            verdicts = self._db.queue(queue).extend_many([job for _, job in held], self.seconds)
            for (tag, job), verdict in zip(held, verdicts, strict=True):
                if not verdict and self.take(tag) is not None:
                    log.warning("the lease of message %d in %r was lost: another consumer gets it", job.id, queue)
