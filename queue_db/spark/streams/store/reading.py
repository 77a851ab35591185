"""The verbs of a reader: open a stream, claim batches, hand them out, read them."""

from __future__ import annotations

import json
import secrets
from typing import Any

from sqlalchemy import Integer, func, insert, literal, select

from queue_db.errors import StreamError
from queue_db.spark.dialects import SparkDialect
from queue_db.spark.ranges.store import COLUMNS, Rows, rows_of
from queue_db.spark.streams.store.claim import Wanted, claim_allowed
from queue_db.spark.streams.store.completion import complete_up_to
from queue_db.spark.streams.store.partitions import batch_ranges
from queue_db.spark.streams.store.position import Offset, Part, Session, batches_between, check, held_by, locked, mismatch
from queue_db.spark.streams.store.split_poison_batch import give_up
from queue_db.spark.tables import spark_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction


def open_stream(tx: Transaction, name: str, queue: str, holder: str, retention: int) -> Session:
    """Take over the stream, or create it. An earlier reader is fenced off.

    :raises StreamError: it reads another queue.
    """
    streams = spark_tables(tx.tables).streams
    row = locked(tx, name)
    if row is None:
        fresh = {"name": name, "queue": queue, "acked_claim": secrets.token_hex(16), "retention": retention, "epoch": 0}
        by_key.insert_new(tx, streams, fresh)  # if it does not, another reader has created it meanwhile
        row = locked(tx, name)
        assert row is not None  # noqa: S101 - it is never deleted
    if row.queue != queue:
        raise StreamError(f"stream {name!r} reads queue {row.queue!r}, not {queue!r}: give a stream of another name to this queue")
    seen = tx.now
    taken = {"epoch": row.epoch + 1, "holder": holder, "retention": retention, "seen_at": seen}
    by_key.change(tx, streams, {"id": row.id}, taken)
    return Session(row.id, name, queue, row.epoch + 1)


def initial(tx: Transaction, session: Session) -> Offset:
    """The start of a reader without a checkpoint: after the completed batches."""
    row = held_by(tx, session)
    return Offset(row.acked, row.acked_claim)


def allocate(
    tx: Transaction,
    session: Session,
    start: Offset,
    *,
    limit: int,
    ceiling: int | None,
    partitions: int,
    size: int | None = None,
    since: int | None = None,
) -> Offset:
    """The next offset after ``start``: a batch that is claimed already, or a fresh claim of up to ``limit`` due jobs.

    Spark calls it when all up to ``start`` is written, so those batches are completed first. Returns ``start`` if nothing is due,
    or if the queue is paused or its rate is used up.

    :param ceiling: no job with a higher id is claimed.
    :param size: most bytes of payloads of a fresh claim, which has at least one job.
    :param since: claim only jobs that were enqueued at this time or later, microseconds since 1970.
    :raises StreamFencedError, CheckpointMismatchError: nothing was changed.
    """
    row = held_by(tx, session)
    check(tx, row, start)
    complete_up_to(tx, row, start)
    if row.allocated > start.batch:
        return Offset(start.batch + 1, batches_between(tx, row.id, start.batch + 1, start.batch + 1)[0].claim)
    batch, claim = start.batch + 1, secrets.token_hex(16)
    taken = claim_allowed(tx, row, batch, claim, Wanted(limit, size, ceiling, since))
    ours = spark_tables(tx.tables)
    streams, batches = ours.streams, ours.batches
    seen = tx.now
    if not taken:
        return start
    parts, keyed, oldest = batch_ranges(tx, row.id, batch, partitions)
    record = {"stream": row.id, "batch": batch, "claim": claim, "size": sum(jobs for _, _, jobs in parts), "keyed": keyed}
    record |= {"parts": json.dumps(parts), "oldest_at": oldest, "claimed_at": seen, "deliveries": 0}
    tx.connection.execute(insert(batches).values(record), tx.time())
    by_key.change(tx, streams, {"id": row.id}, {"allocated": batch, "seen_at": seen})
    return Offset(batch, claim)


def measured(tx: Transaction, session: Session, end: Offset, *, size: bool) -> tuple[int, int]:
    """The jobs of a claimed batch, and the bytes of their payloads; 0 unless ``size`` asks for them."""
    ours = spark_tables(tx.tables)
    batches, held = ours.batches, ours.held
    this = select(batches.c.size).where(batches.c.stream == session.stream, batches.c.batch == end.batch)
    jobs = tx.connection.execute(this).scalar() or 0
    if not size:
        return int(jobs), 0
    total = select(func.sum(SparkDialect.of(tx.dialect).size(held.c.payload)))
    of_batch = total.where(held.c.stream == session.stream, held.c.batch == end.batch)
    return int(jobs), int(tx.connection.execute(of_batch).scalar() or 0)


def keep_alive(tx: Transaction, session: Session) -> None:
    """Record that the reader still runs, though nothing is due."""
    mine = {"id": session.stream, "epoch": session.epoch}
    by_key.change(tx, spark_tables(tx.tables).streams, mine, {"seen_at": tx.now})


def partition(tx: Transaction, session: Session, start: Offset, end: Offset, *, most: int | None = None) -> list[Part]:
    """The recorded partitions of the batches after ``start`` up to ``end``.

    Each session that gets a batch is one delivery of it, however often it calls this.

    :param most: a batch that is not completed after so many deliveries is cut in pieces, which follow one after the other, each
        with one delivery; a piece of one job goes to the dead table.
    :raises StreamFencedError, CheckpointMismatchError: as :func:`allocate`.
    """
    row = held_by(tx, session)
    check(tx, row, start)
    check(tx, row, end)
    found = batches_between(tx, row.id, start.batch + 1, end.batch)
    if len(found) != end.batch - start.batch:
        raise mismatch(row.name, f"batches {start.batch + 1} to {end.batch} are not all there")
    if any(batch.delivered_epoch < session.epoch for batch in found):
        batches = spark_tables(tx.tables).batches
        for batch in found:
            if batch.delivered_epoch < session.epoch:
                dying = most is not None and batch.deliveries >= most and give_up(tx, row.name, batch)
                delivered: dict[str, Any] = {"delivered_epoch": session.epoch}
                if not dying:
                    delivered["deliveries"] = batches.c.deliveries + 1
                by_key.change(tx, batches, {"stream": row.id, "batch": batch.batch}, delivered)
        found = batches_between(tx, row.id, start.batch + 1, end.batch)
    return [
        Part(batch.batch, low, high, jobs, batch.deliveries - 1) for batch in found for low, high, jobs in json.loads(batch.parts)
    ]


def read_part(tx: Transaction, stream: int, part: Part, *, after: int, limit: int, csv: bool = False) -> Rows:
    """Up to ``limit`` held jobs of ``part`` with ids above ``after``, by id: :data:`queue_db.spark.ranges.store.COLUMNS`."""
    held = spark_tables(tx.tables).held
    # Typed: servers take a bare parameter for text.
    attempts = (held.c.attempts + literal(part.again, Integer)).label("attempts") if part.again else held.c.attempts
    query = (
        select(*(attempts if name == "attempts" else held.c[name] for name in COLUMNS))
        .where(held.c.stream == stream, held.c.batch == part.batch, held.c.id > after, held.c.id <= part.high)
        .order_by(held.c.id)
        .limit(limit)
    )
    return rows_of(tx, query, csv=csv)
