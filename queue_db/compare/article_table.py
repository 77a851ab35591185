"""The article's table, and what one worker does with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    and_,
    bindparam,
    or_,
    select,
)
from sqlalchemy.exc import DBAPIError

from queue_db.compare.contestant import WorkerContext
from queue_db.dialects import Dialect

#: The queue of all jobs.
QUEUE = "default"


def jobs_table(schema: str | None, *, indexed: tuple[tuple[str, ...], ...]) -> Table:
    """Return Laravel 5.5's ``jobs`` table with the article's two columns. Times are seconds of the client's clock."""
    return Table(
        "jobs",
        MetaData(schema=schema),
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("queue", String(255), nullable=False),
        Column("payload", Text, nullable=False),
        Column("attempts", SmallInteger, nullable=False),
        Column("reserved_at", Integer),
        Column("available_at", Integer, nullable=False),
        Column("created_at", Integer, nullable=False),
        Column("delete_mark", SmallInteger, nullable=False, server_default="0"),
        Column("version", Integer, nullable=False, server_default="0"),
        *(Index(f"jobs_{'_'.join(columns)}_index", *columns) for columns in indexed),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
    )


@dataclass(frozen=True)
class Session:
    """One worker's connection, in autocommit mode, and its table."""

    connection: Connection
    dialect: Dialect
    jobs: Table
    context: WorkerContext
    lease: int
    workers: int

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Send BEGIN and COMMIT, as the article's framework does."""
        self.connection.exec_driver_sql("BEGIN")
        try:
            yield
        except BaseException:
            with suppress(DBAPIError):
                self.connection.exec_driver_sql("ROLLBACK")
            raise
        self.connection.exec_driver_sql("COMMIT")

    def due(self) -> Any:
        """Return the query for the first jobs that are available or whose reservation has expired, in the order of their ids."""
        jobs = self.jobs
        return (
            select(jobs)
            .where(
                jobs.c.queue == bindparam("in_queue"),
                or_(
                    and_(jobs.c.reserved_at.is_(None), jobs.c.available_at <= bindparam("now")),
                    jobs.c.reserved_at <= bindparam("expired"),
                ),
            )
            .order_by(jobs.c.id)
            .limit(bindparam("wide"))
        )

    def read(self, query: Any, wide: int) -> list[Any]:
        """Return the rows of :meth:`due`, at most ``wide``."""
        now = int(time.time())
        return list(self.connection.execute(query, {"in_queue": QUEUE, "now": now, "expired": now - self.lease, "wide": wide}))
