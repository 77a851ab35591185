"""The process of a handler, seen from inside: what it is sent, what it answers, and when it ends.

The parent (:mod:`queue_db.worker.children`) starts it as a fresh interpreter and is at the other end of a pipe. The envelopes are
made of plain values, so that they can always be opened; what a user's classes are needed for is pickled inside of them.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from importlib.util import find_spec
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple

from queue_db.errors import ArgumentError
from queue_db.model import Said


class Reference(NamedTuple):
    """Where a function is found."""

    module: str
    name: str


class Call(NamedTuple):
    """Call this function. None instead of it: end."""

    function: Reference
    job: bytes  #: a pickled JobSnapshot


class Begun(NamedTuple):
    """The function is about to be called."""


class Logged(NamedTuple):
    """Something was logged."""

    record: bytes  #: pickled: the attributes of the record, with its text and its traceback written out


class Returned(NamedTuple):
    """It has returned."""

    outcome: bytes  #: pickled; of None if it cannot be …
    problem: str  #: … for this reason


class Raised(NamedTuple):
    """It has raised, or could not be called."""

    error: bytes | None  #: pickled; None: that cannot be done
    name: str  #: of its class
    text: str
    trace: str


Answer = Begun | Said | Logged | Returned | Raised


def reference_of(function: Any) -> Reference:
    """Where another process finds this function.

    :raises ArgumentError: nowhere.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    fix = "define it at the top of a module that can be imported"
    if not (inspect.isfunction(function) or inspect.isbuiltin(function)) or not module or not name:
        raise ArgumentError(f"executor='process' with {function!r}: another process finds only functions of modules; {fix}")
    if "<" in name:
        raise ArgumentError(f"executor='process' with {module}.{name}: another process cannot import it by this name; {fix}")
    if module == "__main__":
        raise ArgumentError(f"executor='process' with {name} of the main program, which another process cannot import; {fix}")
    try:
        found = find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise ArgumentError(f"executor='process' with {module}.{name}: no module {module!r} can be imported; {fix}")
    return Reference(module, name)


def main(pipe: int, level: int) -> None:
    """Answer calls from the pipe of this number until the parent says that it is enough, or is dead.

    :param level: what is logged below it goes nowhere.
    """
    child = _Child(Connection(pipe))
    logging.getLogger().addHandler(_ToTheParent(child.say))
    logging.getLogger().setLevel(level)
    child.run()


class _Child:
    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self._saying = threading.Lock()  # a handler's threads may all say how far it is
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._ending = threading.Event()
        self._working = False
        self._main = threading.get_ident()

    def run(self) -> None:
        # Ctrl-C and a service manager's SIGTERM may reach everybody: the parent decides. Not ignored, or programs that the handler
        # starts would ignore them too.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._heed)
        threading.Thread(target=self._listen, name="queue_db parent", daemon=True).start()
        while (call := self._calls.get()) is not None:
            self._working = True
            if self._ending.is_set():
                return
            answer = _answer(call, self.say)
            self._working = False
            if self._ending.is_set():
                return
            self.say(answer)

    def _heed(self, number: int, frame: object) -> None:
        if self._ending.is_set() and self._working:
            raise SystemExit

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                call: Call | None = pickle.loads(self._parent.recv_bytes())  # noqa: S301 - from our parent
                if call is None:
                    self._ending.set()
                self._calls.put(call)
                if self._ending.is_set():
                    # The handler sees SystemExit, also in a call that waits.
                    signal.pthread_kill(self._main, signal.SIGTERM)
        # The parent is dead: nothing that is done from here on counts.
        os.killpg(0, signal.SIGKILL)

    def say(self, answer: Answer) -> None:
        """Send it. From any thread."""
        with self._saying:
            self._parent.send_bytes(pickle.dumps(answer))


class _ToTheParent(logging.Handler):
    """Where logging is set up is where records are written."""

    def __init__(self, say: Callable[[Answer], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        try:
            written = vars(record) | {"msg": record.getMessage(), "args": (), "exc_info": None}
            if record.exc_info:
                written["exc_text"] = logging.Formatter().formatException(record.exc_info)
            self._say(Logged(pickle.dumps(written)))
        except Exception:  # noqa: BLE001 - what was given as extra cannot be pickled, or the parent is dead
            self.handleError(record)


def _answer(call: Call, say: Callable[[Answer], None]) -> Answer:
    try:
        job = pickle.loads(call.job)  # noqa: S301 - from our parent
        module: Any = importlib.import_module(call.function.module)
        function = reduce(getattr, call.function.name.split("."), module)
        say(Begun())
        outcome = function(replace(job, tell=say))
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's
        return _raised(error)
    try:
        pickled = pickle.dumps(outcome)
        pickle.loads(pickled)  # noqa: S301 - our own
    except Exception as error:  # noqa: BLE001 - its classes may raise anything
        return Returned(pickle.dumps(None), f"{type(error).__name__}: {error}")
    return Returned(pickled, "")


def _raised(error: BaseException) -> Raised:
    within = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without our own frame
    trace = "".join(traceback.format_exception(type(error), error, within))
    pickled: bytes | None
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its classes may raise anything
        pickled = None
    return Raised(pickled, type(error).__name__, str(error), trace)
