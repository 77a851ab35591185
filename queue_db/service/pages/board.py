"""What the pages of one application share: the clock, numbers and findings that are read once for all who look."""

from __future__ import annotations

from fastapi import Request

from queue_db.db import QueueDB
from queue_db.service.live.kept import Clock
from queue_db.service.live.samples import Samples
from queue_db.service.pages.diagnosis import Watch
from queue_db.service.pages.numbers import Numbers


class Board:
    """The clock, numbers and findings of one database."""

    def __init__(self, db: QueueDB, clock: Clock, samples: Samples) -> None:
        self.clock = clock
        self.numbers = Numbers(db, clock)
        self.watch = Watch(db)
        self.samples = samples

    def forget(self) -> None:
        """Read numbers and findings again: something was changed here."""
        self.numbers.forget()
        self.watch.forget()


def board(request: Request) -> Board:
    """The board of this application."""
    found: Board = request.app.state.board
    found.samples.start()
    return found
