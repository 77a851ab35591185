"""Release: the held jobs of a stream return to its queue."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import ColumnElement, Row, case, delete, insert, literal, select, update

from queue_db.spark.dialects.base import stays
from queue_db.spark.streams.store.held import SAME, keyed_pairs
from queue_db.spark.streams.store.position import locked
from queue_db.spark.tables import spark_tables
from queue_db.store.base import Transaction, next_version


def release(tx: Transaction, name: str) -> int | None:
    """Return the held jobs of a stream to its queue, and end its checkpoints; the number of jobs; None: no such stream."""
    row = locked(tx, name)
    return None if row is None else release_row(tx, row)


def expired(tx: Transaction) -> list[str]:
    """Names of the streams with held jobs and without a reader for longer than their retention."""
    streams = spark_tables(tx.tables).streams
    late = streams.c.seen_at + streams.c.retention < tx.moment
    query = select(streams.c.name).where(streams.c.allocated > streams.c.acked, late).order_by(streams.c.name)
    return list(tx.connection.execute(query, tx.time()).scalars())


def release_expired(tx: Transaction, name: str) -> int:
    """:func:`release`, if it still has no reader."""
    row = locked(tx, name)
    if row is None or name not in expired(tx):
        return 0
    return release_row(tx, row)


def release_row(tx: Transaction, row: Row[Any]) -> int:
    """Release the stream of a locked row; return the number of jobs."""
    ours = spark_tables(tx.tables)
    jobs, held, batches, streams = tx.tables.jobs, ours.held, ours.batches, ours.streams
    mine = held.c.stream == row.id
    unworked = case((held.c.attempts > 0, held.c.attempts - 1), else_=0)
    back: dict[str, ColumnElement[Any]] = {name: held.c[name] for name in SAME}
    back |= {"queue": literal(row.queue, jobs.c.queue.type), "version": next_version(held), "attempts": unworked}
    source = select(*back.values()).where(mine, ~stays(held))
    released = tx.connection.execute(insert(jobs).from_select(list(back), source)).rowcount
    free = {"available_at": jobs.c.due_at, "version": next_version(jobs), "claim_token": None, "worker": None}
    free["attempts"] = case((jobs.c.attempts > 0, jobs.c.attempts - 1), else_=0)
    for pairs in keyed_pairs(tx, mine):
        # A job that was replaced or cancelled meanwhile has another version and stays as it is.
        released += len(tx.dialect.change(tx, jobs, pairs, free, {}))
    tx.connection.execute(delete(held).where(mine))
    tx.connection.execute(delete(batches).where(batches.c.stream == row.id))
    # Another token for the same number: no existing checkpoint has it.
    ended = {"epoch": row.epoch + 1, "acked": row.allocated, "acked_claim": secrets.token_hex(16), "holder": None}
    tx.connection.execute(update(streams).where(streams.c.id == row.id).values(ended))
    return released
