"""Raises an exception at a chosen line of the package, as a signal handler, Ctrl-C or a cancelled task may."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import queue_db
from queue_db.database.connections import Connections

_FOLDER = str(Path(queue_db.__file__).parent)
_WITHIN = (f"{_FOLDER}/", contextlib.__file__)

_TAKE, _PUT_BACK = Connections.take.__code__, Connections.put_back.__code__

#: Most times that one place of a path is interrupted: the first ones and the last.
_TIMES = 2


class InterruptError(Exception):
    """What a signal handler raises."""


class Place(NamedTuple):
    """A moment on the path of a verb: before a line, at the entry of a function, or at its return."""

    code: CodeType
    event: str
    line: int
    time: int  #: how often the same had happened before, from 0

    def __str__(self) -> str:
        path = self.code.co_filename.rpartition("/queue_db/")[2]
        return f"{path}:{self.line} {self.code.co_qualname} ({self.event}, time {self.time})"


class _Tracing:
    """Calls ``note`` at each place that the current thread passes."""

    def __init__(self, note: Callable[[Place], None]) -> None:
        self._note = note
        self._passed: Counter[tuple[CodeType, str, int]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> _Tracing | None:
        code = frame.f_code
        if not code.co_filename.startswith(_WITHIN):
            return None
        passed = (code, event, frame.f_lineno)
        time = self._passed[passed]
        self._passed[passed] += 1
        if event == "call":
            handled = True
        elif event == "line":
            # The line of a with statement comes again before its end, where no signal is handled: a lock is released there.
            handled = frame.f_lasti == _begins(code, frame.f_lineno)
        else:
            # Nor when a generator yields.
            handled = event == "return" and not code.co_flags & inspect.CO_GENERATOR
        if handled:
            self._note(Place(*passed, time))
        return self


@cache
def _begins(code: CodeType, line: int) -> int:
    """Where the first instruction of a line is."""
    return min(start for start, _, at in code.co_lines() if at == line)


@contextmanager
def _traced(note: Callable[[Place], None]) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(_Tracing(note))
    try:
        yield
    finally:
        sys.settrace(before)


def places_of(verb: Callable[[], object], *, whole: bool = False) -> list[Place]:
    """The places that ``verb`` passes, in their order.

    :param whole: also before it has a connection and after it has given it back.
    """
    passed: list[Place] = []
    with _traced(passed.append):
        verb()
    taken = [at for at, place in enumerate(passed) if place.code is _TAKE]
    returned = [at for at, place in enumerate(passed) if place.code is _PUT_BACK]
    if not whole:
        passed = passed[taken[0] : returned[-1] + 1]
    last = Counter((place.code, place.event, place.line) for place in passed)
    return [place for place in passed if place.time < _TIMES - 1 or place.time == last[place[:3]] - 1]


def interrupted(verb: Callable[[], object], place: Place, error: type[BaseException]) -> bool:
    """Call ``verb`` with ``error`` at ``place``; whether it raised anything. What it raised is freed."""

    def note(passed: Place) -> None:
        if passed == place:
            sys.settrace(None)
            raise error

    try:
        with _traced(note):
            verb()
    except BaseException:  # noqa: BLE001 - also what the library made of it
        return True
    return False


def called_within(verb: Callable[[], object], handler: Callable[[], object]) -> Iterator[tuple[Place, Callable[[], None]]]:
    """Each place that ``verb`` passes the first time, and a call of ``verb`` with ``handler`` called there, as a signal handler."""
    passed: list[Place] = []
    with _traced(passed.append):
        verb()
    for place in passed:
        if place.time == 0:
            yield place, partial(_calling, verb, place, handler)


def _calling(verb: Callable[[], object], place: Place, handler: Callable[[], object]) -> None:
    def note(passed: Place) -> None:
        if passed == place:
            sys.settrace(None)
            handler()

    with _traced(note):
        verb()
