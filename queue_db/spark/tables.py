"""The tables of bulk loads that publish all or nothing, and of streams."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import (
    BIG_ID,
    KEY_LENGTH,
    KIND_LENGTH,
    LONG_TEXT,
    MYSQL,
    QUEUE_LENGTH,
    TOKEN_LENGTH,
    WORKER_LENGTH,
)
from queue_db.store.schema.tables import Tables

#: Longest texts, in characters, of the columns that are compared or indexed.
APP_LENGTH = 200
STREAM_LENGTH = 100


@dataclass(frozen=True, slots=True)
class SparkTables:
    """What Spark adds to the tables of a queue store."""

    staged: Table
    published: Table
    streams: Table
    batches: Table
    held: Table


def spark_tables(tables: Tables) -> SparkTables:
    """Those beside these tables."""
    found: SparkTables = tables.slices["spark"]
    return found


def described(name: str, metadata: MetaData) -> SparkTables:
    """Add them to ``metadata``."""
    return SparkTables(
        _staged(name, metadata),
        _published(name, metadata),
        _streams(name, metadata),
        _batches(name, metadata),
        _held(name, metadata),
    )


def _staged(name: str, metadata: MetaData) -> Table:
    """Chunks of jobs that a task has staged and that are not published yet: JSON, so that a million jobs are a thousand rows."""
    # Found by the attempt, whose high bits are the time it began (staging/store.py), so also by age:
    #   INSERT INTO jobs SELECT … FROM jobs_staged … WHERE attempt IN (…);  DELETE FROM jobs_staged WHERE attempt < ?
    # PostgreSQL does not log it: after a crash it is empty, and a publication that lacks rows is refused.
    return Table(
        f"{name}_staged",
        metadata,
        Column("attempt", BIG_ID, primary_key=True, autoincrement=False),
        Column("place", Integer, primary_key=True, autoincrement=False),
        Column("size", Integer, nullable=False),
        Column("chunk", LONG_TEXT, nullable=False),
        **MYSQL,
    )


def _published(name: str, metadata: MetaData) -> Table:
    """The ledger of publications: the same ``(app, version)`` is published into a queue once."""
    table = Table(
        f"{name}_published",
        metadata,
        Column("app", String(APP_LENGTH), primary_key=True),
        Column("version", BigInteger, primary_key=True, autoincrement=False),
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("size", BigInteger, nullable=False),
        Column("skipped", BigInteger, nullable=False, server_default=text("0")),
        # 0: no load with this app will come again; the entry is deleted by age.
        Column("kept", Integer, nullable=False, server_default=text("1")),
        Column("published_at", BigInteger, nullable=False, server_default=now_us()),
        **MYSQL,
    )
    # DELETE FROM jobs_published WHERE kept = 0 AND published_at < ?
    Index(f"{name}_published_age", table.c.kept, table.c.published_at)
    return table


def _streams(name: str, metadata: MetaData) -> Table:
    """Streams: their queue, their position, and the epoch that fences off old readers."""
    return Table(
        f"{name}_streams",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("name", String(STREAM_LENGTH), nullable=False, unique=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        # Raised by every takeover and release: a reader with an older epoch is refused.
        Column("epoch", BigInteger, nullable=False, server_default=text("0")),
        # Batches are numbered from 1; all up to ``acked`` are completed, those up to ``allocated`` are claimed.
        Column("allocated", BigInteger, nullable=False, server_default=text("0")),
        Column("acked", BigInteger, nullable=False, server_default=text("0")),
        # The claim token of batch ``acked``: a checkpoint with another token belongs to another history.
        Column("acked_claim", String(TOKEN_LENGTH), nullable=False),
        Column("holder", String(WORKER_LENGTH)),
        Column("retention", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        # The last sign of a reader; ``retention`` counts from here.
        Column("seen_at", BigInteger, nullable=False, server_default=now_us()),
        sqlite_autoincrement=True,
        **MYSQL,
    )


def _batches(name: str, metadata: MetaData) -> Table:
    """Claimed batches of streams that are not completed."""
    return Table(
        f"{name}_batches",
        metadata,
        Column("stream", BIG_ID, primary_key=True, autoincrement=False),
        Column("batch", BigInteger, primary_key=True, autoincrement=False),
        Column("claim", String(TOKEN_LENGTH), nullable=False),
        Column("size", Integer, nullable=False),
        # Number of its jobs that also have a row in ``jobs``: with a unique key, a group or a batch.
        Column("keyed", Integer, nullable=False),
        # JSON: [[lowest id, highest id, jobs], …], one for each partition.
        Column("parts", LONG_TEXT, nullable=False),
        Column("oldest_at", BigInteger, nullable=False),
        Column("claimed_at", BigInteger, nullable=False, server_default=now_us()),
        # Deliveries to a query: one for each epoch of the stream, however often its tasks read it. Rows without information
        # count as delivered: they may have been written.
        Column("deliveries", Integer, nullable=False, server_default=text("1")),
        Column("delivered_epoch", BigInteger, nullable=False, server_default=text("0")),
        **MYSQL,
    )


def _held(name: str, metadata: MetaData) -> Table:
    """Jobs that a stream has claimed, out of the way of all other claims."""
    # Read by ranges of ids:
    #   SELECT … FROM jobs_held WHERE stream = ? AND batch = ? AND id BETWEEN ? AND ?
    return Table(
        f"{name}_held",
        metadata,
        Column("stream", BIG_ID, primary_key=True, autoincrement=False),
        Column("batch", BigInteger, primary_key=True, autoincrement=False),
        Column("id", BIG_ID, primary_key=True, autoincrement=False),  # the id that the job had
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", LONG_TEXT, nullable=False),
        Column("headers", LONG_TEXT),
        Column("priority", Integer, nullable=False),
        Column("available_at", BigInteger, nullable=False),  # when it was due
        Column("version", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("unique_key", String(KEY_LENGTH)),
        Column("created_at", BigInteger, nullable=False),
        Column("last_error", LONG_TEXT),
        # Why the job is to move to the dead table when its batch is completed.
        Column("dead_reason", LONG_TEXT),
        Column("group_key", String(KEY_LENGTH)),
        Column("callback_id", BigInteger),
        **MYSQL,
    )
