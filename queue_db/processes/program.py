"""A handler that runs a program for each job: the payload on its standard input, the other fields in its environment."""

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

from queue_db.errors import ArgumentError, ConfigurationError, asking
from queue_db.leased_job import LeasedJob
from queue_db.outcomes import Dead, Outcome, Retry
from queue_db.processes.children import ChildProcess
from queue_db.worker.interruptions import Killed, is_stopped

#: The exit status of sysexits.h for wrong data: no other attempt can succeed.
EX_DATAERR = 65

#: How much of the end of standard error becomes the job's last error, bytes.
TAIL = 2000

# Characters that mean something to a shell only.
_SHELL_SYNTAX = frozenset(";|&<>$`*?(){}=~\n")

# How long to wait for the end of standard error, seconds: a grandchild may keep it open.
_STDERR_END = 0.5


class Program:
    """Runs ``command`` once for each job. Exit status 0 completes the job, 65 makes it dead, any other (75 by convention) fails the
    attempt.

    The program reads the payload as JSON from standard input and finds ``QUEUE_DB_QUEUE``, ``QUEUE_DB_JOB_ID``, ``_KIND``,
    ``_FENCE`` (its value at the start: every extension of the lease raises it) and ``_ATTEMPT`` in its environment. The end of its
    standard error becomes the job's last error. It runs in a session of its own: Ctrl-C reaches the worker only.

    :param command: split as a shell does, but run without one, unless ``shell``.
    :param environment: the environment of the program, without the job's variables.
    :param timeout: seconds after which the program is stopped and the attempt fails.
    :param stdout: the program's standard output; default: that of the worker.
    :param stderr: gets a copy of the program's standard error.
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
            missing = f"there is no program {self._arguments[0]!r} to run"
            if shell or not _SHELL_SYNTAX.intersection(command):
                raise ConfigurationError(missing)
            raise ConfigurationError(**asking(f"{missing}; the command has shell syntax: run it in a shell with ", "shell"))
        self._running: set[ChildProcess] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def __call__(self, job: LeasedJob) -> Outcome:
        # A file, not a pipe: the program may read it late, in part, or never.
        with tempfile.TemporaryFile() as payload:
            payload.write(job.payload_text.encode("utf-8", "surrogatepass"))
            payload.seek(0)
            return self._outcome(self._start(job, payload))

    def stop(self) -> None:
        """Stop the programs that run."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.signal_group(signal.SIGTERM)  # to all before the wait for the first
        for process in running:
            process.stop()

    def _start(self, job: LeasedJob, payload: IO[bytes]) -> ChildProcess:
        variables = {
            "QUEUE_DB_QUEUE": job.queue,
            "QUEUE_DB_JOB_ID": str(job.id),
            "QUEUE_DB_JOB_KIND": job.kind,
            "QUEUE_DB_JOB_FENCE": job.fence,
            "QUEUE_DB_JOB_ATTEMPT": str(job.attempts),
        }
        environment = self._environment | variables
        process = ChildProcess(self._arguments, environment=environment, stdin=payload, stdout=self._stdout, stderr=subprocess.PIPE)
        with self._lock:
            self._running.add(process)
            stopped = self._stopped
        if stopped:
            process.stop()
        return process

    def _outcome(self, process: ChildProcess) -> Outcome:
        """Wait for the exit of a program."""
        tail = bytearray()
        reader = threading.Thread(target=self._copy, args=(process, tail), daemon=True)
        reader.start()
        try:
            in_time = process.wait(self._timeout)
            if not in_time:
                process.stop()
        finally:
            with self._lock:
                self._running.discard(process)
        reader.join(_STDERR_END)
        last_words = bytes(tail[-TAIL:]).decode("utf-8", "replace").strip()
        reason = process.exit_text + (f": {last_words}" if last_words else "")
        if not in_time:
            return Retry(f"timed out after {self._timeout:g} s, {reason}")
        status = process.poll()
        if status == 0:
            return None
        if is_stopped(status):
            return Killed(reason)
        return Dead(reason) if status == EX_DATAERR else Retry(reason)

    def _copy(self, process: ChildProcess, tail: bytearray) -> None:
        # Only this thread uses the pipe: a grandchild may keep it open after the exit of the program.
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
