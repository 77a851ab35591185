"""pgmq and PgQue: queues of PL/pgSQL functions, which are in no package index. Their SQL is given as a file.

    pgmq:  pgmq-extension/sql/pgmq.sql of https://github.com/pgmq/pgmq
    PgQue: sql/pgque.sql of https://github.com/NikolayS/PgQue, which needs a superuser and creates three roles

Each installs itself into a schema of its own, which is dropped afterwards.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from queue_db.compare.engines import autocommitting

_CONSUMER = "consumers"
_LEASE = 60
#: A batch of PgQue may be empty: the backlog ends after as many of them.
_EMPTY = 3

#: Takes the next messages and removes them; returns their ids, none at the end of the backlog.
Take = Callable[[], list[int]]


class SqlQueue(ABC):
    """A queue of functions in a schema.

    :param file: the SQL that installs it.
    :param batch: messages of a read.
    """

    title: ClassVar[str]
    schema: ClassVar[str]

    def __init__(self, file: Path, batch: int) -> None:
        self.file = file
        self.batch = batch
        #: How many queues it has made: each run has a new one.
        self.made = 0

    @property
    def queue(self) -> str:
        """The name of the queue of this run."""
        return f"race_{self.batch}_{self.made}"

    @property
    def name(self) -> str:
        """The name of its row."""
        return f"{self.title}, {self.batch}"

    @contextmanager
    def installed(self, url: str) -> Iterator[None]:
        """Install it for this block. A schema that is there already stays."""
        with autocommitting(url) as engine, engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            with driver.cursor() as cursor:
                cursor.execute("SELECT to_regnamespace(%s) IS NOT NULL", (self.schema,))
                there = cursor.fetchone()[0]
                if not there:
                    cursor.execute(self.file.read_text())
                try:
                    yield
                finally:
                    if not there:
                        cursor.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")

    @contextmanager
    def opened(self, url: str, number: int) -> Iterator[Take]:
        """A consumer: its own connection, and statements that are prepared once."""
        with self.connected(url) as cursor:
            yield lambda: self.take(cursor, number)

    @contextmanager
    def connected(self, url: str) -> Iterator[Any]:
        """A cursor with the statements of a consumer."""
        with self.admin(url) as cursor:
            for statement in self.prepares():
                cursor.execute(statement)
            yield cursor

    @contextmanager
    def admin(self, url: str) -> Iterator[Any]:
        """A cursor."""
        with autocommitting(url) as engine, engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            with driver.cursor() as cursor:
                yield cursor

    @abstractmethod
    def fill(self, url: str, size: int) -> None:
        """Make a queue with ``size`` messages."""

    @abstractmethod
    def prepares(self) -> list[str]:
        """The statements of a consumer."""

    @abstractmethod
    def take(self, cursor: Any, number: int) -> list[int]:
        """Read and remove some messages as consumer ``number``; return their ids."""

    def tidy(self, url: str) -> float:
        """Remove what is done, if reading leaves that to maintenance; return the time at the end, 0 if there is nothing to do."""
        return 0.0


class Pgmq(SqlQueue):
    """``pgmq.read`` and ``pgmq.delete``, on a queue without partitions. The bodies are not decoded."""

    title = schema = "pgmq"

    def fill(self, url: str, size: int) -> None:
        self.made += 1
        body = '{"kind": "job"}'
        with self.admin(url) as cursor:
            cursor.execute("SELECT pgmq.create(%s)", (self.queue,))
            for start in range(0, size, 10_000):
                number = min(10_000, size - start)
                cursor.execute("SELECT count(*) FROM pgmq.send_batch(%s, %s::jsonb[])", (self.queue, [body] * number))
            cursor.execute("ANALYZE pgmq.q_" + self.queue)

    def prepares(self) -> list[str]:
        return [
            "PREPARE take (text, int, int) AS SELECT msg_id, read_ct, message::text FROM pgmq.read($1, $2, $3)",
            "PREPARE done (text, bigint[]) AS SELECT pgmq.delete($1, $2)",
        ]

    def take(self, cursor: Any, number: int) -> list[int]:
        ids = self.read(cursor)
        return self.delete(cursor, ids) if ids else []

    def read(self, cursor: Any) -> list[int]:
        """Lease the next messages; return their ids."""
        cursor.execute("EXECUTE take (%s, %s, %s)", (self.queue, _LEASE, self.batch))
        return [row[0] for row in cursor.fetchall()]

    def delete(self, cursor: Any, ids: list[int]) -> list[int]:
        """Delete messages; return the ids of those that were there."""
        cursor.execute("EXECUTE done (%s, %s)", (self.queue, "{" + ",".join(map(str, ids)) + "}"))
        return [row[0] for row in cursor.fetchall()]


class Pgque(SqlQueue):
    """``pgque.receive_coop`` and ``pgque.ack`` of cooperating consumers. The backlog has a tick after each batch."""

    title, schema = "PgQue", "pgque"

    def fill(self, url: str, size: int) -> None:
        self.made += 1
        body = '{"kind": "job"}'
        with self.admin(url) as cursor:
            cursor.execute("SELECT pgque.create_queue(%s)", (self.queue,))
            cursor.execute("SELECT pgque.register_subconsumer(%s, %s, '0')", (self.queue, _CONSUMER))
            for start in range(0, size, self.batch):
                number = min(self.batch, size - start)
                cursor.execute("SELECT count(*) FROM pgque.send_batch(%s, %s::jsonb[])", (self.queue, [body] * number))
                cursor.execute("SELECT pgque.force_next_tick(%s)", (self.queue,))
                cursor.execute("SELECT pgque.ticker(%s)", (self.queue,))

    def prepares(self) -> list[str]:
        read = "SELECT msg_id, batch_id, payload FROM pgque.receive_coop($1, $2, $3, $4)"
        return ["PREPARE take (text, text, text, int) AS " + read, "PREPARE done (bigint) AS SELECT pgque.ack($1)"]

    def take(self, cursor: Any, number: int) -> list[int]:
        for _ in range(_EMPTY):
            cursor.execute("EXECUTE take (%s, %s, %s, %s)", (self.queue, _CONSUMER, str(number), self.batch))
            found = cursor.fetchall()
            if found:
                cursor.execute("EXECUTE done (%s)", (found[0][1],))
                return [row[0] for row in found]
        return []

    def tidy(self, url: str) -> float:
        with self.admin(url) as cursor:
            cursor.execute("SELECT pgque.maint()")
        return time.monotonic()
