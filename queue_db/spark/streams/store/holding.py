"""The held jobs among all jobs: how the queue finds and counts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, String, func, literal, select

from queue_db.spark.tables import spark_tables
from queue_db.store.base import Store, Transaction
from queue_db.store.schema import NEVER


def queues(tx: Transaction) -> Sequence[str]:
    """Names of the queues whose jobs are held by streams."""
    streams = spark_tables(tx.tables).streams
    return tx.connection.execute(select(streams.c.queue).where(streams.c.allocated > streams.c.acked)).scalars().all()


def knows(tx: Transaction, queue: str) -> bool:
    """Whether there is a stream of this queue."""
    streams = spark_tables(tx.tables).streams
    return tx.connection.execute(select(literal(1)).where(streams.c.queue == queue).limit(1)).first() is not None


def count(tx: Transaction, queue: str) -> int:
    """The number of jobs of a queue that streams hold."""
    ours = spark_tables(tx.tables)
    streams, batches = ours.streams, ours.batches
    of_queue = select(func.coalesce(func.sum(batches.c.size), 0)).join_from(batches, streams, batches.c.stream == streams.c.id)
    return int(tx.connection.execute(of_queue.where(streams.c.queue == queue)).scalar_one())


def job(
    store: Store,
    queue: str | None,
    job_id: int | ColumnElement[int],
    shown: Callable[[Mapping[str, ColumnElement[Any]]], Select[Any]],
) -> Select[Any]:
    """The held job with this id, with the columns that a held job with a unique key has in the jobs table."""
    ours = spark_tables(store.tables)
    streams, batches, held = ours.streams, ours.batches, ours.held
    columns: dict[str, ColumnElement[Any]] = {column.name: column for column in held.c}
    columns |= {
        "queue": streams.c.queue,
        "available_at": literal(NEVER, BigInteger),
        "worker": literal("stream ", String).concat(streams.c.name),
    }
    return (
        shown(columns)
        # Batch by batch, each by the primary key of the held jobs.
        .join_from(batches, held, (held.c.stream == batches.c.stream) & (held.c.batch == batches.c.batch) & (held.c.id == job_id))
        .join(streams, streams.c.id == batches.c.stream)
        .where(*([] if queue is None else [streams.c.queue == queue]))
    )
