"""Statements that are built once for each table and kept, so that they are compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Delete,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    or_,
    select,
    tuple_,
)

from queue_db.dialects.clock import due_time, moment
from queue_db.model import NewJob

if TYPE_CHECKING:
    from queue_db.dialects.seam import ClaimSeam

Pairs = Sequence[tuple[int, int]]
"""``(id, version)`` of jobs."""

Columns = tuple[str, ...]

# Columns of a new job that are inserted unchanged; most jobs have no values in the last two, which would cost a tenth.
_PLAIN = ("queue", "kind", "payload", "headers", "priority", "max_attempts", "unique_key")
_TIED = (*_PLAIN, "group_key", "callback_id")

#: The fields of a :class:`NewJob` as parameters of :func:`insert_one`, which takes most of them.
ONE_NEW = tuple(f"new_{name}" for name in NewJob._fields)


def copied(rows: Sequence[NewJob]) -> Columns:
    """The columns of these jobs that are inserted unchanged: the first fields of a :class:`NewJob`."""
    for row in rows:
        if row.group_key is not None or row.callback_id is not None:
            return _TIED
    return _PLAIN


def new(columns: Columns) -> list[str]:
    """The parameters of :func:`insert_into`."""
    return [f"new_{name}" for name in columns]


def tied(table: Table) -> ColumnElement[bool]:
    """Jobs with a group or a batch, which change when the job leaves."""
    return or_(table.c.group_key.is_not(None), table.c.callback_id.is_not(None))


@lru_cache(maxsize=64)
def insert_one(jobs: Table, columns: Columns, *, settable: bool, returns: bool = True) -> Any:
    """Insert a job with these columns; ``returns``: and return its id. Its parameters are among :data:`ONE_NEW`.

    :param settable: one more parameter is the time, ``now``; otherwise the statement reads the clock.
    """
    values = {name: bindparam(f"new_{name}", type_=jobs.c[name].type) for name in columns}
    after, not_before = (bindparam(f"new_{name}", type_=BigInteger) for name in ("after", "not_before"))
    clock = moment(settable)
    due = due_time(clock, after, not_before)
    statement = insert(jobs).values({**values, "available_at": due, "created_at": clock})
    return statement.returning(jobs.c.id) if returns else statement


@lru_cache(maxsize=64)
def insert_into(jobs: Table, columns: Columns) -> Any:
    """Insert one row of these columns; its parameters are :func:`new`."""
    return insert(jobs).values({name: bindparam(f"new_{name}") for name in columns})


def matching(jobs: Table, *, one: bool, pairs: Pairs = ()) -> ColumnElement[bool]:
    """Rows whose ``(id, version)`` is one of ``pairs``; without ``pairs`` part of a kept statement, for :func:`wanted`."""
    given = wanted(pairs) if pairs else {}

    def of(name: str, *, expanding: bool = False) -> BindParameter[Any]:
        return bindparam(name, given[name], expanding=expanding) if given else bindparam(name, expanding=expanding)

    if one:
        return and_(jobs.c.id == of("of_id"), jobs.c.version == of("of_version"))
    # The ids alone drive the primary key; not every planner sees a range in the pairs.
    return and_(
        jobs.c.id.in_(of("of_ids", expanding=True)),
        tuple_(jobs.c.id, jobs.c.version).in_(of("of_pairs", expanding=True)),
    )


def wanted(pairs: Pairs) -> dict[str, Any]:
    """The parameters of :func:`matching`."""
    if len(pairs) == 1:
        ((job_id, version),) = pairs
        return {"of_id": job_id, "of_version": version}
    return {"of_ids": [job_id for job_id, _ in pairs], "of_pairs": list(pairs)}


@lru_cache(maxsize=64)
def delete_of(dialect: ClaimSeam, jobs: Table, *, one: bool) -> Delete:
    """Delete the rows of :func:`matching`."""
    return dialect.by_id(delete(jobs).where(matching(jobs, one=one)), jobs)


@lru_cache(maxsize=64)
def delete_returning(jobs: Table, *, one: bool) -> Any:
    """Delete the rows of :func:`matching` and return their ids."""
    return delete(jobs).where(matching(jobs, one=one)).returning(jobs.c.id)


@lru_cache(maxsize=64)
def hold_of(dialect: ClaimSeam, jobs: Table, *, one: bool) -> Select[Any]:
    """Lock the rows of :func:`matching` in id order."""
    query = select(jobs.c.id, jobs.c.version).where(matching(jobs, one=one)).order_by(jobs.c.id)
    return dialect.lock_rows(dialect.by_id(query, jobs), skip=False)
