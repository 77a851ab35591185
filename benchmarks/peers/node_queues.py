"""Node queues on PostgreSQL: graphile-worker and pg-boss. One Node process per worker, controlled through a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, ClassVar

from benchmarks.peers import npm
from benchmarks.peers.common import PATIENCE, POLL_INTERVAL, PostgreSQLPeer, analyze, fresh_schema, plain_address, take_over_work
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.errors import QueueDBError

#: Time limits to fill the queue and to get ready, seconds.
_FILL_LIMIT = 300.0
_READY_LIMIT = 45.0


class NodeError(QueueDBError):
    """A Node process failed."""


class NodePeer(PostgreSQLPeer):
    """A peer that runs a script of ``node/``."""

    script: ClassVar[str] = ""
    package: ClassVar[str] = ""

    def settings(self) -> dict[str, Any]:
        """Return the settings for the script."""
        return {"batch": self.batch}

    def refused(self, target: Target) -> str | None:
        """Return what is missing: Node or the package."""
        refused = super().refused(target)
        if refused is not None:
            return refused
        if shutil.which("node") is None:
            return f"{self.name} needs Node 20 or newer"
        if not npm.installed(self.package):
            return f"{self.name} is not installed: {npm.INSTALL}"
        return None

    def set_up(self, target: Target, jobs: int) -> None:
        """Let the script create and fill its schema."""
        fresh_schema(target)
        with self._node(target, jobs) as (process, errors):
            try:
                code = process.wait(timeout=_FILL_LIMIT)
            except subprocess.TimeoutExpired:
                raise NodeError(f"{self.name} did not fill its queue within {_FILL_LIMIT:.0f} s") from None
            if code:
                raise NodeError(f"{self.name}: {_last(errors)}")
        analyze(target)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Run the script and record its messages."""
        with self._node(target, None, take_over_work(context)) as (process, errors):
            conversation = _Conversation(process)
            if not conversation.waits_for("ready", _READY_LIMIT):
                raise NodeError(f"{self.name} did not get ready: {_last(errors)}")
            context.wait_for_start()
            conversation.send("go")
            stopped: float | None = None
            while not conversation.ended:
                for line in conversation.lines(POLL_INTERVAL):
                    self._note(line, context)
                if stopped is None and context.over:
                    stopped = time.monotonic()
                    conversation.send("stop")
                if stopped is not None and time.monotonic() > stopped + PATIENCE:
                    return
            if stopped is None:
                raise NodeError(f"{self.name} has ended too early: {_last(errors)}")

    def _note(self, line: str, context: WorkerContext) -> None:
        word, *values = line.split()
        if word == "c":
            context.record_claim(time.monotonic() - float(values[0]), [int(value) for value in values[1:]])
        elif word == "l":
            context.record_removal(int(values[0]))
        elif word == "cpu":
            ours, theirs = context.cpu_clock, float(values[0])
            context.cpu_clock = lambda: ours() + theirs

    @contextmanager
    def _node(self, target: Target, fill: int | None, seconds: float = 0.0) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        settings = {
            **self.settings(),
            "home": str(npm.HOME),
            "url": plain_address(target),
            "schema": target.schema,
            "fill": fill,
            "workSeconds": seconds,
        }
        node = shutil.which("node") or "node"
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(  # noqa: S603 - a script of this repository
                [node, str(npm.SCRIPTS / self.script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Its performance guide recommends to turn off the log line per job.
                env={**os.environ, "NO_LOG_SUCCESS": "1", "NODE_ENV": "production"},
            )
            assert process.stdin is not None  # noqa: S101 - requested above
            assert process.stdout is not None  # noqa: S101 - requested above
            try:
                # Not on the command line, which other users can read.
                process.stdin.write(json.dumps(settings).encode() + b"\n")
                process.stdin.flush()
                yield process, errors
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait(timeout=10.0)
                with contextlib.suppress(OSError):
                    process.stdin.close()
                process.stdout.close()


class _Conversation:
    """Reads and writes lines of a process, with a timeout."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None  # noqa: S101 - started with pipes
        assert process.stdout is not None  # noqa: S101 - requested above
        self._in, self._out = process.stdin, process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._rest = b""
        self.ended = False

    def lines(self, limit: float) -> list[str]:
        """Return the lines so far; without any, wait up to ``limit`` seconds."""
        if not self._selector.select(limit):
            return []
        data = os.read(self._out.fileno(), 1 << 20)
        if not data:
            self.ended = True
            self._selector.close()
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode() for line in whole]

    def waits_for(self, word: str, limit: float) -> bool:
        """Return whether the process prints this line before the limit and before its end."""
        deadline = time.monotonic() + limit
        while not self.ended and time.monotonic() < deadline:
            if word in self.lines(deadline - time.monotonic()):
                return True
        return False

    def send(self, line: str) -> None:
        """Send a line; if the process has died, the next read detects it."""
        with contextlib.suppress(BrokenPipeError):
            self._in.write(line.encode() + b"\n")
            self._in.flush()


def _last(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[0] if lines else "no output"


@dataclass(frozen=True)
class Graphile(NodePeer):
    """graphile-worker; with a batch it prefetches into its local queue and acknowledges in batches."""

    name: str = "graphile-worker"
    claim: str = "FOR UPDATE SKIP LOCKED, head of the queue"
    removal: str = "DELETE"
    index: str = "(priority, run_at), where available"

    script = "graphile.cjs"
    package = "graphile-worker"

    def settings(self) -> dict[str, Any]:
        """Return its settings, as its performance guide recommends: many jobs at a time with batches, and few connections."""
        batched = self.batch > 1
        return {"batch": self.batch, "local": self.batch if batched else -1, "concurrency": 24 if batched else 4, "connections": 4}

    def configuration(self) -> dict[str, str]:
        """See :meth:`settings`."""
        settings = self.settings()
        return {
            "concurrentJobs": f"{settings['concurrency']} per process",
            "localQueue.size": str(self.batch) if self.batch > 1 else "none",
            "completeJobBatchDelay": "0" if self.batch > 1 else "none",
            "connections": f"{settings['connections']} per process",
            "NO_LOG_SUCCESS": "1",
        }


@dataclass(frozen=True)
class PgBoss(NodePeer):
    """pg-boss: ``fetch`` and ``complete`` in a loop, because its ``work`` polls at most twice a second."""

    name: str = "pg-boss"
    claim: str = "FOR UPDATE SKIP LOCKED, head of the queue"
    removal: str = "UPDATE (completed)"
    index: str = "(name, start_after) INCLUDE (priority, created_on, id), where not active yet"

    script = "boss.cjs"
    package = "pg-boss"

    def configuration(self) -> dict[str, str]:
        """Return its settings: without maintenance."""
        return {"loop": "fetch, complete", "batchSize": str(self.batch), "supervise": "no", "schedule": "no"}
