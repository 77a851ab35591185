"""The pool of ``executor="process"``: processes that call handlers, started on demand, reused, and stopped with the worker.

A process works for one thread at a time, which sends it a job and waits for the answer. The processes are fresh interpreters. Forks
of this one could inherit locks that its threads hold; the processes of ``multiprocessing`` run the main program again and leave a
tracker process behind.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Pipe, wait
from typing import Any

from queue_db.errors import HandlerProcessError
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport
from queue_db.processes.children import PROCESS_NUMBER, TERMINATE, PipedProcess
from queue_db.processes.main import Answer, Call, JobSnapshot, Logged, Raised, Returned
from queue_db.worker.completer import LostResult
from queue_db.worker.handlers import HandlerSpec, timeout_error
from queue_db.worker.interruptions import is_stopped
from queue_db.worker.logs import about
from queue_db.worker.resident import resident

log = logging.getLogger("queue_db.worker")

#: Seconds in which a process must start and import the handler's module. The handler's timeout begins afterwards.
START = 120.0

# Seconds for which the end of the pool waits for a busy process, which its own thread stops.
_CLOSE = 7.0

# Seconds between two checks whether a process lives. Usually the pipe shows its exit, but a grandchild may keep the pipe open.
_CHECK = 1.0

_PROGRAM = (
    "import json, sys; start = json.loads(sys.argv.pop()); sys.path[:] = start.pop('path'); "
    "from queue_db.processes.main import main; main(**start)"
)

_END = pickle.dumps(None)


class RemoteTraceback(Exception):  # noqa: N818 - the cause of an error, shown in its traceback
    """The traceback of an exception in the process of a handler."""


class _ExitedBefore(Exception):  # noqa: N818 - not an error of the handler
    """The process had exited before it got the call."""


class ProcessPool:
    """The processes of one run of a worker: at most as many as there are calls at once.

    :param max_memory: a process with more resident memory, in megabytes, is replaced after its call; None: none is.
    """

    def __init__(self, max_memory: float | None = None) -> None:
        self._max_memory = max_memory
        self._idle: list[_HandlerProcess] = []
        self._busy: dict[LeasedJob, _HandlerProcess] = {}
        self._closed = False
        self._lock = threading.Lock()

    def call(self, spec: HandlerSpec, job: LeasedJob) -> Any:
        """Call the handler in a process; return what it returns, and raise what it raises.

        :raises HandlerProcessError: the process died, or the job cannot be sent to it.
        :raises TimeoutError: the handler's timeout has passed, and its process has been stopped.
        """
        snapshot = JobSnapshot.of(job)
        try:
            message = pickle.dumps(Call(spec.apart, pickle.dumps(snapshot)))  # type: ignore[arg-type]
        except Exception as error:
            raise HandlerProcessError(f"the job cannot be sent to a process: {type(error).__name__}: {error}") from error
        while True:
            process = self._borrow(job)
            try:
                answer = process.call(message, spec, job)
            except _ExitedBefore:
                continue
            except BaseException:
                process.discarded = True  # it may still answer this call, and must not answer another
                raise
            finally:
                self._put_back(job, process)
            return _result(answer, job)

    def cancel(self, job: LeasedJob) -> None:
        """Have the process that works on this job stopped, without waiting for its end."""
        with self._lock:  # a moment later it may work on another job
            process = self._busy.get(job)
            if process is not None:
                process.discard()

    def close(self) -> None:
        """Stop all processes, also busy ones; return when they have exited."""
        with self._lock:
            self._closed = True
            idle, busy = self._idle, list(self._busy.values())
            self._idle = []
        for process in busy:
            process.discard()  # all of them before the wait for the first
        for process in idle:
            process.send(_END)
        for process in idle:
            process.end()
        for process in busy:
            if not process.killed.wait(_CLOSE):
                process.kill()

    def _borrow(self, job: LeasedJob) -> _HandlerProcess:
        with self._lock:
            if self._closed:
                raise HandlerProcessError("the worker is stopping: no process for this handler")
            process = self._idle.pop() if self._idle else _HandlerProcess()
            self._busy[job] = process
        # A thread that abandons the job sets ``lost`` before it looks for the process. This thread does the reverse. So at least
        # one of them discards the process.
        if job.lost.is_set():
            process.discard()
        return process

    def _put_back(self, job: LeasedJob, process: _HandlerProcess) -> None:
        if self._max_memory is not None and (resident(process.pid) or 0.0) > self._max_memory:
            log.info("replacing process %d for handlers: it has more than %g MB", process.pid, self._max_memory)
            process.discarded = True
        with self._lock:
            del self._busy[job]
            if not (self._closed or process.discarded or process.killed.is_set()):
                self._idle.append(process)
                return
        if not process.killed.is_set():
            process.end()


class _HandlerProcess(PipedProcess):
    """A process that calls handlers. Only the thread that has borrowed it calls :meth:`call` and :meth:`end`."""

    def __init__(self) -> None:
        start = {"path": sys.path, "level": logging.getLogger().level}
        super().__init__(
            [sys.executable, "-c", _PROGRAM, json.dumps(start)],
            # No process number, so that a module that it imports does not serve the metrics of the worker a second time.
            environment={name: value for name, value in os.environ.items() if name != PROCESS_NUMBER},
            stdin=subprocess.DEVNULL,
        )
        # With this pipe another thread ends the wait for an answer.
        self._interrupted, self._interrupt = Pipe(duplex=False)
        self._has_answered = False
        self.discarded = False
        log.debug("started process %d for handlers", self.pid)

    def call(self, message: bytes, spec: HandlerSpec, job: LeasedJob) -> Returned | Raised:
        """Send a call and wait for its answer; after an exception the process has exited."""
        self.send(message)
        until = time.monotonic() + START
        begun = False
        while True:
            try:
                answer = self._answer(until)
            except (EOFError, OSError):
                self.kill()
                if self._has_answered and not begun:
                    raise _ExitedBefore from None
                error = HandlerProcessError(f"the process of this handler died: {self.exit_text}")
                error.killed = is_stopped(self.poll())
                raise error from None
            if isinstance(answer, Returned | Raised):
                self._has_answered = True
                return answer
            if isinstance(answer, ProgressReport | Logged):
                if isinstance(answer, ProgressReport):
                    job.progress(*answer)
                else:
                    _log(answer, job)
                if time.monotonic() < until:
                    continue
                answer = None  # it reports without end
            if answer is None:
                self.end()
                if begun:
                    raise timeout_error(spec)
                raise HandlerProcessError(f"the process of this handler did not start within {START:g} s")
            begun = True
            until = math.inf if spec.timeout is None else time.monotonic() + spec.timeout

    def _answer(self, until: float) -> Answer | None:
        """The next message; None: no message has come by ``until``.

        :raises EOFError, OSError: no message will come.
        :raises HandlerProcessError: the job was abandoned.
        """
        while True:
            left = until - time.monotonic()
            ready = wait([self.pipe, self._interrupted], max(0.0, min(left, _CHECK)))
            if self._interrupted in ready:
                self.end()
                raise HandlerProcessError("the process of this handler was stopped: its job was abandoned")
            if ready:
                answer: Answer = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - from our child
                return answer
            if left <= 0:
                return None
            if self.poll() is not None:
                raise EOFError

    def discard(self) -> None:
        """Let :meth:`call` stop the process, or the next thread that borrows it. From any thread."""
        self.discarded = True
        with suppress(OSError):
            self._interrupt.send_bytes(b"")

    def end(self) -> None:
        """Ask it to end: a running handler sees SystemExit. Kill it if it has not ended 2 s later; return when it has exited."""
        self.send(_END)
        until = time.monotonic() + TERMINATE
        with suppress(EOFError, OSError):
            while (left := until - time.monotonic()) > 0 and self.pipe.poll(left):
                self.pipe.recv_bytes()
        self.kill()


def _log(answer: Logged, job: LeasedJob) -> None:
    """Write a record of the process to the log of the worker."""
    with suppress(Exception):  # extra fields whose classes cannot be imported here
        record = logging.makeLogRecord(about(job) | pickle.loads(answer.record))  # noqa: S301 - from our child
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)


def _result(answer: Returned | Raised, job: LeasedJob) -> Any:
    """Return what the handler returned, or raise what it raised."""
    if isinstance(answer, Returned):
        problem = answer.problem
        if not problem:
            try:
                return pickle.loads(answer.outcome)  # noqa: S301 - from our child
            except Exception as error:  # noqa: BLE001 - a user's class
                problem = f"{type(error).__name__}: {error}"
        # The work is done, and another attempt would have the same result: that matters only if it is kept.
        log.debug("%r: the result cannot be pickled: %s", job, problem, extra=about(job))
        return LostResult(problem)
    raise _error(answer) from RemoteTraceback(f"\n{answer.trace}")


def _error(answer: Raised) -> BaseException:
    with suppress(Exception):
        if answer.error is not None:
            error: BaseException = pickle.loads(answer.error)  # noqa: S301 - from our child
            return error
    # Its name and text are those of the error.
    stand_in: BaseException = type(answer.name, (HandlerProcessError,), {})(answer.text)
    return stand_in
