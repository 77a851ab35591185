"""Rows for tests of the laboratory itself. Some need no database: their jobs are numbers, dealt out beforehand.

They are sent to worker processes, so they live in a module that those can import.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from queue_db.compare.contestant import Target, WorkerContext
from queue_db.errors import ArgumentError

#: For rows that need no database.
NOWHERE = Target(url="sqlite://", schema=None, workers=2)


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

    def window(self, workers: int) -> float | None:
        return None

    def configuration(self) -> dict[str, str]:
        return {"deck": "marked"}

    def refused(self, target: Target) -> str | None:
        return None

    def set_up(self, target: Target, jobs: int) -> None:
        pass

    def work(self, target: Target, context: WorkerContext) -> None:
        context.wait_for_start()
        for job in self.hand(context):
            self.play(context, job)
        self.wait(context)

    def hand(self, context: WorkerContext) -> tuple[int, ...]:
        return self.hands[context.number] if context.number < len(self.hands) else ()

    def play(self, context: WorkerContext, job: int) -> None:
        context.record_claim(time.monotonic(), [job])
        context.record_removal(1)

    def wait(self, context: WorkerContext) -> None:
        """Until the others have played theirs."""
        while not context.over:
            context.record_empty_claim()

    def tear_down(self, target: Target) -> None:
        pass


@dataclass(frozen=True)
class Announced(Dealt):
    """Workers leave a file behind when they are about to be ready, and another when they have been let go."""

    folder: Path = Path()

    def work(self, target: Target, context: WorkerContext) -> None:
        (self.folder / f"ready {context.number}").touch()
        context.notes.statements += 1000
        context.wait_for_start()
        (self.folder / f"off {context.number}").touch()
        for job in self.hand(context):
            self.play(context, job)
        self.wait(context)


@dataclass(frozen=True)
class Failing(Dealt):
    """Worker 0 fails: before it is ready, or at its first job."""

    prepared: bool = True
    known: bool = False

    def work(self, target: Target, context: WorkerContext) -> None:
        if not self.prepared and context.number == 0:
            self.fail()
        super().work(target, context)

    def play(self, context: WorkerContext, job: int) -> None:
        if context.number == 0:
            self.fail()
        super().play(context, job)

    def fail(self) -> None:
        if self.known:
            raise ArgumentError("the deck is incomplete")
        raise RuntimeError("a card fell under the table of postgresql://me:hunter2@host/d")


@dataclass(frozen=True)
class Vanishing(Dealt):
    """A worker process that is gone from one moment to the next."""

    def work(self, target: Target, context: WorkerContext) -> None:
        context.wait_for_start()
        os._exit(1)


@dataclass(frozen=True)
class Scribbling(Dealt):
    """Fills in every field of the notes."""

    def work(self, target: Target, context: WorkerContext) -> None:
        context.wait_for_start()
        notes, number = context.notes, context.number
        notes.latencies = [0.5, 0.25]
        notes.rounds, notes.candidates, notes.won, notes.empty = 11 + number, 12, 13, 14
        notes.lost, notes.statements, notes.faults = 15, 16, Counter({"deadlock": 3})
        notes.window = 17.5
        notes.jobs, notes.times = [3, 1, -1], [4.0, 5.0, 6.0]
        context.tally.add(number, left=1)
        notes.left, notes.added, notes.last = 1, 0, 7.0
        while not context.over:
            time.sleep(0.001)


@dataclass(frozen=True)
class Cloning(Dealt):
    """Each job enqueues another one with the probability of the run; clones go to the worker that made them."""

    def play(self, context: WorkerContext, job: int) -> None:
        coming = [job]
        while coming:
            context.record_claim(time.monotonic(), [coming.pop()])
            context.enqueue_clones(1, lambda count: coming.extend([-1] * count))
            context.record_removal(1)
