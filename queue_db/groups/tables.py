"""The tables of groups and batches."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import BIG_ID, DEFAULT_MAX_ATTEMPTS, KIND_LENGTH, LONG_TEXT, MYSQL, QUEUE_LENGTH
from queue_db.store.schema.tables import Tables

#: The number of rows in the table ``stripes``.
STRIPES = 64


@dataclass(frozen=True, slots=True)
class GroupTables:
    """The tables of groups and batches in one store."""

    stripes: Table
    callbacks: Table


def described(name: str, metadata: MetaData) -> GroupTables:
    """Make the tables beside the table ``name`` of the jobs."""
    return GroupTables(_stripes(name, metadata), _callbacks(name, metadata))


def group_tables(tables: Tables) -> GroupTables:
    """The tables of groups and batches beside those of the queue."""
    found: GroupTables = tables.slices["groups"]
    return found


def _stripes(name: str, metadata: MetaData) -> Table:
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


def _callbacks(name: str, metadata: MetaData) -> Table:
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
