"""What the pages of one application share: the clock, and numbers and findings that are read once for all who look.

Looking for stuck queues costs a read of every overdue job: it is done in the background, seldom.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fastapi import Request

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.monitoring.insights import Finding, findings
from queue_db.operations.actor import Actor
from queue_db.service.live.kept import Clock
from queue_db.service.live.samples import Samples
from queue_db.service.pages.numbers import Line, Numbers

log = logging.getLogger("queue_db.service")

# Seconds between two looks, at least; and at most this share of the time is spent looking.
_EVERY = 5.0
_SHARE = 0.01

# After an action the next look begins at once where a look takes no longer, seconds.
_QUICK = 0.5

# Seconds that a page waits for a look that has just begun.
_PATIENCE = 0.1

# A queue is failing if so many attempts of the last minute failed, and at least so large a share of them.
_FAILURES, _FAILING = 5, 0.5


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the last look found; None: there was none yet."""

    found: tuple[Finding, ...] | None = None
    failed: bool = False
    #: Seconds since the look.
    age: float = 0.0


def failing(lines: Iterable[Line]) -> list[Line]:
    """The queues in which most attempts of the last minute failed, the most failures first."""
    found = [line for line in lines if line.failures >= max(_FAILURES, _FAILING * line.attempts)]
    return sorted(found, key=lambda line: -line.failures)


def seen_by(who: Actor, diagnosis: Diagnosis) -> Diagnosis:
    """The findings that somebody may read, what is stuck first. Workers and schedules are for tokens for all queues."""
    if diagnosis.found is None:
        return diagnosis
    found = [one for one in diagnosis.found if who.allows_all("read") or (one.queue is not None and who.allows("read", one.queue))]
    return replace(diagnosis, found=tuple(sorted(found, key=lambda one: not one.stuck)))


class Watch:
    """The findings of one database."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._looked = threading.Event()
        self._busy = self._forgotten = False
        self._took = 0.0
        self._last = Diagnosis()
        self._at = self._next = 0.0

    def look(self) -> Diagnosis:
        """What is wrong, as of a moment ago."""
        with self._lock:
            due = time.monotonic() >= self._next or (self._forgotten and self._took <= _QUICK)
            begins = due and not self._busy
            if begins:
                self._busy, self._forgotten = True, False
                self._looked.clear()
        if begins:
            threading.Thread(target=self._find, name="queue_db diagnosis", daemon=True).start()
        if begins or self._last.found is None:
            self._looked.wait(_PATIENCE)
        return Diagnosis(self._last.found, self._last.failed, time.monotonic() - self._at)

    def forget(self) -> None:
        """Look again at the next call, if that takes little: something was changed here."""
        with self._lock:
            self._forgotten = True

    def _find(self) -> None:
        began = time.monotonic()
        try:
            found = Diagnosis(tuple(findings(self._db)))
        except QueueDBError as error:
            log.warning("cannot look for stuck queues: %s", error)
            found = Diagnosis(self._last.found, failed=True)
        now = time.monotonic()
        with self._lock:
            self._last, self._at, self._busy = found, now, False
            self._took = now - began
            self._next = now + max(_EVERY, (now - began) / _SHARE)
        self._looked.set()


class Board:
    """The clock, numbers and findings of one database."""

    def __init__(self, db: QueueDB, clock: Clock, samples: Samples) -> None:
        self.clock = clock
        self.numbers = Numbers(db, clock)
        self.watch = Watch(db)
        self.samples = samples

    def lines(self, who: Actor) -> list[Line]:
        """The queues that somebody may read, by name."""
        return [line for line in self.numbers.lines() if who.allows("read", line.queue)]

    def forget(self) -> None:
        """Read numbers and findings again: something was changed here."""
        self.numbers.forget()
        self.watch.forget()


def board(request: Request) -> Board:
    """The board of this application."""
    found: Board = request.app.state.board
    found.samples.start()
    return found
