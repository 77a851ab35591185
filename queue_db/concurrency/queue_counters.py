"""Counts of what the verbs of this process did in each queue. They are kept here until they are written to the metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from queue_db.concurrency.forks import reset_after_fork

log = logging.getLogger("queue_db.concurrency")

#: Maps each queue to its counts by name.
Counts = dict[str, dict[str, int]]

#: The name of the count of lost leases in a queue that a caller has named, perhaps wrongly. The metrics leave the count out if they
#: know nothing else of this queue.
LOST_IF_KNOWN = "lost_if_known"

#: The most queues whose counts wait to be written. Counts of further queues are dropped, and one warning is logged.
MOST_QUEUES = 10_000


class QueueCounters:
    """Counts by queue. Safe to share between threads. A forked child begins without counts."""

    def __init__(self) -> None:
        self._dropped = False
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Begin without counts, because the parent process writes its own counts."""
        self._lock = threading.RLock()
        self._counts: Counts = {}

    def add(self, queue: str, **counts: int) -> None:
        """Add counts of a queue."""
        first = False
        with self._lock:
            for name, number in counts.items():
                if not number:
                    continue
                mine = self._counts.get(queue)
                if mine is None:
                    if len(self._counts) >= MOST_QUEUES:
                        first, self._dropped = not self._dropped, True
                        break
                    mine = self._counts[queue] = {}
                mine[name] = mine.get(name, 0) + number
        if first:
            log.warning("more than %d queues have unwritten counts: those of further queues are dropped", MOST_QUEUES)

    def take(self) -> Counts:
        """Return all counts and reset them."""
        with self._lock:
            taken, self._counts = self._counts, {}
        return taken

    def put_back(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add counts that were taken and could not be written."""
        for queue, numbers in counts.items():
            self.add(queue, **numbers)
