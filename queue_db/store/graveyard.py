"""The dead table: list, bring back, forget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select
from sqlalchemy.exc import IntegrityError

from queue_db.errors import TransientStorageError
from queue_db.model import MOST_VERSION
from queue_db.store import groups
from queue_db.store.base import Store
from queue_db.store.schema import BLOCKED

Place = tuple[int, int]
"""``(died_at, id)``: where a dead job stands among the others."""

_BEFORE_ALL: Place = (-1, -1)


def _chosen(store: Store, queue: str | None, kind: str | None, ids: Sequence[int] | None = None) -> list[ColumnElement[bool]]:
    dead = store.tables.dead
    conditions: list[ColumnElement[bool]] = []
    if queue is not None:
        conditions.append(dead.c.queue == queue)
    if kind is not None:
        conditions.append(dead.c.kind == kind)
    if ids is not None:
        conditions.append(dead.c.id.in_(ids))
    return conditions


def page(
    connection: Connection, store: Store, *, queue: str | None, kind: str | None, limit: int, after: tuple[int, int] | None
) -> list[Row[Any]]:
    """Dead jobs, longest dead first; ``after``: (died_at, id) of the last one of the page before."""
    dead = store.tables.dead
    conditions = _chosen(store, queue, kind)
    if after is not None:
        died_at, job_id = after
        conditions.append((dead.c.died_at > died_at) | ((dead.c.died_at == died_at) & (dead.c.id > job_id)))
    query = select(dead).where(*conditions).order_by(dead.c.died_at, dead.c.id).limit(limit)
    return list(connection.execute(query).all())


def which(connection: Connection, store: Store, *, ids: Sequence[int], queue: str | None, kind: str | None) -> set[int]:
    """Those of ``ids`` that are dead jobs of that queue and kind."""
    return set(connection.execute(select(store.tables.dead.c.id).where(*_chosen(store, queue, kind, ids))).scalars())


def redrive(
    connection: Connection,
    store: Store,
    *,
    queue: str | None,
    kind: str | None,
    ids: Sequence[int] | None,
    above: int,
    limit: int,
) -> tuple[list[int], dict[int, tuple[str, int | None]]]:
    """Bring up to ``limit`` dead jobs with ids above ``above`` back as due and untried, under their old ids.

    Returns the ids brought back, and those left because a live job has their unique key, with the key and the id of that job.
    """
    jobs, dead = store.tables.jobs, store.tables.dead
    conditions = [*_chosen(store, queue, kind, ids), dead.c.id > above]
    query = select(dead).where(*conditions).order_by(dead.c.id).limit(limit)
    found = connection.execute(store.dialect.lock_rows(query, skip=False)).all()
    if not found:
        return [], {}
    now = store.read_clock(connection)
    keyed = [(row.queue, row.unique_key) for row in found if row.unique_key is not None]
    # The ids of the jobs that have the keys; None for one that comes back here.
    live: dict[tuple[str, str] | None, int | None] = {
        key: job_id for key, (job_id, _) in store.dialect.live_keys(connection, jobs, keyed).items()
    }
    back: list[dict[str, Any]] = []
    left: dict[int, tuple[str, int | None]] = {}
    for row in found:
        key = (row.queue, row.unique_key)
        if row.unique_key is not None and key in live:
            left[row.id] = row.unique_key, live[key]
            continue
        if row.unique_key is not None:
            live[key] = None  # two dead jobs may have the same key: one of them comes back
        kept = (
            "id",
            "queue",
            "kind",
            "payload",
            "headers",
            "priority",
            "max_attempts",
            "unique_key",
            "created_at",
            "last_error",
            "group_key",
        )
        back.append(
            {name: getattr(row, name) for name in kept} | {"version": min(row.version + 1, MOST_VERSION), "available_at": now}
        )
    if back:
        in_groups = [groups.of(row["queue"], row["group_key"]) for row in back]
        if grouped := {group for group in in_groups if group is not None}:
            limits = groups.lock(connection, store, grouped)
            for values, waits in zip(back, groups.waiting(connection, store, in_groups, limits), strict=True):
                values["available_at"] = BLOCKED if waits else now
        try:
            connection.execute(insert(jobs), back)
        except IntegrityError as error:
            raise TransientStorageError("a unique key was enqueued meanwhile", statement_name="graveyard.redrive") from error
        connection.execute(delete(dead).where(dead.c.id.in_([row["id"] for row in back])))
    return [row["id"] for row in back], left


def border(connection: Connection, store: Store, *, queue: str | None, kind: str | None, keep: int) -> Place:
    """The place of the last one that goes when the ``keep`` dead jobs stay that died last; before all of them if none goes."""
    dead = store.tables.dead
    query = select(dead.c.died_at, dead.c.id).where(*_chosen(store, queue, kind))
    row = connection.execute(query.order_by(dead.c.died_at.desc(), dead.c.id.desc()).offset(keep).limit(1)).first()
    return _BEFORE_ALL if row is None else (row.died_at, row.id)


def purge(connection: Connection, store: Store, *, queue: str | None, kind: str | None, upto: Place | None, limit: int) -> int:
    """Delete up to ``limit`` dead jobs that stand no later than ``upto``; return how many."""
    dead = store.tables.dead
    conditions = _chosen(store, queue, kind)
    if upto is not None:
        died_at, job_id = upto
        conditions += [dead.c.died_at <= died_at, (dead.c.died_at < died_at) | (dead.c.id <= job_id)]
    # In the order of an index: there is none of the times of all queues.
    order = [dead.c.id] if queue is None else [dead.c.died_at, dead.c.id]
    query = select(dead.c.id).where(*conditions).order_by(*order).limit(limit)
    ids = list(connection.execute(query).scalars())
    # Asked again: one of them may have been brought back meanwhile, and have died anew.
    return connection.execute(delete(dead).where(dead.c.id.in_(ids), *conditions)).rowcount if ids else 0
