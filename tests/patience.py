"""How long a test waits for what must happen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from queue_db.concurrency.pauses import Pause

_T = TypeVar("_T")

#: Seconds after which a test that waits for something that never comes gives up. It only bounds a hang: no test that passes comes
#: near it, also on a busy machine.
PATIENCE = 120.0

#: Seconds, for a pause or a limit that no test waits for.
HOURS = 10_000.0


def wait_for(find: Callable[[], _T]) -> _T:
    """Call ``find`` every 10 ms until it returns something true; return that."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := find():
            return found
        threading.Event().wait(0.01)
    raise AssertionError("what the test waits for has not happened")


class UntilWoken(Pause):
    """Hours, until the reader is woken. From then on short ones: the publisher may be numbering the message."""

    woken = False

    def reset(self) -> None:
        self.woken = True
        super().reset()

    def next(self) -> float:
        return super().next() if self.woken else HOURS
