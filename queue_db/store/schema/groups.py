"""The tables for groups, batches, and unique keys that stay taken for a given time."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema.columns import (
    BIG_ID,
    DEFAULT_MAX_ATTEMPTS,
    KEY_LENGTH,
    KIND_LENGTH,
    LONG_TEXT,
    MYSQL,
    QUEUE_LENGTH,
)


def stripes(name: str, metadata: MetaData) -> Table:
    """The locks of groups.

    A change of a group first updates the row that the group's name hashes to. So changes of a group run one after the other, and
    the database refuses a change with an old snapshot.
    """
    return Table(
        f"{name}_stripes",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        **MYSQL,
    )


def callbacks(name: str, metadata: MetaData) -> Table:
    """The batches: for each, the callback job to enqueue when its last job has left, and counts of its jobs."""
    return Table(
        f"{name}_callbacks",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", LONG_TEXT, nullable=False),
        Column("headers", LONG_TEXT),
        Column("priority", Integer, nullable=False, server_default=text("0")),
        Column("max_attempts", Integer, nullable=False, server_default=text(str(DEFAULT_MAX_ATTEMPTS))),
        Column("size", Integer, nullable=False),
        Column("pending", Integer, nullable=False),
        Column("dead", Integer, nullable=False, server_default=text("0")),
        Column("cancelled", Integer, nullable=False, server_default=text("0")),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        sqlite_autoincrement=True,
        **MYSQL,
    )


def windows(name: str, metadata: MetaData) -> Table:
    """Unique keys that stay taken for a given time after their job was enqueued, even if the job has left."""
    table = Table(
        f"{name}_windows",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("unique_key", String(KEY_LENGTH), primary_key=True),
        Column("job_id", BIG_ID, nullable=False),
        Column("ends_at", BigInteger, nullable=False),
        **MYSQL,
    )
    # DELETE FROM jobs_windows WHERE ends_at < ?
    Index(f"{name}_windows_age", table.c.ends_at)
    return table
