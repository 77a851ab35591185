"""The processes of handlers, seen from the worker: started when they are needed, used again, and ended in good time.

A process works for one thread at a time, which sends it the job and waits. They are fresh interpreters, not forks of this one,
whose threads hold locks; and not those of ``multiprocessing``, which run the main program again and leave a tracker behind.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Pipe, wait
from typing import Any

from queue_db.errors import HandlerProcessError
from queue_db.leased_job import LeasedJob
from queue_db.model import Said
from queue_db.worker.child import Answer, Call, Logged, Raised, Returned
from queue_db.worker.handlers import Handling, late
from queue_db.worker.logs import about
from queue_db.worker.snapshot import JobSnapshot
from queue_db.worker.tether import NUMBER

log = logging.getLogger("queue_db.worker")

#: Seconds that a process may take to start and to import the handler's module; only then a handler's timeout begins.
START = 120.0

# Seconds: from asking a process to end to killing it; and how long to wait for its end then.
_TERMINATE = 2.0
_KILL = 5.0

# Seconds between two looks whether a process lives: mostly its pipe tells, but what it has started may keep that open.
_LOOK = 1.0

_PROGRAM = (
    "import json, sys; start = json.loads(sys.argv.pop()); sys.path[:] = start.pop('path'); "
    "from queue_db.worker.child import main; main(**start)"
)

_END = pickle.dumps(None)


class TracebackThere(Exception):  # noqa: N818 - it is the cause of an error, and stands in its traceback
    """What the process of a handler says about an exception."""


class _DeadBefore(Exception):  # noqa: N818 - nothing went wrong for the handler
    """The process had ended before it was asked to do anything."""


class Children:
    """The processes of one run of a worker: never more than there are calls at once."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._busy: dict[LeasedJob, _Child] = {}
        self._closed = False
        self._lock = threading.Lock()

    def call(self, handling: Handling, job: LeasedJob) -> Any:
        """Call the handler in a process; return what it returns, and raise what it raises.

        :raises HandlerProcessError: the process died, or the job cannot be sent to it.
        :raises TimeoutError: the handler's time was over, and its process has been ended.
        """
        snapshot = JobSnapshot.of(job)
        try:
            message = pickle.dumps(Call(handling.apart, pickle.dumps(snapshot)))  # type: ignore[arg-type]
        except Exception as error:
            raise HandlerProcessError(f"the job cannot be sent to a process: {type(error).__name__}: {error}") from error
        while True:
            child = self._take(job)
            try:
                answer = child.call(message, handling, job)
            except _DeadBefore:
                continue
            except BaseException:
                child.unwanted = True  # whatever it is at, its answer must not come to another job
                raise
            finally:
                self._put_back(job, child)
            return _opened(answer, job)

    def cancel(self, job: LeasedJob) -> None:
        """Let the process that works on this job end, without waiting for it."""
        with self._lock:  # a moment later it may work on another job
            child = self._busy.get(job)
            if child is not None:
                child.call_off()

    def close(self) -> None:
        """End all processes, also those that work; return when they have ended."""
        with self._lock:
            self._closed = True
            idle, busy = self._idle, list(self._busy.values())
            self._idle = []
        for child in busy:
            child.call_off()  # all of them before the first is waited for
        for child in idle:
            child.ask_to_end()
        for child in idle:
            child.end()
        for child in busy:
            if not child.ended.wait(_TERMINATE + _KILL):
                child.kill()

    def _take(self, job: LeasedJob) -> _Child:
        with self._lock:
            if self._closed:
                raise HandlerProcessError("the worker is ending: no process for this handler")
            child = self._idle.pop() if self._idle else _Child()
            self._busy[job] = child
        # Whoever gives the job up says so first, and then looks for its process: one of us two sees the other.
        if job.lost.is_set():
            child.call_off()
        return child

    def _put_back(self, job: LeasedJob, child: _Child) -> None:
        with self._lock:
            del self._busy[job]
            if not (self._closed or child.unwanted or child.ended.is_set()):
                self._idle.append(child)
                return
        if not child.ended.is_set():
            child.end()


class _Child:
    """One process. Its methods are the calling thread's, save where they say otherwise."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        # So that another thread can end the wait for an answer.
        self._called_off, self._call_off = Pipe(duplex=False)
        with theirs:
            start = {"path": sys.path, "pipe": theirs.fileno(), "level": logging.getLogger().level}
            # A session of its own: Ctrl-C does not reach it, and it is ended together with what it has started.
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-c", _PROGRAM, json.dumps(start)],
                # It works on no queue: a module that it imports must not serve the worker's metrics a second time.
                env={name: value for name, value in os.environ.items() if name != NUMBER},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._used = False
        self.unwanted = False
        self.ended = threading.Event()
        log.debug("process %d for handlers", self._process.pid)

    def call(self, message: bytes, handling: Handling, job: LeasedJob) -> Returned | Raised:
        """Send a call and wait for its answer; after an exception the process has ended."""
        with suppress(OSError):  # it is dead, as its pipe will tell
            self._pipe.send_bytes(message)
        until = time.monotonic() + START
        begun = False
        while True:
            try:
                answer = self._answer(until)
            except (EOFError, OSError):
                self.kill()
                if self._used and not begun:
                    raise _DeadBefore from None
                raise HandlerProcessError(f"the process of this handler ended with {_how(self._process.returncode)}") from None
            if isinstance(answer, Returned | Raised):
                self._used = True
                return answer
            if isinstance(answer, Said | Logged):
                if isinstance(answer, Said):
                    job.progress(*answer)
                else:
                    _log(answer, job)
                if time.monotonic() < until:
                    continue
                answer = None  # it talks without end
            if answer is None:
                self.end()
                if begun:
                    raise late(handling)
                raise HandlerProcessError(f"the process of this handler has not begun within {START:g} s")
            begun = True
            until = math.inf if handling.timeout is None else time.monotonic() + handling.timeout

    def _answer(self, until: float) -> Answer | None:
        """The next one; None: not by then.

        :raises EOFError, OSError: there will be none.
        :raises HandlerProcessError: it was called off.
        """
        while True:
            left = until - time.monotonic()
            ready = wait([self._pipe, self._called_off], max(0.0, min(left, _LOOK)))
            if self._called_off in ready:
                self.end()
                raise HandlerProcessError("the process of this handler was ended: its job was given up")
            if ready:
                answer: Answer = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 - from our child
                return answer
            if left <= 0:
                return None
            if self._process.poll() is not None:
                raise EOFError

    def call_off(self) -> None:
        """Let :meth:`call` end the process, or whoever has it next. From any thread."""
        self.unwanted = True
        with suppress(OSError):
            self._call_off.send_bytes(b"")

    def ask_to_end(self) -> None:
        """A handler sees SystemExit; a process without one ends."""
        with suppress(OSError):
            self._pipe.send_bytes(_END)

    def end(self) -> None:
        """Ask it to end, and kill it if it does not; return when it has ended."""
        self.ask_to_end()
        until = time.monotonic() + _TERMINATE
        with suppress(EOFError, OSError):
            while (left := until - time.monotonic()) > 0 and self._pipe.poll(left):
                self._pipe.recv_bytes()
        self.kill()

    def kill(self) -> None:
        """End it and what it has started. From any thread."""
        # Before it is waited for, while its number is still its own, or that of a group in which somebody keeps its pipe open. To a
        # process that has ended already it does nothing.
        if not self.ended.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(_KILL)
        except subprocess.TimeoutExpired:
            log.error("process %d of a handler does not end", self._process.pid)  # noqa: TRY400 - where it hangs, nobody knows
        self.ended.set()


def _log(answer: Logged, job: LeasedJob) -> None:
    """Write here what was logged there."""
    with suppress(Exception):  # extra fields of classes that are not here
        record = logging.makeLogRecord(about(job) | pickle.loads(answer.record))  # noqa: S301 - from our child
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)


def _opened(answer: Returned | Raised, job: LeasedJob) -> Any:
    """What the handler returned; or raise what it raised."""
    if isinstance(answer, Returned):
        problem = answer.problem
        if not problem:
            try:
                return pickle.loads(answer.outcome)  # noqa: S301 - from our child
            except Exception as error:  # noqa: BLE001 - a user's class
                problem = f"{type(error).__name__}: {error}"
        # The work is done: to do it again would not make its result any better.
        log.warning(
            "%r: the result cannot be brought back from its process and is taken for None: %s", job, problem, extra=about(job)
        )
        return None
    raise _error(answer) from TracebackThere(f"\n{answer.trace}")


def _error(answer: Raised) -> BaseException:
    with suppress(Exception):
        if answer.error is not None:
            error: BaseException = pickle.loads(answer.error)  # noqa: S301 - from our child
            return error
    # It looks the same where errors are shown.
    stand_in: BaseException = type(answer.name, (HandlerProcessError,), {})(answer.text)
    return stand_in


def _how(status: int | None) -> str:
    if status is None or status >= 0:
        return f"status {status}"
    with suppress(ValueError):
        return f"signal {-status} ({signal.Signals(-status).name})"
    return f"signal {-status}"
