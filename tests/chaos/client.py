"""A client: a process that uses the public verbs, as applications do, and writes the log of what it saw."""

from __future__ import annotations

import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from queue_db import QueueDB, QueueDBError, StorageError
from tests.chaos import ledger
from tests.chaos.log import LogWriter

#: Mean seconds from the beginning of an operation to its interrupt.
INTERRUPTED_AFTER = 0.004


class Interrupted(Exception):
    """An exception of a signal handler: it may come at any line."""


class RolledBack(Exception):
    """The application gives its transaction up."""


@dataclass(frozen=True)
class Order:
    """What a client gets."""

    name: str
    role: str
    seed: int
    #: Of the database, on each node.
    urls: list[str]
    folder: str
    lease: float
    skew: float
    operations: int | None
    #: Mean seconds between two operations.
    pause: float
    broken: str = ""

    @property
    def url(self) -> str:
        """That with the addresses of all nodes."""
        return ledger.together(self.urls)


@dataclass
class Client:
    """A client at work."""

    order: Order
    log: LogWriter = field(init=False)
    db: QueueDB = field(init=False)
    stopping: threading.Event = field(default_factory=threading.Event)
    #: Operations that are left to interrupt.
    interrupts: int = 0
    _armed: bool = False

    def __post_init__(self) -> None:
        self.log = LogWriter(Path(self.order.folder), self.order.name)
        self.engine = ledger.engine_of(*self.order.urls)

    @property
    def name(self) -> str:
        return self.order.name

    def rng(self, *about: object) -> random.Random:
        """The same numbers in each run of the seed."""
        return random.Random(":".join(map(str, (self.order.seed, *about))))

    @property
    def working(self) -> bool:
        """Whether there is more to do, for a client that a round may give a number of operations."""
        limit = self.order.operations
        return not self.stopping.is_set() and (limit is None or self.log.number < limit)

    def pause(self) -> None:
        self.stopping.wait(random.uniform(0, 2 * self.order.pause))

    # --- operations -------------------------------------------------------------------------------------------------

    def do(
        self,
        operation: str,
        call: Callable[[], Any],
        shown: Callable[[Any], Any] = lambda result: result,
        *,
        interrupts: bool = True,
        **arguments: Any,
    ) -> Any:
        """Run an operation and log it; return its result, None if it failed or is in doubt.

        :param interrupts: an exception of a signal handler may arise in it. Not where the application's own connection is in use,
            which nobody would throw away then.
        """
        number = self.log.invoke(operation, **arguments)
        try:
            try:
                if self.interrupts and interrupts:
                    self.interrupts -= 1
                    self._armed = True
                    signal.setitimer(signal.ITIMER_REAL, random.expovariate(1 / INTERRUPTED_AFTER) + 1e-6)
                result = call()
            finally:
                self._armed = False
        except BaseException as error:
            self._armed = False
            outcome, strange = judge(error)
            more = {"strange": "".join(traceback.format_exception(error))} if strange else {}
            code = getattr(error, "sqlstate", None) or next(iter(getattr(getattr(error, "orig", None), "args", ())), None)
            self.log.end(number, outcome, error=f"{type(error).__name__}{f' {code}' if code else ''}: {error}"[:300], **more)
            if not isinstance(error, Exception | KeyboardInterrupt):
                raise
            return None
        self.log.end(number, "ok", shown(result))
        return result

    def disarm(self) -> None:
        """In a fork, which is not interrupted."""
        self._armed = False

    def interrupt_some(self, _number: int, _frame: FrameType | None) -> None:
        """Of the next operations, interrupt some."""
        self.interrupts = 10

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Raise within an operation."""
        if self._armed:
            self._armed = False
            raise random.choice([Interrupted, KeyboardInterrupt])


def judge(error: BaseException) -> tuple[str, bool]:
    """Whether an operation that raised this had no effect (``fail``) or may have had one; and whether the error is strange."""
    if isinstance(error, StorageError):
        return ("unknown" if error.outcome_unknown else "fail"), False
    if isinstance(error, QueueDBError | RolledBack):
        return "fail", False
    if isinstance(error, ledger.InDoubt | Interrupted | KeyboardInterrupt):
        return "unknown", False
    # An error of the application's own statement, whose transaction is rolled back.
    return ("fail", False) if isinstance(error, SQLAlchemyError) else ("unknown", True)
