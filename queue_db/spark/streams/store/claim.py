"""The claim of a batch: due jobs move to the held ones, as the queue's controls allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Row, func, literal, select

from queue_db.groups.tables import group_tables
from queue_db.limits import store as limits
from queue_db.model import MOST_CLAIMED_VERSION
from queue_db.spark.dialects import Move, SparkDialect
from queue_db.spark.dialects.base import keeps_row
from queue_db.spark.streams.store.held import SAME
from queue_db.spark.tables import spark_tables
from queue_db.store import controls
from queue_db.store.base import Transaction, next_attempt, next_version
from queue_db.store.schema import NEVER


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a batch may have."""

    jobs: int  #: at most
    #: Most bytes of payloads, but at least one job; None: any.
    size: int | None = None
    #: No job with a higher id.
    ceiling: int | None = None
    #: Only jobs that were enqueued at this time or later, microseconds since 1970.
    since: int | None = None


def claim_allowed(tx: Transaction, row: Row[Any], batch: int, claim: str, wanted: Wanted) -> int:
    """Claim due jobs as ``wanted``, none while the queue is paused, no more than its rate allows; return how many."""
    control = controls.read(tx, [row.queue]).get(row.queue)
    if control is None or (not control.paused and control.rate is None):
        return _claim(tx, row, batch, claim, wanted.jobs, wanted)
    if control.paused:
        return 0
    allowed, _ = limits.spend(tx, row.queue, wanted.jobs)
    taken = _claim(tx, row, batch, claim, allowed, wanted) if allowed else 0
    if taken < allowed and control.rate is not None and control.per is not None:
        limits.refund(tx, row.queue, round((allowed - taken) * control.per * 1_000_000 / control.rate))
    return taken


def _claim(tx: Transaction, row: Row[Any], batch: int, claim: str, limit: int, wanted: Wanted) -> int:
    """Move up to ``limit`` due jobs to the held ones; return how many."""
    ours = spark_tables(tx.tables)
    jobs, held, streams = tx.tables.jobs, ours.held, ours.streams
    callbacks = group_tables(tx.tables).callbacks
    # Each from an index of its own. Most queues have no such jobs. The index of unique_queue begins with the key: there the keys of
    # other queues count too, since the claim of jobs that may have keys is right for any.
    of_queue = () if tx.dialect.unique_queue else (jobs.c.queue == row.queue,)
    tied = [
        select(literal(1)).where(*of_queue, jobs.c.unique_key.is_not(None)),
        select(literal(1)).where(jobs.c.queue == row.queue, jobs.c.group_key.is_not(None)),
        select(literal(1)).where(callbacks.c.queue == row.queue),
    ]
    others = select(literal(1)).where(streams.c.queue == row.queue, streams.c.id != row.id).limit(1)
    keyed = any(tx.connection.execute(query.limit(1)).first() is not None for query in tied)
    due = [jobs.c.queue == row.queue, jobs.c.available_at <= tx.now, jobs.c.delete_mark == 0]
    # A row written by hand with a higher version than leases have: other claims bury it.
    due.append(jobs.c.version < MOST_CLAIMED_VERSION)
    if wanted.ceiling is not None:
        due.append(jobs.c.id <= wanted.ceiling)
    if wanted.since is not None:
        due.append(jobs.c.created_at >= wanted.since)
    if not keyed:
        due.append(~keeps_row(jobs))
    values: dict[str, ColumnElement[Any]] = {
        "stream": literal(row.id, BigInteger),
        "batch": literal(batch, BigInteger),
        **{name: jobs.c[name] for name in SAME},
        "version": next_version(jobs),
        "attempts": next_attempt(jobs),
    }
    reserved = {
        "due_at": jobs.c.available_at,
        "available_at": NEVER,
        "version": next_version(jobs),
        "attempts": next_attempt(jobs),
        "claim_token": claim,
        "worker": f"stream {row.name}"[:100],
    }
    skip = tx.connection.execute(others).first() is not None
    if wanted.size is not None:
        limit = _fitting(tx, due, limit, wanted.size)
    move = Move(jobs, held, due, limit, values, reserved if keyed else None, skip)
    return SparkDialect.of(tx.dialect).move_to_held(tx, move, tx.time())


def _fitting(tx: Transaction, due: list[ColumnElement[bool]], limit: int, size: int) -> int:
    """How many of the first due jobs have payloads of up to ``size`` bytes together, at least 1."""
    jobs = tx.tables.jobs
    order = (jobs.c.priority, jobs.c.available_at, jobs.c.id)
    sizes = SparkDialect.of(tx.dialect).size(jobs.c.payload).label("size")
    first = select(sizes, *order).where(*due).order_by(*order).limit(limit).subquery("first")
    ordered = (first.c.priority, first.c.available_at, first.c.id)
    total = select(func.sum(first.c.size).over(order_by=ordered, rows=(None, 0)).label("total")).subquery("total")
    found = tx.connection.execute(select(func.count()).select_from(total).where(total.c.total <= size), tx.time()).scalar_one()
    return max(1, int(found))
