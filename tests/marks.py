"""The low-water marks of a queue as in a new process."""

from __future__ import annotations

import time
from collections.abc import Callable

from queue_db.core import Core
from queue_db.store import LowWaterMarks


def begin_anew(core: Core, queue: str, clock: Callable[[], float] = time.monotonic) -> LowWaterMarks:
    """Forget where the claims of ``queue`` start, and go on with this clock.

    The object stays the same: each :class:`~queue_db.Queue` keeps it.
    """
    marks = core.marks[queue]
    LowWaterMarks.__init__(marks, clock)
    return marks
