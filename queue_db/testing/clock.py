"""A clock that stands still until it is told otherwise, so that no test sleeps for a lease, a delay or a backoff."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from queue_db.model import from_micros, to_micros


class SettableClock:
    """Time for ``QueueDB(…, clock=clock)``: microseconds since 1970, from the moment it was made unless ``start`` says more.

    Several QueueDB objects of one test share one clock, as processes share the database's. Safe to share between threads.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._micros = to_micros(start or datetime.now(UTC))

    def __call__(self) -> int:
        """The time, microseconds since 1970."""
        with self._lock:
            return self._micros

    def now(self) -> datetime:
        """The time as an aware datetime, UTC."""
        return from_micros(self())

    def advance(self, seconds: float) -> None:
        """Let time pass. Backward is for :meth:`set`: leases and delays only ever end."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): time goes forward; use set() to put the clock elsewhere")
        with self._lock:
            self._micros += round(seconds * 1_000_000)

    def set(self, moment: datetime) -> None:
        """Put the clock to ``moment`` (aware datetime)."""
        if moment.tzinfo is None:
            raise ValueError(f"set({moment!r}): give the datetime a time zone")
        with self._lock:
            self._micros = to_micros(moment)

    def __repr__(self) -> str:
        return f"<SettableClock {self.now().isoformat()}>"
