"""The history of jobs: failed attempts and retained results are written here. Monitoring reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select, tuple_

from queue_db.store.base import Transaction
from queue_db.store.portions import portions

#: The most failed attempts that are kept for one job.
KEPT = 10


def record_errors(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store failed attempts, and delete all but the last :data:`KEPT` of each job.

    :param rows: ``job_id, queue, kind, version, attempt, worker, error_class, message, trace`` of each failed attempt.
    """
    errors = tx.tables.errors
    # Without a time, ``failed_at`` gets the time of the database's clock.
    dated = {} if tx.store.clock is None else {"failed_at": tx.store.clock()}
    tx.connection.execute(insert(errors), [{**row, **dated} for row in rows])
    crowded = sorted({row["job_id"] for row in rows if row["attempt"] > KEPT})
    for ids in portions(crowded):
        mine = errors.c.job_id.in_(ids)
        place = func.row_number().over(partition_by=errors.c.job_id, order_by=errors.c.version.desc()).label("place")
        numbered = select(errors.c.job_id, errors.c.version, place).where(mine).subquery("numbered")
        old = select(numbered.c.job_id, numbered.c.version).where(numbered.c.place > KEPT)
        keys = sorted((row.job_id, row.version) for row in tx.connection.execute(old))
        for portion in portions(keys):
            tx.connection.execute(delete(errors).where(tuple_(errors.c.job_id, errors.c.version).in_(portion)))


def last_failed(tx: Transaction, ids: Sequence[int]) -> dict[int, int]:
    """The number of the last failed attempt of each of these jobs, by id; jobs that never failed are missing."""
    errors = tx.tables.errors
    query = select(errors.c.job_id, errors.c.attempt).where(errors.c.job_id.in_(ids)).order_by(errors.c.job_id, errors.c.version)
    return {row.job_id: row.attempt for row in tx.connection.execute(query)}


def record_finished(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store finished jobs. Each expires after the ``lasts`` microseconds of its row."""
    finished = tx.tables.finished
    now = tx.read_clock()
    dated = [{name: value for name, value in row.items() if name != "lasts"} for row in rows]
    for row, given in zip(dated, rows, strict=True):
        row |= {"finished_at": now, "expires_at": now + given["lasts"]}
    tx.connection.execute(insert(finished), dated)
