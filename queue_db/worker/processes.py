"""Child processes, and the supervisor of ``--processes``.

The supervisor, the pool of ``executor="process"`` and ``--exec`` start, signal and end their children with the same classes. The
supervisor starts worker processes, forwards signals to them, replaces those that die and returns their jobs.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from queue import Empty, SimpleQueue
from typing import IO, Self

from queue_db import arguments
from queue_db.concurrency.pauses import Pause
from queue_db.worker.signals import STOPS, available, handled

log = logging.getLogger("queue_db.worker")

#: The environment variable with the number of the pipe to the parent.
PARENT_PIPE = "QUEUE_DB_PARENT_PIPE"

#: The environment variable with the number of a worker process, 1 to N. A replacement gets the number of its predecessor. The
#: supervisor has none: a module that both import uses it to see whether jobs run in this process.
PROCESS_NUMBER = "QUEUE_DB_PROCESS"

# Seconds from SIGTERM to SIGKILL.
TERMINATE = 2.0
# Seconds for which the exit is awaited after SIGKILL.
_KILL = 5.0


class ChildProcess:
    """A process in a session of its own: Ctrl-C reaches only the parent, and one signal reaches all that the child has started.

    Its methods may be called from any thread.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: IO[bytes] | int | None = None,
        stdout: IO[bytes] | int | None = None,
        stderr: IO[bytes] | int | None = None,
        pass_fds: Collection[int] = (),
    ) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, or the operator's command
            command, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds, start_new_session=True
        )
        self.pid = self._process.pid
        self.stderr = self._process.stderr
        #: Set when :meth:`kill` has returned.
        self.killed = threading.Event()

    def poll(self) -> int | None:
        """The exit status; minus the number of the signal, if a signal killed the process; None: the process runs."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the process has exited, at most this many seconds. Return whether it has exited."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone. After its exit nothing is sent: its number may belong to another process."""
        self._process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the process and to all that it has started. After its exit nothing is sent."""
        if self.poll() is None:
            self._send_to_group(number)

    def stop(self) -> None:
        """Send SIGTERM to its session, and SIGKILL if the process has not exited after 2 s; return when it has exited."""
        self.signal_group(signal.SIGTERM)
        if not self.wait(TERMINATE):
            self.kill()

    def kill(self) -> None:
        """SIGKILL to the process and to all that it has started, also if the process itself has exited; return when it has."""
        # Before the wait, which frees the number of the process. While something that it started runs, the number of the group is
        # in use; otherwise the signal goes nowhere.
        if not self.killed.is_set():
            self._send_to_group(signal.SIGKILL)
        if not self.wait(_KILL):
            log.error("process %d has not exited %g s after SIGKILL", self.pid, _KILL)
        self.killed.set()

    @property
    def exit_text(self) -> str:
        """The exit status in words: ``exit status 3``, ``killed by SIGKILL``."""
        status = self._process.returncode
        if status is None or status >= 0:
            return f"exit status {status}"
        with suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
        return f"killed by signal {-status}"

    def _send_to_group(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class PipedProcess(ChildProcess):
    """A child that runs our code and has a pipe to us: its :class:`ParentPipe`. Each side sees when the other one is gone."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], stdin: int | None = None) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            super().__init__(command, environment={**environment, PARENT_PIPE: str(number)}, stdin=stdin, pass_fds=[number])

    def send(self, message: bytes) -> None:
        """Send a message; a process that has exited does not get it."""
        with suppress(OSError):
            self.pipe.send_bytes(message)

    def received(self) -> Iterator[bytes]:
        """The messages that have arrived, without waiting, including messages of a process that has exited."""
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                yield self.pipe.recv_bytes()


class ParentPipe:
    """The child's end of the pipe to its parent."""

    def __init__(self, number: int) -> None:
        os.set_inheritable(number, False)
        self._pipe = Connection(number)
        self._sending = threading.Lock()

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Self | None:
        """The pipe that the environment names; the variable is removed. None: this process was not started by this package."""
        number = environment.pop(PARENT_PIPE, "")
        with suppress(ValueError, OSError):
            if stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                return cls(int(number))
        return None

    def send(self, message: bytes) -> None:
        """Send a message, from any thread; a parent that is dead does not get it."""
        with self._sending, suppress(OSError):
            self._pipe.send_bytes(message)

    def listen(self, received: Callable[[bytes], None], died: Callable[[], None]) -> None:
        """Call ``received`` with each message of the parent, and ``died`` when the parent is dead, both from another thread."""
        threading.Thread(target=self._listen, args=(received, died), name="queue_db parent", daemon=True).start()

    def _listen(self, received: Callable[[bytes], None], died: Callable[[], None]) -> None:
        with suppress(EOFError, OSError):
            while True:
                received(self._pipe.recv_bytes())
        died()


#: The first and the longest pause before a process that died is replaced, seconds. They are short: a job that kills its process at
#: each attempt kills several in a row, and the other jobs wait until the processes are replaced.
RESTART = (0.1, 5.0)

#: The same pauses after a process that could not start although other processes have started.
RESTART_AFTER_FAILED_START = (1.0, 30.0)

#: A process that lives for this many seconds makes the pause before its replacement short again.
STABLE_AFTER = 10.0

#: How long the end waits until the jobs of processes that died are returned, seconds.
RETURN_JOBS = 10.0

# Seconds between two checks of the processes. A signal ends the wait.
_CHECK = 0.2

_FORWARDED = (*STOPS, "SIGTSTP", "SIGCONT", "SIGUSR1")

# What a process reports: that it claims from now on, under this name; and that it has ended with no job in hand.
_STARTED = b"started "
_ENDED = b"ended"


class SupervisorLink(ParentPipe):
    """The pipe of a worker process to its supervisor."""

    def report_started(self, worker: str) -> None:
        """Jobs are claimed from now on.

        :param worker: the name under which they are claimed; empty: other processes may have the same name.
        """
        self.send(_STARTED + worker.encode())

    def report_ended(self) -> None:
        """The process ends and has no job in hand."""
        self.send(_ENDED)

    def watch(self, died: Callable[[], None]) -> None:
        """Call ``died`` from another thread when the supervisor is dead."""
        self.listen(lambda message: None, died)


class _WorkerProcess(PipedProcess):
    """A worker process and what it has reported."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(command, environment=environment)
        self.started_at = time.monotonic()
        self.claimed = False
        self.ended = False
        self.worker = ""

    def read_reports(self) -> None:
        for message in self.received():
            if message == _ENDED:
                self.ended = True
            elif message.startswith(_STARTED):
                self.claimed, self.worker = True, message.removeprefix(_STARTED).decode()


@dataclass
class _Slot:
    """The place of one of the ``count`` processes. When the process dies, its replacement takes the place."""

    number: int
    process: _WorkerProcess
    pause: Pause = field(default_factory=lambda: Pause(*RESTART))
    pause_after_failed_start: Pause = field(default_factory=lambda: Pause(*RESTART_AFTER_FAILED_START))
    #: When a process that died is replaced; None: the process has not exited.
    restart_at: float | None = None
    #: The thread that returns the jobs of the last process. The replacement starts afterwards, so that it finds these jobs: with
    #: ``--until-empty`` it ends when no job is due.
    returning: threading.Thread | None = None
    #: The exit status of the last process, which is not replaced.
    exit_status: int | None = None


class Supervisor:
    """Runs ``command`` as ``count`` processes until they end or a signal stops them.

    SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT and SIGUSR1 are forwarded. A process that dies after its first claim is replaced,
    whatever its exit status, and ``return_jobs`` is called with its worker name. A process that has reported its end is not
    replaced. If a process exits before its first claim and no process has ever claimed, all are stopped. When the supervisor dies,
    the processes stop as after SIGTERM.

    :param environment: the environment of the processes.
    :param return_jobs: returns the jobs that the worker of this name had in hand.
    """

    def __init__(
        self, command: Sequence[str], count: int, *, environment: Mapping[str, str], return_jobs: Callable[[str], None]
    ) -> None:
        self._command = list(command)
        self._count = arguments.whole("processes", count, 1, 256)
        self._environment = dict(environment)
        self._return_jobs = return_jobs
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._slots: list[_Slot] = []
        self._stopping: int | None = None
        self._failed: int | None = None
        self._any_claimed = False
        self._replaced = 0

    def run(self) -> int:
        """Run until all processes have ended; return 0, the status of a process that could not start, or -2 after SIGINT."""
        began = time.monotonic()
        with handled(dict.fromkeys(available(_FORWARDED), lambda number, frame: self._signals.put(number))):
            self._slots = [_Slot(number, self._start(number)) for number in range(1, self._count + 1)]
            while running := [slot for slot in self._slots if slot.exit_status is None]:
                with suppress(Empty):
                    self._forward(self._signals.get(timeout=_CHECK))
                for slot in running:
                    self._check(slot)
        until = time.monotonic() + RETURN_JOBS
        for slot in self._slots:
            if slot.returning is not None:
                slot.returning.join(max(0.0, until - time.monotonic()))
        ran, why = time.monotonic() - began, self._why()
        fields = {"why": why, "uptime": round(ran, 3), "replaced": self._replaced}
        log.info(
            "all %d processes have ended after %.1f s (%s): %d were replaced", self._count, ran, why, self._replaced, extra=fields
        )
        if self._failed is not None:
            return self._failed
        return -signal.SIGINT if self._stopping == signal.SIGINT else 0

    def _why(self) -> str:
        if self._failed is not None:
            return "they cannot start"
        return "no job is due" if self._stopping is None else signal.Signals(self._stopping).name

    def _start(self, number: int) -> _WorkerProcess:
        process = _WorkerProcess(self._command, self._environment | {PROCESS_NUMBER: str(number)})
        log.info("started process %d of %d: pid %d", number, self._count, process.pid)
        return process

    def _forward(self, number: int) -> None:
        if number in available(STOPS):
            self._stopping = number
        for slot in self._slots:
            slot.process.send_signal(number)

    def _check(self, slot: _Slot) -> None:
        if slot.restart_at is not None:
            self._restart(slot, slot.restart_at)
            return
        process = slot.process
        status = process.poll()
        process.read_reports()  # after the poll: all that a process has reported before its exit is there
        self._any_claimed = self._any_claimed or process.claimed
        if status is None:
            return
        process.pipe.close()
        if (process.ended and status >= 0) or (status == 0 and not process.claimed):
            slot.exit_status = status
            return
        if process.worker:
            slot.returning = self._start_returning(process)
        if self._stopping is not None:
            slot.exit_status = status
        elif status < 0 or self._has_any_claimed():
            self._schedule_restart(slot)
        else:
            message = "process %d (pid %d) exited before its first claim (%s): it cannot start, so all are stopped"
            log.error(message, slot.number, process.pid, process.exit_text)
            slot.exit_status = self._failed = status
            self._forward(signal.SIGTERM)

    def _has_any_claimed(self) -> bool:
        """Whether any process has ever begun to claim jobs. First reads the reports that have arrived since the last check."""
        for slot in self._slots:
            slot.process.read_reports()
            self._any_claimed = self._any_claimed or slot.process.claimed
        return self._any_claimed

    def _schedule_restart(self, slot: _Slot) -> None:
        process, now = slot.process, time.monotonic()
        if process.claimed:
            slot.pause_after_failed_start.reset()
        if now - process.started_at >= STABLE_AFTER:
            slot.pause.reset()
        wait = (slot.pause if process.claimed else slot.pause_after_failed_start).next()
        message = "process %d (pid %d) died (%s); its replacement starts in %.1f s"
        log.warning(message, slot.number, process.pid, process.exit_text, wait)
        slot.restart_at = now + wait

    def _restart(self, slot: _Slot, restart_at: float) -> None:
        if self._stopping is not None:
            slot.exit_status = 0
        elif time.monotonic() >= restart_at and not (slot.returning and slot.returning.is_alive()):
            slot.process, slot.restart_at = self._start(slot.number), None
            self._replaced += 1

    def _start_returning(self, process: _WorkerProcess) -> threading.Thread:
        def return_jobs() -> None:
            try:
                self._return_jobs(process.worker)
            except Exception as error:  # noqa: BLE001 - their leases expire
                message = "the jobs of process %d could not be returned and come back when their leases expire: %s"
                log.warning(message, process.pid, error)

        # In a thread of its own: the database may be down, and signals must still be forwarded.
        thread = threading.Thread(target=return_jobs, name=f"queue_db jobs of process {process.pid}", daemon=True)
        thread.start()
        return thread
