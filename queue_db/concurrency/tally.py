"""What the verbs of this process did in each queue since it was last written down."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Mapping

#: By queue: counts by name.
Counts = dict[str, dict[str, int]]


class Tally:
    """Counts by queue. Safe to share between threads; a fork begins with none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._counts: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))

    def add(self, queue: str, **counts: int) -> None:
        """Add counts of a queue."""
        if not any(counts.values()):
            return
        with self._lock:
            self._check_process()
            mine = self._counts[queue]
            for name, number in counts.items():
                if number:
                    mine[name] += number

    def take(self) -> Counts:
        """All counts; from now on they are zero."""
        with self._lock:
            self._check_process()
            taken = {queue: dict(counts) for queue, counts in self._counts.items()}
            self._counts.clear()
        return taken

    def put_back(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add what was taken and could not be written down."""
        for queue, some in counts.items():
            self.add(queue, **some)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._counts.clear()  # the parent writes them down
