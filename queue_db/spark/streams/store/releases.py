"""Release: the held jobs of a stream return to its queue."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, insert, literal, select

from queue_db.dialects.statements import NEXT_VERSION, ONE_ATTEMPT_LESS
from queue_db.spark.dialects.base import keeps_row
from queue_db.spark.streams.store.held import SAME, keyed_pairs
from queue_db.spark.streams.store.position import locked
from queue_db.spark.tables import spark_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction, attempt_before, next_version


def release(tx: Transaction, name: str) -> int | None:
    """Return the held jobs of a stream to its queue, and end its checkpoints; the number of jobs; None: no such stream."""
    row = locked(tx, name)
    return None if row is None else release_row(tx, row)


def expired(tx: Transaction) -> list[str]:
    """Names of the streams with held jobs and without a reader for longer than their retention."""
    streams = spark_tables(tx.tables).streams
    late = streams.c.seen_at + streams.c.retention < tx.now
    query = select(streams.c.name).where(streams.c.allocated > streams.c.acked, late).order_by(streams.c.name)
    return list(tx.connection.execute(query, tx.time()).scalars())


def release_expired(tx: Transaction, name: str) -> int | None:
    """:func:`release`, if it still has no reader; None: it has one, or there is no such stream."""
    row = locked(tx, name)
    if row is None or name not in expired(tx):
        return None
    return release_row(tx, row)


def release_row(tx: Transaction, row: Row[Any]) -> int:
    """Release the stream of a locked row; return the number of jobs."""
    ours = spark_tables(tx.tables)
    jobs, held, batches = tx.tables.jobs, ours.held, ours.batches
    mine = held.c.stream == row.id
    back: dict[str, ColumnElement[Any]] = {name: held.c[name] for name in SAME}
    back |= {"queue": literal(row.queue, jobs.c.queue.type), "version": next_version(held), "attempts": attempt_before(held)}
    source = select(*back.values()).where(mine, ~keeps_row(held))
    released = tx.connection.execute(insert(jobs).from_select(list(back), source)).rowcount
    free = f"available_at = due_at, version = {NEXT_VERSION}, claim_token = NULL, worker = NULL, attempts = {ONE_ATTEMPT_LESS}"
    for pairs in keyed_pairs(tx, mine):
        # A job that was replaced or cancelled meanwhile has another version and stays as it is.
        released += len(tx.dialect.change(tx, jobs, pairs, free, {}))
    tx.connection.execute(delete(held).where(mine))
    tx.connection.execute(delete(batches).where(batches.c.stream == row.id))
    # Another token for the same number: no existing checkpoint has it.
    ended = {"epoch": row.epoch + 1, "acked": row.allocated, "acked_claim": secrets.token_hex(16), "holder": None}
    by_key.change(tx, ours.streams, {"id": row.id}, ended)
    return released
