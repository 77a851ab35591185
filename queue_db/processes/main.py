"""The main program of a handler's process: it receives calls, runs the handlers, and sends back their results.

The parent (:mod:`queue_db.processes.pool`) starts it as a fresh interpreter and has the other end of a pipe. Messages have
plain values, so that each can be unpickled; objects of users' classes are pickled inside of them.
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
from functools import reduce
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from queue_db import arguments
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.leased_job import JobData, LeasedJob
from queue_db.model import ClaimedRow, ProgressReport
from queue_db.outcomes import checked
from queue_db.processes.children import ParentPipe
from queue_db.store.schema import NOTE_LENGTH


class Reference(NamedTuple):
    """The name by which another process imports a function."""

    module: str
    name: str


class Call(NamedTuple):
    """A request to call a function. None in its place is the request to end."""

    function: Reference
    job: bytes  #: a pickled JobSnapshot


class Begun(NamedTuple):
    """The function is about to be called."""


class Logged(NamedTuple):
    """A log record."""

    record: bytes  #: pickled: the attributes of the record, its message and traceback as text


class Returned(NamedTuple):
    """The function has returned."""

    outcome: bytes  #: pickled; None if the result cannot be pickled
    problem: str  #: why the result cannot be pickled; empty if it can


class Raised(NamedTuple):
    """The function has raised, or could not be called."""

    error: bytes | None  #: pickled; None: it cannot be pickled
    name: str  #: the name of its class
    text: str
    trace: str


class JobSnapshot(JobData):
    """The data of a :class:`~queue_db.LeasedJob` when its handler was called, without its verbs.

    The return value of the handler settles the job. :attr:`fence` has its value from the start: extensions of the lease raise it.
    """

    __slots__ = ("payload", "send")

    def __init__(self, row: ClaimedRow, queue: str, payload: Any) -> None:
        super().__init__(row, queue)
        #: The payload; if the handler has a schema, what the schema made of it.
        self.payload = payload
        #: Sends progress to the worker; None: there is no worker.
        self.send: Callable[[ProgressReport], None] | None = None

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Report how far the work is, as :meth:`queue_db.LeasedJob.progress` does.

        :param fraction: 0 to 1.
        :param note: a short text, cut at 200 characters.
        """
        report = ProgressReport(arguments.fraction("fraction", fraction), arguments.text("note", note, NOTE_LENGTH))
        if self.send is not None:
            self.send(report)

    @classmethod
    def of(cls, job: LeasedJob) -> Self:
        """The job as it is now."""
        return cls(job.snapshot_row(), job.queue, job.payload)


Answer = Begun | ProgressReport | Logged | Returned | Raised


def reference_of(function: Any) -> Reference:
    """The name by which another process can import this function.

    :raises ArgumentError: there is no such name, or no way to end processes with all that they have started.
    """
    if not hasattr(os, "killpg"):
        raise ArgumentError("executor='process' needs a POSIX system")
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    fix = "define it at the top of a module that can be imported"
    if not (inspect.isfunction(function) or inspect.isbuiltin(function)) or not module or not name:
        raise ArgumentError(f"executor='process' with {function!r}: another process finds only functions of modules; {fix}")
    if "<" in name:
        raise ArgumentError(f"executor='process' with {module}.{name}: another process cannot import it by this name; {fix}")
    if module == "__main__":
        raise ArgumentError(f"executor='process' with {name} of the main program, which another process cannot import; {fix}")
    try:
        module_spec = find_spec(module)
    except (ImportError, ValueError):
        module_spec = None
    if module_spec is None:
        raise ArgumentError(f"executor='process' with {module}.{name}: no module {module!r} can be imported; {fix}")
    return Reference(module, name)


def main(level: int) -> None:
    """Call functions for the parent until it asks for the end or dies.

    :param level: records below this level are not sent to the parent.
    """
    parent = ParentPipe.from_environment(os.environ)
    if parent is None:
        raise ConfigurationError("the process of a handler has no pipe to its worker")
    process = _HandlerMain(parent)
    logging.getLogger().addHandler(_ParentLogHandler(process.send))
    logging.getLogger().setLevel(level)
    process.run()


class _HandlerMain:
    def __init__(self, parent: ParentPipe) -> None:
        self._parent = parent
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._ending = threading.Event()
        self._working = False
        self._main = threading.get_ident()

    def run(self) -> None:
        # Ctrl-C or a service manager may signal every process, but the parent decides when this one ends. The signals are not
        # ignored, because programs that a handler starts would inherit that.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        self._parent.listen(self._received, _parent_died)
        while (call := self._calls.get()) is not None:
            self._working = True
            if self._ending.is_set():
                return
            answer = _answer(call, self.send)
            self._working = False
            if self._ending.is_set():
                return
            self.send(answer)

    def send(self, answer: Answer) -> None:
        """Send an answer to the parent, from any thread."""
        self._parent.send(pickle.dumps(answer))

    def _on_signal(self, number: int, frame: object) -> None:
        if self._ending.is_set() and self._working:
            raise SystemExit

    def _received(self, message: bytes) -> None:
        call: Call | None = pickle.loads(message)  # noqa: S301 - from our parent
        if call is None:
            self._ending.set()
        self._calls.put(call)
        if self._ending.is_set():
            # The handler sees SystemExit, also in a call that blocks.
            signal.pthread_kill(self._main, signal.SIGTERM)


def _parent_died() -> None:
    # The results of this process do not count any more. The group includes what its handler has started.
    os.killpg(0, signal.SIGKILL)


class _ParentLogHandler(logging.Handler):
    """Sends log records to the parent: logging is configured there."""

    def __init__(self, send: Callable[[Answer], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = vars(record) | {"msg": record.getMessage(), "args": (), "exc_info": None}
            if record.exc_info:
                fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
            self._send(Logged(pickle.dumps(fields)))
        except Exception:  # noqa: BLE001 - a value in ``extra`` cannot be pickled
            self.handleError(record)


def _answer(call: Call, send: Callable[[Answer], None]) -> Answer:
    try:
        job = pickle.loads(call.job)  # noqa: S301 - from our parent
        module: Any = importlib.import_module(call.function.module)
        function = reduce(getattr, call.function.name.split("."), module)
        send(Begun())
        job.send = send
        outcome = checked(function(job))
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises fails its job only
        return _raised(error)
    try:
        pickled = pickle.dumps(outcome)
        pickle.loads(pickled)  # noqa: S301 - our own
    except Exception as error:  # noqa: BLE001 - its classes may raise anything
        return Returned(pickle.dumps(None), f"{type(error).__name__}: {error}")
    return Returned(pickled, "")


def _raised(error: BaseException) -> Raised:
    within = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without the frame of _answer
    trace = "".join(traceback.format_exception(type(error), error, within))
    pickled: bytes | None
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its classes may raise anything
        pickled = None
    return Raised(pickled, type(error).__name__, str(error), trace)
