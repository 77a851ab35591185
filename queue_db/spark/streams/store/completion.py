"""Completion: the jobs of written batches leave; those with a reason move to the dead table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Row, Text, and_, case, delete, func, insert, select, update

from queue_db.dialects.statements import Pairs, match
from queue_db.model import DeathReason
from queue_db.notifications.deaths import Death, UnleasedJob
from queue_db.spark.streams.store.held import keyed_pairs
from queue_db.spark.streams.store.position import Offset, Session, batches_between, check, held_by, locked, mismatch
from queue_db.spark.tables import spark_tables
from queue_db.store import by_key, on_leave
from queue_db.store.base import Transaction, each
from queue_db.store.on_leave import Departure
from queue_db.store.portions import AT_ONCE


def complete(tx: Transaction, session: Session, end: Offset) -> None:
    """Complete all batches up to ``end``: their jobs leave, those with a reason go to the dead table.

    :raises StreamFencedError, CheckpointMismatchError: nothing was changed.
    """
    row = held_by(tx, session)
    if end.batch > row.acked:
        check(tx, row, end)
        complete_up_to(tx, row, end)


def complete_claim(tx: Transaction, offset: Offset) -> int | None:
    """Complete all up to ``offset``, which Spark has committed, in whichever stream it is; return the number of jobs.

    None: there is no such claim, or another reader has opened the stream since: that reader may be at this batch.
    """
    ours = spark_tables(tx.tables)
    streams, batches = ours.streams, ours.batches
    query = select(streams.c.name).join(batches, batches.c.stream == streams.c.id)
    name = tx.connection.execute(query.where(batches.c.batch == offset.batch, batches.c.claim == offset.claim)).scalar()
    row = None if name is None else locked(tx, name)
    if row is None:
        return None
    found = batches_between(tx, row.id, offset.batch, offset.batch)
    if not found or found[0].claim != offset.claim or found[0].delivered_epoch < row.epoch:
        return None
    return _complete_all(tx, row, offset)


def complete_committed(tx: Transaction, name: str, offsets: Collection[Offset]) -> int | None:
    """Complete all up to the last of the offsets that a checkpoint has committed and that are this stream's.

    It fences off a running reader; the checkpoint stays valid. Returns the number of jobs; None: no such stream.

    :raises CheckpointMismatchError: none of them is this stream's.
    """
    row = locked(tx, name)
    if row is None:
        return None
    claims = {batch.batch: batch.claim for batch in batches_between(tx, row.id, row.acked + 1, row.allocated)}
    claims[row.acked] = row.acked_claim
    mine = [offset for offset in offsets if claims.get(offset.batch) == offset.claim]
    if not mine:
        raise mismatch(name, "none of the offsets that it has committed is one of this stream's")
    return _complete_and_fence(tx, row, max(mine, key=lambda offset: offset.batch))


def complete_held(tx: Transaction, name: str) -> int | None:
    """Complete all held jobs of a stream, which the user knows to be written."""
    row = locked(tx, name)
    if row is None:
        return None
    if row.allocated == row.acked:
        return 0
    (last,) = batches_between(tx, row.id, row.allocated, row.allocated)
    return _complete_and_fence(tx, row, Offset(last.batch, last.claim))


def mark_dead(tx: Transaction, stream: int, reasons: Mapping[tuple[int, int], str]) -> int:
    """Mark held jobs that go to the dead table when their batch is completed; until then a replay still reads them.

    :param reasons: ``(id, version)`` → why.
    :returns: how many were found.
    """
    ours = spark_tables(tx.tables)
    held = ours.held
    # A running completion has read the marks already: wait for it, then there is nothing to mark.
    by_key.lock(tx, ours.streams, {"id": stream}, "id")
    found, left = 0, set(reasons)
    batches = select(ours.batches.c.batch).where(ours.batches.c.stream == stream).scalar_subquery()
    while left:
        # One version of a job in each statement, which finds the reason by the id.
        some = [*dict(sorted(left)).items()][:AT_ONCE]
        left -= set(some)
        # By batch, for no index has the version; a stream has few batches.
        mine = and_(held.c.stream == stream, held.c.batch.in_(batches), match(tx.dialect, some))
        reason = each(held.c.id, {pair[0]: reasons[pair] for pair in some}, Text())
        found += tx.connection.execute(update(held).where(mine).values(dead_reason=reason)).rowcount
    return found


def complete_up_to(tx: Transaction, row: Row[Any], end: Offset) -> None:
    """Complete the batches of a locked row up to ``end``."""
    if end.batch <= row.acked:
        return
    ours = spark_tables(tx.tables)
    held, batches = ours.held, ours.batches
    for batch in batches_between(tx, row.id, row.acked + 1, end.batch):
        mine = and_(held.c.stream == row.id, held.c.batch == batch.batch)
        if batch.keyed:
            for pairs in keyed_pairs(tx, mine):
                gone = _leave(tx, mine, pairs)
                # Jobs that were cancelled or replaced under the same id meanwhile no longer exist: they cannot die.
                lost = [job_id for job_id, _ in pairs if job_id not in gone]
                if lost:
                    tx.connection.execute(delete(held).where(mine, held.c.id.in_(lost)))
        _bury_marked(tx, mine)
        tx.connection.execute(delete(held).where(mine))
    tx.connection.execute(delete(batches).where(batches.c.stream == row.id, batches.c.batch <= end.batch))
    acked = {"acked": end.batch, "acked_claim": end.claim, "seen_at": tx.now}
    by_key.change(tx, ours.streams, {"id": row.id}, acked)


def _complete_all(tx: Transaction, row: Row[Any], end: Offset) -> int:
    batches = spark_tables(tx.tables).batches
    size = select(func.coalesce(func.sum(batches.c.size), 0))
    jobs = tx.connection.execute(size.where(batches.c.stream == row.id, batches.c.batch <= end.batch)).scalar_one()
    complete_up_to(tx, row, end)
    return int(jobs)


def _complete_and_fence(tx: Transaction, row: Row[Any], end: Offset) -> int:
    by_key.change(tx, spark_tables(tx.tables).streams, {"id": row.id}, {"epoch": row.epoch + 1, "holder": None})
    return _complete_all(tx, row, end)


def _leave(tx: Transaction, mine: ColumnElement[bool], pairs: Pairs) -> set[int]:
    """Delete jobs that have a row in both tables from the jobs table; return their ids."""
    held = spark_tables(tx.tables).held
    marked = select(held.c.id).where(mine, held.c.id.in_([job_id for job_id, _ in pairs]), held.c.dead_reason.is_not(None))
    dead = set(tx.connection.execute(marked).scalars())
    # A batch is completed in several parts: the first one takes all locks.
    return on_leave.delete(tx, pairs, lambda job_id: Departure.DEAD if job_id in dead else Departure.COMPLETED, every=True)


def _bury_marked(tx: Transaction, mine: ColumnElement[bool]) -> None:
    ours = spark_tables(tx.tables)
    held, dead, streams, batches = ours.held, tx.tables.dead, ours.streams, ours.batches
    same = (
        "id",
        "kind",
        "payload",
        "headers",
        "priority",
        "version",
        "attempts",
        "max_attempts",
        "unique_key",
        "created_at",
        "group_key",
        "callback_id",
    )
    copied: dict[str, ColumnElement[Any]] = {name: held.c[name] for name in same}
    copied |= {"queue": streams.c.queue, "worker": streams.c.holder}
    copied |= {"died_at": tx.now, "last_error": held.c.dead_reason}
    again = case((batches.c.deliveries > 1, batches.c.deliveries - 1), else_=0)
    copied |= {"attempts": held.c.attempts + again}
    source = (
        select(*copied.values())
        .join_from(held, streams, streams.c.id == held.c.stream)
        .join(batches, and_(batches.c.stream == held.c.stream, batches.c.batch == held.c.batch))
        .where(mine, held.c.dead_reason.is_not(None))
    )
    moved = tx.connection.execute(insert(dead).from_select(list(copied), source), tx.time()).rowcount
    if moved and tx.deaths is not None:
        reported = [copied[name].label(name) for name in ("id", "queue", "kind", "attempts", "max_attempts", "last_error")]
        for row in tx.connection.execute(source.with_only_columns(*reported, maintain_column_froms=True).order_by(held.c.id)):
            job = UnleasedJob(row.id, row.queue, row.kind, row.attempts, row.max_attempts)
            tx.deaths[row.id] = Death(job, DeathReason.REJECTED, row.last_error)
