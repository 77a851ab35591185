"""The supervisor of ``--processes``: starts worker processes, forwards signals, replaces those that die and returns their jobs."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from queue_db import arguments
from queue_db.concurrency.pauses import Pause
from queue_db.processes.children import PROCESS_NUMBER, REPLACES, ParentPipe, PipedProcess
from queue_db.worker.signals import STOPS, available, handled

log = logging.getLogger("queue_db.worker")

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

# Seconds between two stop signals to a process that starts.
_STOP_AGAIN = 1.0

_FORWARDED = (*STOPS, "SIGTSTP", "SIGCONT", "SIGUSR1")

# What a process reports: that it is about to claim, under this name; that it has ended with no job in hand; and that it has ended
# in good order to be replaced.
_STARTED = b"started "
_ENDED = b"ended"
_RECYCLED = b"recycled"


class SupervisorLink(ParentPipe):
    """The pipe of a worker process to its supervisor."""

    def report_started(self, worker: str) -> None:
        """The process is about to claim jobs.

        :param worker: the name under which it claims; empty: other processes may have the same name.
        """
        self.send(_STARTED + worker.encode())

    def report_ended(self) -> None:
        """The process ends and has no job in hand."""
        self.send(_ENDED)

    def report_recycled(self) -> None:
        """The process ends and has no job in hand, and another one shall take its place."""
        self.send(_RECYCLED)

    def watch(self, died: Callable[[], None]) -> None:
        """Call ``died`` from another thread when the supervisor is dead."""
        self.listen(lambda message: None, died)


class _WorkerProcess(PipedProcess):
    """A worker process and what it has reported."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], pass_fds: Collection[int] = ()) -> None:
        super().__init__(command, environment=environment, pass_fds=pass_fds)
        self.started_at = time.monotonic()
        self.claimed = False
        self.ended = False
        self.recycled = False
        self.worker = ""
        #: When a stop signal was last sent; infinite: one was sent after the start, and no more is.
        self.stopped_at = -math.inf

    def stop_again(self) -> None:
        """Send SIGTERM if none was sent in the last second and the process had not started before the last stop signal.

        A program that imports its modules may swallow SIGINT: the exception may be raised where all are caught. SIGTERM kills it.
        """
        if time.monotonic() - self.stopped_at >= _STOP_AGAIN:
            self.send_stop(signal.SIGTERM)

    def send_stop(self, number: int) -> None:
        """Send a stop signal. A second one after the start would mean that the process must not wait for its jobs."""
        self.read_reports()
        self.send_signal(number)
        self.stopped_at = math.inf if self.claimed else time.monotonic()

    def read_reports(self) -> None:
        for message in self.received():
            if message == _ENDED:
                self.ended = True
            elif message == _RECYCLED:
                self.recycled = True
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
    #: How many processes were replaced here.
    replaced: int = 0


class Supervisor:
    """Runs ``command`` as ``count`` processes until they end or a signal stops them.

    SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT and SIGUSR1 are forwarded, by default. A process that dies after its first claim is
    replaced, whatever its exit status, and ``return_jobs`` is called with its worker name. A process that has reported its end is
    not replaced; one that ends to be replaced is replaced at once. If a process exits before its first claim and no process has
    ever claimed, all are stopped. When the supervisor dies, the processes stop as after SIGTERM.

    :param environment: the environment of the processes.
    :param return_jobs: returns the jobs that the worker of this name had in hand.
    :param pass_fds: numbers of files that the processes inherit.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        environment: Mapping[str, str],
        return_jobs: Callable[[str], object] = lambda _: None,
        pass_fds: Collection[int] = (),
        forwards: Collection[str] = _FORWARDED,
    ) -> None:
        self._command = list(command)
        self._count = arguments.whole("processes", count, 1, 256)
        self._environment = dict(environment)
        self._return_jobs = return_jobs
        self._pass_fds = tuple(pass_fds)
        self._forwards = tuple(forwards)
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._slots: list[_Slot] = []
        self._stopping: int | None = None
        self._failed: int | None = None
        self._any_claimed = False
        self._replaced = 0

    def run(self) -> int:
        """Run until all processes have ended; return 0, the status of a process that could not start, or -2 after SIGINT."""
        began = time.monotonic()
        with handled(dict.fromkeys(available(self._forwards), lambda number, frame: self._signals.put(number))):
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

    def _start(self, number: int, replaces: int = 0) -> _WorkerProcess:
        own = {PROCESS_NUMBER: str(number), **({REPLACES: str(replaces)} if replaces else {})}
        process = _WorkerProcess(self._command, self._environment | own, self._pass_fds)
        log.info("started process %d of %d: pid %d", number, self._count, process.pid)
        return process

    def _forward(self, number: int) -> None:
        stops = number in available(STOPS)
        if stops:
            self._stopping = number
        for slot in self._slots:
            if stops:
                slot.process.send_stop(number)
            else:
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
            if self._stopping is not None:
                process.stop_again()
            return
        process.pipe.close()
        if process.recycled and status >= 0 and self._stopping is None:
            log.info("process %d (pid %d) has ended to be replaced", slot.number, process.pid)
            slot.restart_at = time.monotonic()
            return
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
            slot.replaced += 1
            slot.process, slot.restart_at = self._start(slot.number, slot.replaced), None
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
