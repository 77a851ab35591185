"""The newest failed attempts, grouped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Subquery, func, select, tuple_

from queue_db.store.base import Store, Transaction
from queue_db.store.portions import portions


def groups(
    tx: Transaction, *, queue: str | None, kind: str | None, error_class: str | None, scan: int, limit: int
) -> list[tuple[Row[Any], Row[Any]]]:
    """Groups of the newest ``scan`` failed attempts by queue, kind and error class, largest first, each with its newest attempt.

    The row of a group has ``queue, kind, error_class, attempts, dead, first_at, last_at``. The row of an attempt has ``job_id,
    message, trace``.
    """
    attempts = _newest(tx.store, queue, kind, error_class, scan)
    place = func.row_number().over(
        partition_by=(attempts.c.queue, attempts.c.kind, attempts.c.error_class),
        order_by=(attempts.c.failed_at.desc(), attempts.c.job_id.desc(), attempts.c.version.desc()),
    )
    numbered = select(attempts, place.label("place")).subquery("numbered")
    sizes = (
        select(
            attempts.c.queue,
            attempts.c.kind,
            attempts.c.error_class,
            func.count().label("attempts"),
            func.count(attempts.c.dead_id).label("dead"),
            func.min(attempts.c.failed_at).label("first_at"),
            func.max(attempts.c.failed_at).label("last_at"),
        )
        .group_by(attempts.c.queue, attempts.c.kind, attempts.c.error_class)
        .order_by(func.count().desc(), func.max(attempts.c.failed_at).desc())
        .limit(limit)
    )
    sizes_found = tx.connection.execute(sizes).all()
    if not sizes_found:
        return []
    keys = {
        (row.queue, row.kind, row.error_class): (row.job_id, row.version)
        for row in tx.connection.execute(select(numbered).where(numbered.c.place == 1))
    }
    wanted = {keys[group]: row for row in sizes_found if (group := (row.queue, row.kind, row.error_class)) in keys}
    shown = _attempts(tx, list(wanted))
    # An attempt may have been deleted between the statements.
    return [(row, shown[key]) for key, row in wanted.items() if key in shown]


def _attempts(tx: Transaction, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row[Any]]:
    errors = tx.tables.errors
    columns = (errors.c.job_id, errors.c.version, errors.c.message, errors.c.trace)
    shown: dict[tuple[int, int], Row[Any]] = {}
    for portion in portions(keys):
        wanted = tuple_(errors.c.job_id, errors.c.version).in_(portion)
        shown.update({(row.job_id, row.version): row for row in tx.connection.execute(select(*columns).where(wanted))})
    return shown


def _newest(store: Store, queue: str | None, kind: str | None, error_class: str | None, scan: int) -> Subquery:
    """The attempts of queue, kind and error class among the newest ``scan``; ``dead_id`` is set if the job died by the attempt."""
    errors, dead = store.tables.errors, store.tables.dead
    columns = (errors.c.job_id, errors.c.version, errors.c.queue, errors.c.kind, errors.c.error_class, errors.c.failed_at)
    latest = select(*columns).order_by(errors.c.failed_at.desc()).limit(scan).subquery("latest")
    # A death increments the version, and nothing changes the version in the dead table.
    died = (dead.c.id == latest.c.job_id) & (dead.c.version == latest.c.version + 1)
    query = select(latest, dead.c.id.label("dead_id")).join_from(latest, dead, died, isouter=True)
    if queue is not None:
        query = query.where(latest.c.queue == queue)
    if kind is not None:
        query = query.where(latest.c.kind == kind)
    if error_class is not None:
        query = query.where(latest.c.error_class == error_class)
    return query.subquery("some")
