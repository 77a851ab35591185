"""List, redrive and purge the jobs in the dead table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, FromClause, Row, Select, and_, delete, exists, func, insert, select
from sqlalchemy.exc import IntegrityError

from queue_db.codecs import JSONCodec
from queue_db.dialects.inserts import live_keys
from queue_db.errors import TransientStorageError
from queue_db.leased_job import decode_headers
from queue_db.model import INTERRUPTIONS_HEADER, MOST_VERSION, graph_of, group_of
from queue_db.monitoring.store.counts import names
from queue_db.slices import dependents, nodes
from queue_db.store.base import Store, Transaction
from queue_db.store.schema import BLOCKED, CLASS_LENGTH

DeadCursor = tuple[int, int]
"""``(died_at, id)``: the position of a dead job in the order of deaths."""

_BEFORE_ALL: DeadCursor = (-1, -1)

# The range of ``died_at``.
_EARLIEST, _LATEST = -(2**63), 2**63 - 1

# A list of all queues reads as many dead jobs of each at first, and then this many times as many of those whose jobs it takes.
_FIRST, _GROWTH = 1, 4

# The lists of so many queues are merged. Of more queues, that many statements take longer than to read and sort all dead jobs.
_MERGED = 100

# Columns that a redriven job keeps.
_SAME = (
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

_HEADERS = JSONCodec()

_Key = tuple[str, str]


class Like(NamedTuple):
    """A filter for dead jobs. A field that is None matches every job."""

    queue: str | None = None
    kind: str | None = None
    #: The class of the last error; empty: the handler gave a reason instead, and the history has the failed attempt.
    error_class: str | None = None


def _matching(store: Store, like: Like, ids: Sequence[int] | None = None) -> list[ColumnElement[bool]]:
    dead = store.tables.dead
    conditions: list[ColumnElement[bool]] = []
    if like.queue is not None:
        conditions.append(dead.c.queue == like.queue)
    if like.kind is not None:
        conditions.append(dead.c.kind == like.kind)
    if like.error_class is not None:
        conditions.append(_died_of(store, dead, like.error_class))
    if ids is not None:
        conditions.append(dead.c.id.in_(ids))
    return conditions


def _died_of(store: Store, rows: FromClause, error_class: str) -> ColumnElement[bool]:
    if error_class:
        # ``last_error`` is ``Class: text``. The history cuts long class names, so a name of the full length may be only the start.
        start = error_class if len(error_class) >= CLASS_LENGTH else f"{error_class}: "
        return func.substr(rows.c.last_error, 1, len(start)) == start
    errors = store.tables.errors
    same = (errors.c.job_id == rows.c.id) & (errors.c.version == rows.c.version - 1)
    return exists().where(same, errors.c.error_class == "").correlate(rows)


def page_of_dead_jobs(tx: Transaction, *, like: Like, limit: int, after: DeadCursor | None, newest: bool = False) -> list[Row[Any]]:
    """The rows of up to ``limit`` dead jobs, longest dead first.

    Each queue is a range of the index on queue and death. No index has the deaths of all queues, so without a queue those of each
    are merged; with dead jobs in more than 100 queues the database sorts them.

    :param after: the position of the last job of the previous page; None: begin with the first job.
    :param newest: those that died last come first.
    """
    queues = names(tx, tx.tables.dead, _MERGED + 1) if like.queue is None else []
    if like.queue is not None or len(queues) > _MERGED:
        return list(islice(_in_order(tx, like, limit, after, newest), limit))
    each = [_in_order(tx, like._replace(queue=queue), _FIRST, after, newest) for queue in queues]
    return list(islice(merge(*each, key=lambda row: (row.died_at, row.id), reverse=newest), limit))


def _in_order(tx: Transaction, like: Like, at_once: int, after: DeadCursor | None, newest: bool) -> Iterator[Row[Any]]:
    """The rows of the dead jobs of one queue, or of all, in the order of deaths.

    :param at_once: how many the first statement reads. Each further one reads more.
    """
    died_at, job_id = tx.tables.dead.c.died_at, tx.tables.dead.c.id
    query = select(tx.tables.dead).where(*_matching(tx.store, like))
    query = query.order_by(*(column.desc() if newest else column for column in (died_at, job_id)))
    # The range holds every time. With it, a planner without statistics reads the index in order and does not sort.
    ranges: list[ColumnElement[bool]] = [died_at.between(_EARLIEST, _LATEST)]
    while True:
        if after is not None:
            # Many jobs may die at the same time, and not every database reads a comparison of pairs as one range.
            at, number = after
            same = and_(died_at == at, job_id < number if newest else job_id > number)
            ranges = [same, died_at.between(_EARLIEST, at - 1) if newest else died_at.between(at + 1, _LATEST)]
        found: list[Row[Any]] = []
        for within in ranges:
            if len(found) < at_once:
                found += tx.connection.execute(query.where(within).limit(at_once - len(found))).all()
        yield from found
        if len(found) < at_once:
            return
        after, at_once = (found[-1].died_at, found[-1].id), at_once * _GROWTH


def which(tx: Transaction, *, ids: Sequence[int], like: Like) -> set[int]:
    """Those of ``ids`` that are dead jobs which match ``like``."""
    return set(tx.connection.execute(select(tx.tables.dead.c.id).where(*_matching(tx.store, like, ids))).scalars())


def redrive(
    tx: Transaction, *, like: Like, ids: Sequence[int] | None, above: int, limit: int, promised: dict[_Key, int] | None = None
) -> tuple[list[int], dict[int, tuple[str, int | None]]]:
    """Move up to ``limit`` dead jobs with ids above ``above`` back to their queues.

    The jobs keep their ids, are due now, and have no attempts.

    :param promised: of a dry run, which changes nothing: the unique keys of the jobs that its earlier calls have returned, with the
        ids of these jobs. This call adds the jobs that it returns. The transaction may run again: then it returns them again.
    :return: the ids of the moved jobs, and the jobs that stay dead because another job has their unique key: id → the key, and
        the id of the live job. That id is None if this call moves another dead job with the same key.
    """
    dead = tx.tables.dead
    columns = (*dead.c,) if promised is None else (dead.c.id, dead.c.queue, dead.c.unique_key)
    query: Select[Any] = select(*columns).where(*_matching(tx.store, like, ids), dead.c.id > above).order_by(dead.c.id).limit(limit)
    rows: Sequence[Row[Any]] = tx.connection.execute(tx.dialect.lock_rows(query, skip=False) if promised is None else query).all()
    returning, staying = _without_live_keys(tx, rows, promised or {})
    if promised is not None:
        promised.update(((row.queue, row.unique_key), row.id) for row in returning if row.unique_key is not None)
    elif returning:
        _move(tx, returning)
    return [row.id for row in returning], staying


def _move(tx: Transaction, dead_jobs: Sequence[Row[Any]]) -> None:
    dead, now = tx.tables.dead, tx.read_clock()
    rows = [
        {name: getattr(row, name) for name in _SAME} | {"version": min(row.version + 1, MOST_VERSION), "available_at": now}
        for row in dead_jobs
    ]
    for row, dead_job in zip(rows, dead_jobs, strict=True):
        row["headers"] = _without_interruptions(row["headers"])
        row["callback_id"] = None if graph_of(dead_job.callback_id) is None else dead_job.callback_id
    block_behind_others(tx, rows)
    try:
        tx.connection.execute(insert(tx.tables.jobs), rows)
    except IntegrityError as error:
        raise TransientStorageError("a unique key was enqueued meanwhile", statement_name="dead.redrive") from error
    tx.connection.execute(delete(dead).where(dead.c.id.in_([row.id for row in dead_jobs])))
    if of_graphs := [row["id"] for row in rows if row["callback_id"] is not None]:
        nodes().redriven(tx, of_graphs)


def _without_interruptions(headers: str | None) -> str | None:
    """The headers of a job that begins anew: a worker may interrupt it as often as before its death."""
    if headers is None or INTERRUPTIONS_HEADER not in headers:
        return headers
    left = dict(decode_headers(headers))
    if left.pop(INTERRUPTIONS_HEADER, None) is None:
        return headers
    return _HEADERS.encode(left) if left else None


def _without_live_keys(
    tx: Transaction, rows: Sequence[Row[Any]], promised: Mapping[_Key, int]
) -> tuple[list[Row[Any]], dict[int, tuple[str, int | None]]]:
    """The jobs among ``rows`` whose unique keys are free, and those whose keys are taken: id → the key, and the id of its job."""
    keyed = [(row.queue, row.unique_key) for row in rows if row.unique_key is not None]
    live = live_keys(tx, tx.tables.jobs, keyed)
    # Jobs among ``rows`` were promised by an earlier attempt of this transaction.
    here = {row.id for row in rows}
    # The id is None if the key belongs to a dead job that is moved in this run.
    owners: dict[_Key | None, int | None] = {key: None for key, job_id in promised.items() if job_id not in here}
    owners |= {key: job_id for key, (job_id, _) in live.items()}
    free: list[Row[Any]] = []
    taken: dict[int, tuple[str, int | None]] = {}
    for row in rows:
        key = (row.queue, row.unique_key)
        if row.unique_key is None:
            free.append(row)
        elif key in owners:
            taken[row.id] = row.unique_key, owners[key]
        else:
            owners[key] = None  # of several dead jobs with the same key only the first is moved
            free.append(row)
    return free, taken


def block_behind_others(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    """Lock the groups of the jobs in ``rows``, and block the jobs that have to wait for others of their group."""
    of_rows = [group_of(row["queue"], row["group_key"]) for row in rows]
    grouped = {group for group in of_rows if group is not None}
    if not grouped:
        return
    for row, waits in zip(rows, dependents().enter(tx, grouped).waiting(of_rows), strict=True):
        if waits:
            row["available_at"] = BLOCKED


def newest_to_purge(tx: Transaction, *, like: Like, age: int | None, keep: int | None) -> DeadCursor | None:
    """The position of the last job to delete, before all jobs if all stay; None: no bound.

    :param age: only jobs that have been dead for this many microseconds.
    :param keep: the number of latest dead jobs that stay.
    """
    dead = tx.tables.dead
    bounds: list[DeadCursor] = []
    if age is not None:
        bounds.append((tx.read_clock() - age, -1))
    if keep is not None:
        query = select(dead.c.died_at, dead.c.id).where(*_matching(tx.store, like))
        row = tx.connection.execute(query.order_by(dead.c.died_at.desc(), dead.c.id.desc()).offset(keep).limit(1)).first()
        bounds.append(_BEFORE_ALL if row is None else (row.died_at, row.id))
    return min(bounds, default=None)


def purge(tx: Transaction, *, like: Like, upto: DeadCursor | None, limit: int) -> int:
    """Delete up to ``limit`` dead jobs that match ``like``; return how many.

    :param upto: the position of the last job that may be deleted; None: no bound.
    """
    dead = tx.tables.dead
    conditions = _to_purge(tx.store, like, upto)
    # Read in the order of an index. Without a queue that is the primary key, since no index on ``died_at`` spans all queues.
    order = [dead.c.id] if like.queue is None else [dead.c.died_at, dead.c.id]
    rows = tx.connection.execute(select(dead.c.id, dead.c.callback_id).where(*conditions).order_by(*order).limit(limit)).all()
    if not rows:
        return 0
    # Check the conditions again: since the SELECT, a job may have been redriven and have died again.
    purged = tx.connection.execute(delete(dead).where(dead.c.id.in_([row.id for row in rows]), *conditions)).rowcount
    if of_graphs := [row.id for row in rows if graph_of(row.callback_id) is not None]:
        nodes().purged(tx, of_graphs)
    return purged


def count(tx: Transaction, *, like: Like, upto: DeadCursor | None, most: int | None) -> int:
    """How many dead jobs :func:`purge` would delete, at most ``most``."""
    matching = select(tx.tables.dead.c.id).where(*_to_purge(tx.store, like, upto)).limit(most).subquery("matching")
    return int(tx.connection.execute(select(func.count()).select_from(matching)).scalar_one())


def _to_purge(store: Store, like: Like, upto: DeadCursor | None) -> list[ColumnElement[bool]]:
    dead = store.tables.dead
    conditions = _matching(store, like)
    if upto is not None:
        died_at, job_id = upto
        conditions += [dead.c.died_at <= died_at, (dead.c.died_at < died_at) | (dead.c.id <= job_id)]
    return conditions
