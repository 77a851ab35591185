"""Databases that stay open from test to test."""

from __future__ import annotations

from queue_db import QueueDB
from queue_db.testing import SettableClock


class Handles:
    """Databases that stay open from test to test: to open one and to prepare its statements is most of what a short test takes."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self._opened: dict[tuple[str, str, bool], QueueDB] = {}

    def get(self, url: str, worker: str, *, settable: bool = False) -> QueueDB:
        """The handle of that worker; ``settable``: by the clock of the tests and not by the database's."""
        key = (url, worker, settable)
        if key not in self._opened:
            self._opened[key] = QueueDB(url, worker=worker, clock=self.clock if settable else None)
        return self._opened[key]

    def close(self) -> None:
        for db in self._opened.values():
            db.close()
