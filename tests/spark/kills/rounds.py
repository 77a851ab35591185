"""One round: the order, the faults, the order again to whoever comes after the dead, and the count."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from queue_db.errors import TransientStorageError
from tests.spark.kills import faults
from tests.spark.kills.faults import Fault, Round
from tests.spark.kills.programs import PROGRAMS, Count, Drain, Program
from tests.spark.kills.traps import Trap, clear
from tests.spark.kills.world import Driver, World

ROUND_LIMIT = 900.0
_TICK = 0.02
_LONGEST = 600


@dataclass
class Outcome:
    """What came of a round."""

    round: Round
    count: Count | None = None  #: None: it did not come to an end
    happened: list[str] = field(default_factory=list)  #: faults
    drivers: int = 0  #: were given the order
    errors: list[str] = field(default_factory=list)  #: that the program ended with
    worked_again: int = 0
    complaints: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.count is not None and not (self.count.lost or self.count.repeated or self.complaints)

    def __str__(self) -> str:
        count, one = self.count, self.round
        came = "not brought to an end" if count is None else f"{count.jobs} jobs, {count.lost} lost, {count.repeated} repeated"
        again = f", {self.worked_again} worked on again" if self.worked_again else ""
        ended = f", ended with an error {len(self.errors)} times" if self.errors else ""
        text = (
            f"{'ok ' if self.good else 'BAD'} {one.number:3} {one}: {came}{again}; "
            f"{len(self.happened)} of {len(one.faults)} happened, {self.drivers} orders{ended}, {self.seconds:.0f} s"
        )
        return "\n    ".join([text, *map(_short, self.errors), *self.complaints])


def _short(error: str) -> str:
    """An error on one line, from its end, where Spark names the cause."""
    words = " ".join(error.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST // 3]} … {words[-_LONGEST * 2 // 3 :]}"


def play(world: World, one: Round) -> Outcome:
    """Play a round to its end, and count."""
    began = time.monotonic()
    outcome = Outcome(one)
    kinds = {fault.kind for fault in one.faults}
    url = world.url(one.database)
    if faults.CUT in kinds:
        url = world.proxy(one.database).url(url)
    program = PROGRAMS[one.program](world, one, world.folder / f"round-{one.number}", url)
    try:
        answer = _run(world, program, outcome)
        if answer is not None:
            outcome.count = Count.of(program.jobs, program.found(answer))
            outcome.complaints += program.complaints(len(outcome.happened))
            if isinstance(program, Drain):
                outcome.worked_again = program.worked_again
        if outcome.good:
            program.tidy()
    finally:
        clear(world.traps)
        outcome.seconds = time.monotonic() - began
    return outcome


def _run(world: World, program: Program, outcome: Outcome) -> dict[str, Any] | None:
    """Give the order until a driver has carried it out; return the answer."""
    one = program.round
    traps = _Traps(world, program)
    limit = time.monotonic() + ROUND_LIMIT
    try:
        while True:
            driver = world.driver(one.mode(outcome.drivers))
            happened = len(traps.happened)
            traps.set()
            outcome.drivers += 1
            driver.order(program.order())
            answer = _attend(driver, program, traps, limit)
            new = traps.happened[happened:]
            if answer is not None and "error" not in answer:
                # An order with an effect once may be given as often as there are faults to come.
                if program.once and traps.waiting and outcome.drivers <= len(one.faults) + 1:
                    continue
                return answer
            if answer is not None:
                outcome.errors.append(answer["error"])
                if not any(fault.may_end(one.program) for fault in new):
                    outcome.complaints.append(f"the program failed by itself: {answer['error']}")
                    return None
            elif driver.alive:
                outcome.complaints.append(f"the program does not end; its driver wrote:\n{driver.log()}")
                driver.kill()
                return None
            elif not any(fault.kind == faults.DRIVER for fault in new):
                outcome.complaints.append(f"the driver ended by itself; it wrote:\n{driver.log()}")
                return None
    finally:
        traps.remove()
        outcome.happened = [str(fault) for fault in traps.happened]


class _Traps:
    """The faults of a round, one set at a time."""

    def __init__(self, world: World, program: Program) -> None:
        self._world, self._program = world, program
        self._left = list(program.round.faults)
        self.happened: list[Fault] = []
        self._trap: Trap | None = None

    @property
    def waiting(self) -> bool:
        """Whether one has still to happen."""
        return bool(self._left) or (self._trap is not None and not self._trap.happened)

    def set(self) -> None:
        """Set the next one, if the one before has happened."""
        if (self._trap is None or self._trap.happened) and self._left:
            self._trap = Trap(self._world, self._left.pop(0), self._program)

    def spring(self, driver: Driver) -> None:
        """Let the one that is set happen, if it is time, and set the next."""
        if self._trap is None or self._trap.happened:
            return
        self._trap.spring(driver)
        if self._trap.happened:
            self.happened.append(self._trap.fault)
            if self._left and driver.alive:
                self.set()

    def remove(self) -> None:
        """Set nothing."""
        if self._trap is not None:
            self._trap.remove()


def _attend(driver: Driver, program: Program, traps: _Traps, limit: float) -> dict[str, Any] | None:
    """Wait for the answer while jobs come in and faults happen; None if the driver is dead or does not come to an end."""
    while time.monotonic() < limit:
        # On SQLite whoever stands still in a transaction keeps all others out: more jobs come when that one goes on.
        with suppress(TransientStorageError):
            program.feed(traps.waiting)
        # In this order: a fault that came before the answer is not overlooked.
        answer = driver.answer()
        traps.spring(driver)
        if answer is not None or not driver.alive:
            return answer
        time.sleep(_TICK)
    return None
