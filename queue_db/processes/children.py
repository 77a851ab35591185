"""Child processes: how the supervisor, the pool of ``executor="process"`` and ``--exec`` start, signal and end them."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import IO, Self

log = logging.getLogger("queue_db.worker")

#: The environment variable with the number of the pipe to the parent.
PARENT_PIPE = "QUEUE_DB_PARENT_PIPE"

#: The environment variable with the number of a worker process, 1 to N. A replacement gets the number of its predecessor. The
#: supervisor has none: a module that both import uses it to see whether jobs run in this process.
PROCESS_NUMBER = "QUEUE_DB_PROCESS"

#: The environment variable of a replacement: how many processes with its number have died.
REPLACES = "QUEUE_DB_REPLACES"

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

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], stdin: int | None = None, pass_fds: Collection[int] = ()
    ) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            environment = {**environment, PARENT_PIPE: str(number)}
            super().__init__(command, environment=environment, stdin=stdin, pass_fds=[number, *pass_fds])

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
