"""The history of jobs: failed attempts, and retained results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Row, Table, delete, func, insert, select, tuple_

from queue_db.dialects.clock import moment
from queue_db.store.base import Store

#: Failed attempts that are kept of one job.
KEPT = 10

# Jobs in one statement.
_AT_ONCE = 500


def record_errors(connection: Connection, store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    """Remember failed attempts: ``job_id, queue, kind, version, attempt, worker, error_class, message, trace``."""
    errors = store.tables.errors
    # The column's default is the database's clock.
    dated = {} if store.clock is None else {"failed_at": store.clock()}
    connection.execute(insert(errors), [{**row, **dated} for row in rows])
    crowded = sorted({row["job_id"] for row in rows if row["attempt"] > KEPT})
    for start in range(0, len(crowded), _AT_ONCE):
        mine = errors.c.job_id.in_(crowded[start : start + _AT_ONCE])
        place = func.row_number().over(partition_by=errors.c.job_id, order_by=errors.c.version.desc()).label("place")
        numbered = select(errors.c.job_id, errors.c.version, place).where(mine).subquery("numbered")
        old = select(numbered.c.job_id, numbered.c.version).where(numbered.c.place > KEPT)
        keys = sorted((row.job_id, row.version) for row in connection.execute(old))
        for first in range(0, len(keys), _AT_ONCE):
            key = tuple_(errors.c.job_id, errors.c.version)
            connection.execute(delete(errors).where(key.in_(keys[first : first + _AT_ONCE])))


def errors_of(connection: Connection, store: Store, job_id: int) -> list[Row[Any]]:
    """The failed attempts of a job, first to last."""
    errors = store.tables.errors
    return list(connection.execute(select(errors).where(errors.c.job_id == job_id).order_by(errors.c.version)))


def last_failed(connection: Connection, store: Store, ids: Sequence[int]) -> dict[int, int]:
    """Which attempt of each of these jobs failed last; those missing never failed."""
    errors = store.tables.errors
    query = select(errors.c.job_id, errors.c.attempt).where(errors.c.job_id.in_(ids)).order_by(errors.c.job_id, errors.c.version)
    return {row.job_id: row.attempt for row in connection.execute(query)}


def record_finished(connection: Connection, store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep what came of jobs, for ``lasts`` microseconds each."""
    finished = store.tables.finished
    now = store.read_clock(connection)
    dated = [{name: value for name, value in row.items() if name != "lasts"} for row in rows]
    for row, given in zip(dated, rows, strict=True):
        row |= {"finished_at": now, "expires_at": now + given["lasts"]}
    connection.execute(insert(finished), dated)


def finished(connection: Connection, store: Store, job_id: int) -> Row[Any] | None:
    """What is kept of a finished job, unless it has expired."""
    table = store.tables.finished
    found = select(table).where(table.c.id == job_id, table.c.expires_at > moment(store.clock is not None))
    return connection.execute(found, store.time()).first()


def finished_page(
    connection: Connection, store: Store, *, queue: str | None, kind: str | None, above: int, limit: int
) -> list[Row[Any]]:
    """What is kept of finished jobs with ids above ``above`` and has not expired, by id."""
    table = store.tables.finished
    query = select(table).where(table.c.id > above, table.c.expires_at > moment(store.clock is not None))
    if queue is not None:
        query = query.where(table.c.queue == queue)
    if kind is not None:
        query = query.where(table.c.kind == kind)
    return list(connection.execute(query.order_by(table.c.id).limit(limit), store.time()))


def prune_errors(connection: Connection, store: Store, age: int, limit: int) -> int:
    """Delete up to ``limit`` failed attempts from longer than ``age`` microseconds ago; return how many."""
    errors = store.tables.errors
    return _delete_before(connection, errors, errors.c.failed_at, store.read_clock(connection) - age, limit)


def prune_finished(connection: Connection, store: Store, limit: int) -> int:
    """Delete up to ``limit`` finished jobs that have expired; return how many."""
    table = store.tables.finished
    return _delete_before(connection, table, table.c.expires_at, store.read_clock(connection), limit)


def _delete_before(connection: Connection, table: Table, column: Column[int], before: int, limit: int) -> int:
    keys = list(table.primary_key.columns)
    rows = connection.execute(select(*keys).where(column < before).order_by(column).limit(limit)).all()
    if not rows:
        return 0
    # The first column of the key finds them, few for each; the age says which.
    return connection.execute(delete(table).where(keys[0].in_({row[0] for row in rows}), column < before)).rowcount
