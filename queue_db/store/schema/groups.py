"""The tables around jobs: locks of groups, callbacks, unique keys in time, samples of metrics."""

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
    """Locks of groups. A change to a group first updates the row that the group's name hashes to: so changes run one after the
    other, and the database refuses one with an old snapshot.
    """
    return Table(
        f"{name}_stripes",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        **MYSQL,
    )


def callbacks(name: str, metadata: MetaData) -> Table:
    """The job to enqueue when the last job of a batch has left."""
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
    """Unique keys that stay taken for a time after their job has left."""
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
