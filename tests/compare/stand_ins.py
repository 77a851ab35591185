"""Rows for tests of the laboratory itself. Some need no database: their jobs are numbers, dealt out beforehand.

They are sent to worker processes, so they live in a module that those can import.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from queue_db.compare.contestant import Desk, Place
from queue_db.compare.history import Race
from queue_db.errors import ArgumentError

#: For rows that need no database.
NOWHERE = Place(url="sqlite://", schema=None, workers=2)


@dataclass(frozen=True)
class Dealt:
    """Every worker has its own jobs: ``hands[number]``."""

    hands: tuple[tuple[int, ...], ...] = ()
    name: str = "dealt"
    family: str = field(default="peer", init=False)
    batch: int = field(default=1, init=False)
    claim: str = field(default="dealt out beforehand", init=False)
    removal: str = field(default="none", init=False)
    index: str = field(default="none", init=False)
    pick: str | None = field(default=None, init=False)

    def window(self, workers: int) -> float | None:
        return None

    def configuration(self) -> dict[str, str]:
        return {"deck": "marked"}

    def refused(self, place: Place) -> str | None:
        return None

    def set_up(self, place: Place, jobs: int) -> None:
        pass

    def work(self, place: Place, desk: Desk) -> None:
        desk.ready()
        for job in self.hand(desk):
            self.play(desk, job)
        self.wait(desk)

    def hand(self, desk: Desk) -> tuple[int, ...]:
        return self.hands[desk.number] if desk.number < len(self.hands) else ()

    def play(self, desk: Desk, job: int) -> None:
        desk.claimed(time.monotonic(), [job])
        desk.left(1)

    def wait(self, desk: Desk) -> None:
        """Until the others have played theirs."""
        while not desk.over:
            desk.found_nothing()

    def tear_down(self, place: Place) -> None:
        pass


@dataclass(frozen=True)
class Announced(Dealt):
    """Workers leave a file behind when they are about to be ready, and another when they have been let go."""

    folder: Path = Path()

    def work(self, place: Place, desk: Desk) -> None:
        (self.folder / f"ready {desk.number}").touch()
        desk.notes.statements += 1000
        desk.ready()
        (self.folder / f"off {desk.number}").touch()
        for job in self.hand(desk):
            self.play(desk, job)
        self.wait(desk)


@dataclass(frozen=True)
class Failing(Dealt):
    """Worker 0 fails: before it is ready, or at its first job."""

    prepared: bool = True
    known: bool = False

    def work(self, place: Place, desk: Desk) -> None:
        if not self.prepared and desk.number == 0:
            self.fail()
        super().work(place, desk)

    def play(self, desk: Desk, job: int) -> None:
        if desk.number == 0:
            self.fail()
        super().play(desk, job)

    def fail(self) -> None:
        if self.known:
            raise ArgumentError("the deck is incomplete")
        raise RuntimeError("a card fell under the table of postgresql://me:hunter2@host/d")


@dataclass(frozen=True)
class Vanishing(Dealt):
    """A worker process that is gone from one moment to the next."""

    def work(self, place: Place, desk: Desk) -> None:
        desk.ready()
        os._exit(1)


@dataclass(frozen=True)
class Scribbling(Dealt):
    """Fills in every field of the notes."""

    def work(self, place: Place, desk: Desk) -> None:
        desk.ready()
        notes, number = desk.notes, desk.number
        notes.latencies, notes.races = [0.5, 0.25], [Race(1.0, 2.0, 2.5, True), Race(1.5, 3.0, 3.5, False)]
        notes.rounds, notes.candidates, notes.won, notes.empty = 11 + number, 12, 13, 14
        notes.lost, notes.statements, notes.faults = 15, 16, Counter({"deadlock": 3})
        notes.window = 17.5
        notes.jobs, notes.times = [3, 1, -1], [4.0, 5.0, 6.0]
        desk.tally.add(number, left=1)
        notes.left, notes.added, notes.last = 1, 0, 7.0
        while not desk.over:
            time.sleep(0.001)


@dataclass(frozen=True)
class Cloning(Dealt):
    """Each job enqueues another one with the probability of the run; clones go to whoever made them."""

    def play(self, desk: Desk, job: int) -> None:
        coming = [job]
        while coming:
            desk.claimed(time.monotonic(), [coming.pop()])
            desk.copy(1, lambda count: coming.extend([-1] * count))
            desk.left(1)
