"""QueueDB objects that stay open from test to test."""

from __future__ import annotations

from queue_db import QueueDB
from queue_db.testing import SettableClock


class Handles:
    """QueueDB objects that stay open: opening one and preparing its statements is most of the time of a short test."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self._opened: dict[tuple[str, str, bool], QueueDB] = {}

    def get(self, url: str, worker: str, *, settable: bool = False) -> QueueDB:
        """The object of that worker; ``settable``: on the clock of the tests instead of that of the database."""
        key = (url, worker, settable)
        if key not in self._opened:
            self._opened[key] = QueueDB(url, worker=worker, clock=self.clock if settable else None)
        return self._opened[key]

    def close(self) -> None:
        for db in self._opened.values():
            db.close()
