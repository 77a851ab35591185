"""pgmq: ``pgmq.read`` with SKIP LOCKED in PL/pgSQL and ``pgmq.delete``, psycopg2. Its SQL is given as a file, ``--pgmq FILE``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.common import PostgreSQLPeer
from benchmarks.peers.sql_files import Pgmq
from queue_db.compare.contestant import Target, WorkerContext

_QUEUE = "queue_db_benchmark"


class _Queue(Pgmq):
    """The queue of a run, which has the same name in all processes."""

    @property
    def queue(self) -> str:
        return _QUEUE


@dataclass(frozen=True)
class PgmqPeer(PostgreSQLPeer):
    """pgmq with one connection per worker process, and statements that are prepared once.

    A message has its number as its id, so bodies are not decoded: this is in pgmq's favour.
    """

    name: str = "pgmq"
    claim: str = "FOR UPDATE SKIP LOCKED in a function, head of the queue"
    removal: str = "DELETE in a function"
    index: str = "(vt)"
    file: Path | None = None

    def configuration(self) -> dict[str, str]:
        """Return its settings."""
        return {"driver": "psycopg2, PREPARE", "qty": str(self.batch), "vt": "60 s", "queue": "without partitions"}

    def refused(self, target: Target) -> str | None:
        """Return what is missing, for people."""
        refused = super().refused(target)
        if refused is None and self.file is None:
            return "pgmq's SQL is not given: --pgmq FILE (pgmq-extension/sql/pgmq.sql of https://github.com/pgmq/pgmq)"
        return refused

    @contextmanager
    def installed(self, target: Target) -> Iterator[None]:
        """Install it for this block, into the schema ``pgmq``."""
        with self._queue.installed(target.url):
            yield

    def set_up(self, target: Target, jobs: int) -> None:
        """Create a queue and send lists."""
        self._queue.fill(target.url, jobs)

    def tear_down(self, target: Target) -> None:
        """Drop the queue."""
        with self._queue.admin(target.url) as cursor:
            cursor.execute("SELECT pgmq.drop_queue(%s)", (_QUEUE,))

    def work(self, target: Target, context: WorkerContext) -> None:
        """Read and delete until the run is over."""
        with self._queue.connected(target.url) as cursor:
            context.wait_for_start()
            while not context.over:
                asked = time.monotonic()
                ids = self._queue.read(cursor)
                if not ids:
                    context.record_empty_claim()
                    continue
                context.record_claim(asked, [number - 1 for number in ids])
                context.record_removal(len(self._queue.delete(cursor, ids)))

    @property
    def _queue(self) -> _Queue:
        assert self.file is not None  # noqa: S101 - refused without it
        return _Queue(self.file, self.batch)
