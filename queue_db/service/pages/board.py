"""What the pages of one application share: the clock, and numbers and findings that are read once for all who look."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request

from queue_db.db import QueueDB
from queue_db.operations.actor import Actor
from queue_db.service.live.diagnosis import Watch
from queue_db.service.live.kept import Clock
from queue_db.service.live.samples import Samples
from queue_db.service.pages.numbers import Line, Numbers

# A queue is failing if so many attempts of the last minute failed, and at least so large a share of them.
_FAILURES, _FAILING = 5, 0.5


def failing(lines: Iterable[Line]) -> list[Line]:
    """The queues in which most attempts of the last minute failed, the most failures first."""
    found = [line for line in lines if line.failures >= max(_FAILURES, _FAILING * line.attempts)]
    return sorted(found, key=lambda line: -line.failures)


class Board:
    """The clock, numbers and findings of one database."""

    def __init__(self, db: QueueDB, clock: Clock, samples: Samples, watch: Watch) -> None:
        self.clock = clock
        self.numbers = Numbers(db, clock)
        self.watch = watch
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
