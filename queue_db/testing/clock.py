"""A clock that a test sets, so that no test sleeps for a lease, a delay or a backoff."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from queue_db.model import from_micros, to_micros


class SettableClock:
    """A clock for ``QueueDB(…, clock=clock)``: it starts at ``start`` or now, and moves only by :meth:`advance` and :meth:`set`.

    The QueueDB objects of a test share one clock, as processes share the clock of the database. Thread-safe.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._micros = to_micros(start or datetime.now(UTC))

    def __call__(self) -> int:
        """The time in microseconds since 1970."""
        with self._lock:
            return self._micros

    def now(self) -> datetime:
        """The time as an aware datetime in UTC."""
        return from_micros(self())

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        :raises ValueError: ``seconds`` is negative; use :meth:`set`.
        """
        if seconds < 0:
            raise ValueError(f"advance({seconds}): must not be negative; set() moves the clock back")
        with self._lock:
            self._micros += round(seconds * 1_000_000)

    def set(self, moment: datetime) -> None:
        """Set the clock to ``moment``, an aware datetime.

        :raises ValueError: ``moment`` has no time zone.
        """
        if moment.tzinfo is None:
            raise ValueError(f"set({moment!r}): give the datetime a time zone")
        with self._lock:
            self._micros = to_micros(moment)

    def __repr__(self) -> str:
        return f"<SettableClock {self.now().isoformat()}>"
