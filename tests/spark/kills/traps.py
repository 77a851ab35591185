"""One fault, set and sprung: the hook stops a process at a step, and the fault happens there."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tests.spark.cluster import until
from tests.spark.kills import faults
from tests.spark.kills.faults import Fault
from tests.spark.kills.programs import Program
from tests.spark.kills.world import Driver, World, is_running

# How closely Spark's files are watched, in seconds, and for how many polls in a row.
_LOOK, _LOOKS = 0.001, 60

# Seconds in which a task that was left behind must be through, or found dead.
_LATE = 60.0


class Trap:
    """A fault, set for the program that runs."""

    def __init__(self, world: World, fault: Fault, program: Program) -> None:
        self._world, self.fault, self._program = world, fault, program
        self.happened = False
        self._acted = False
        self._due: float | None = None
        self._id = f"{program.queue}-{secrets.token_hex(4)}"
        self._plan = world.traps / "plan.json"
        self._first_file = program.file(fault.name)
        act = {faults.FAILURE: fault.how}.get(fault.kind, "note" if fault.name == "*" else "wait")
        plan = {
            "id": self._id,
            "name": fault.name,
            "when": fault.when,
            "at": fault.at,
            "act": act,
            "all": fault.kind == faults.SPECULATION,
        }
        self._plan.unlink(missing_ok=True)
        if not fault.by_files:
            unfinished = self._plan.with_name(".plan")
            unfinished.write_text(json.dumps(plan))
            unfinished.rename(self._plan)

    def remove(self) -> None:
        """Set nothing, and let all processes continue; return when the stopped one is through, or dead."""
        self._let_go()
        if self.fault.kind == faults.CUT:
            self._world.proxy(self._kind).forward()
        if self.fault.kind == faults.SPECULATION and (caught := self._arrival(self.fault.at)):
            through = self._world.traps / f"{self._id}.through"
            until(lambda: through.exists() or not is_running(caught["pid"]), _LATE, lambda: f"{caught} does not continue")
        self._plan.unlink(missing_ok=True)

    def spring(self, driver: Driver) -> None:
        """Do it, if a process is at the step."""
        if self.fault.by_files:
            if not self.happened:
                self._watch(driver)
            return
        caught = self._arrival(self.fault.at)
        if caught is None or self.happened:
            return
        if self._acted:
            proxy = self._world.proxy(self._kind)
            # Once the statement has come, its connection is reset with the reply.
            self.happened = proxy.wait_swallowed(0.0 if proxy.armed is not None else PATIENCE)
            return
        if self.fault.delay:
            if self._due is None:
                self._due = time.monotonic() + self.fault.delay
            if time.monotonic() < self._due:
                return
        getattr(self, f"_{self.fault.kind}")(driver, caught)

    @property
    def _kind(self) -> str:
        return self._program.round.database

    def _arrival(self, number: int) -> dict[str, Any] | None:
        try:
            return json.loads((self._world.traps / f"{self._id}.{number}").read_text())
        except FileNotFoundError:
            return None

    def _let_go(self) -> None:
        (self._world.traps / f"{self._id}.go").touch()

    def _done(self) -> None:
        self._acted = self.happened = True

    def _failure(self, driver: Driver, caught: dict[str, Any]) -> None:
        self._done()  # the hook has seen to it

    def _driver(self, driver: Driver, caught: dict[str, Any]) -> None:
        driver.kill()
        if self.fault.name != "*":
            _kill(caught["pid"])
        self._done()

    def _executor(self, driver: Driver, caught: dict[str, Any]) -> None:
        if self.fault.name == "*":
            alive = self._world.cluster.executors()
            if not alive:
                return
            executor = random.choice(alive)
        else:
            executor = self._world.cluster.python_workers()[caught["pid"]]
        self._world.cluster.kill_executor(executor)
        self._done()

    def _database(self, driver: Driver, caught: dict[str, Any]) -> None:
        server = self._world.server(self._kind)
        server.kill()
        server.start()
        self._done()
        self._let_go()

    def _cut(self, driver: Driver, caught: dict[str, Any]) -> None:
        proxy = self._world.proxy(self._kind)
        if self.fault.how == "answer":
            proxy.swallow("")  # of whatever statement comes next
            self._acted = True
        elif proxy.cut():
            self._done()
        else:
            return  # there was no connection at this moment
        self._let_go()

    def _speculation(self, driver: Driver, caught: dict[str, Any]) -> None:
        number = self.fault.at
        while (other := self._arrival(number := number + 1)) is not None:
            if other["partition"] == caught["partition"] and other["attempt"] != caught["attempt"]:
                self._done()  # it stays where it is until the program has ended
                return

    def _watch(self, driver: Driver) -> None:
        """Kill the driver between two of Spark's files: stop it when the first is there, and check that the second is not."""
        for _ in range(_LOOKS):
            newest = self._program.file(self.fault.name)
            if newest >= self._first_file + self.fault.at and newest > self._program.file(self.fault.when):
                driver.freeze()
                if newest > self._program.file(self.fault.when):
                    driver.kill()
                    self._done()
                    return
                driver.thaw()
            time.sleep(_LOOK)


def _kill(pid: int) -> None:
    """A process that waits in the hook; its parents are dead, and it was most likely asked to end."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def clear(folder: Path) -> None:
    """Remove the notes of traps that are over."""
    for path in folder.iterdir():
        path.unlink(missing_ok=True)
