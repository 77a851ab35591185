"""A handler that runs a program for each job: the payload on its standard input, the rest in its environment."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, BinaryIO, cast

from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.leased_job import LeasedJob
from queue_db.outcomes import Dead, Outcome, Retry

# The meanings of sysexits.h, as mail systems use them.
EX_DATAERR = 65  #: the data is wrong: trying again is pointless
EX_TEMPFAIL = 75  #: not now: try again

#: How much of the end of standard error becomes the job's last error, bytes.
TAIL = 2000

# Seconds: from SIGTERM to SIGKILL; and how long to wait for the end of standard error, which a grandchild may hold open.
_TERMINATE = 2.0
_LAST_WORDS = 0.5


class Program:
    """Runs ``command`` once for each job; exit status 0 completes it, 65 gives it up, any other (75: asked for) fails the attempt.

    The program reads the payload as JSON from standard input and finds ``QUEUE_DB_QUEUE``, ``QUEUE_DB_JOB_ID``, ``_KIND``,
    ``_FENCE`` (as of the start: every extension of the lease raises it) and ``_ATTEMPT`` in its environment. The end of what it
    writes to standard error becomes the job's last error. It runs in a session of its own: Ctrl-C reaches the worker only.

    :param command: split as a shell does, but run without one, unless ``shell``.
    :param environment: the program's, without the job's variables.
    :param timeout: seconds after which it is ended and the attempt has failed.
    :param stdout: where its standard output goes; default: the worker's own.
    :param stderr: where its standard error is copied to.
    :raises ArgumentError: the command cannot be split, or is empty.
    :raises ConfigurationError: there is no such program.
    """

    def __init__(
        self,
        command: str,
        *,
        environment: Mapping[str, str],
        timeout: float | None = None,
        shell: bool = False,
        stdout: IO[bytes] | None = None,
        stderr: BinaryIO | None = None,
    ) -> None:
        self._environment = dict(environment)
        self._timeout = timeout
        self._stdout = stdout
        self._stderr = stderr
        self._arguments = ["/bin/sh", "-c", command] if shell else _split(command)
        if shutil.which(self._arguments[0], path=self._environment.get("PATH", os.defpath)) is None:
            raise ConfigurationError(f"there is no program {self._arguments[0]!r} to run")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def __call__(self, job: LeasedJob) -> Outcome:
        # A file, not a pipe: the program may read it late, in part, or never.
        with tempfile.TemporaryFile() as payload:
            payload.write(job.payload_text.encode("utf-8", "surrogatepass"))
            payload.seek(0)
            return self._follow(self._start(job, payload))

    def stop(self) -> None:
        """End the programs that run."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _signal(process, signal.SIGTERM)  # all of them before the first is waited for
        for process in running:
            _end(process)

    def _start(self, job: LeasedJob, payload: IO[bytes]) -> subprocess.Popen[bytes]:
        variables = {
            "QUEUE_DB_QUEUE": job.queue,
            "QUEUE_DB_JOB_ID": str(job.id),
            "QUEUE_DB_JOB_KIND": job.kind,
            "QUEUE_DB_JOB_FENCE": job.fence,
            "QUEUE_DB_JOB_ATTEMPT": str(job.attempts),
        }
        process = subprocess.Popen(  # noqa: S603 - running the operator's command is the purpose
            self._arguments,
            stdin=payload,
            stdout=self._stdout,
            stderr=subprocess.PIPE,
            env=self._environment | variables,
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
            stopped = self._stopped
        if stopped:
            _end(process)
        return process

    def _follow(self, process: subprocess.Popen[bytes]) -> Outcome:
        tail = bytearray()
        reader = threading.Thread(target=self._copy, args=(process, tail), daemon=True)
        reader.start()
        late = False
        try:
            process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            late = True
            _end(process)
        finally:
            with self._lock:
                self._running.discard(process)
        reader.join(_LAST_WORDS)
        said = bytes(tail[-TAIL:]).decode("utf-8", "replace").strip()
        reason = _reason(process.returncode) + (f": {said}" if said else "")
        if late:
            return Retry(f"ended after {self._timeout:g} s, {reason}")
        if process.returncode == 0:
            return None
        return Dead(reason) if process.returncode == EX_DATAERR else Retry(reason)

    def _copy(self, process: subprocess.Popen[bytes], tail: bytearray) -> None:
        # The pipe is this thread's alone: a grandchild may keep it open after the program has ended.
        with cast("io.BufferedReader", process.stderr) as pipe:
            while chunk := pipe.read1(65536):
                tail += chunk
                del tail[:-TAIL]
                if self._stderr is not None:
                    with suppress(OSError, ValueError):
                        self._stderr.write(chunk)
                        self._stderr.flush()


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ArgumentError(f"the command {command!r} cannot be split into words: {error}") from None
    if not words:
        raise ArgumentError("the command is empty")
    return words


def _reason(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # To the whole session: a shell's children too. Only while the program is not reaped, when the number is still its own.
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    try:
        process.wait(_TERMINATE)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TERMINATE)
