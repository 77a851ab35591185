"""Unique keys that stay taken for a given time after their job was enqueued, even if the job has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import BigInteger, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from queue_db.dialects.transactions import savepoint
from queue_db.errors import TransientStorageError
from queue_db.model import NewJob
from queue_db.store.base import Transaction, each

Key = tuple[str, str]
"""Queue and unique key."""

# The most attempts to take the keys. An attempt fails if another transaction takes one of the keys first.
_RACES = 8


def take(tx: Transaction, jobs: Sequence[NewJob]) -> dict[Key, int]:
    """Take the keys of ``jobs``, each for its ``unique_for``; return the keys that were already taken, with the ids of their jobs.

    Each job has a different key. After this, the transaction must call :func:`assign` or :func:`release` for each key that it took.

    :raises TransientStorageError: other transactions took some of the keys again and again.
    """
    table = tx.tables.windows
    queues, keys = sorted({job.queue for job in jobs}), [str(job.unique_key) for job in jobs]
    query = select(table).where(table.c.queue.in_(queues), table.c.unique_key.in_(keys))
    for race in range(_RACES):
        now = tx.read_clock()
        # The old snapshot of a caller's transaction does not show rows that another transaction has just inserted. A locking read
        # shows them.
        keys_found = tx.connection.execute(tx.dialect.lock_rows(query, skip=False) if race else query).all()
        over = [row for row in keys_found if row.ends_at <= now]
        for row in over:  # one DELETE for each full key, since InnoDB locks gaps around keys that it does not find
            mine = table.c.queue == row.queue, table.c.unique_key == row.unique_key, table.c.ends_at <= now
            tx.connection.execute(delete(table).where(*mine))
        taken = {(row.queue, row.unique_key): int(row.job_id) for row in keys_found if row.ends_at > now}
        fresh = [job for job in jobs if job.key not in taken]
        rows = [
            {"queue": job.queue, "unique_key": job.unique_key, "job_id": 0, "ends_at": now + job.unique_for}
            # Insert in the order of keys, so that no two transactions with the same keys wait for each other.
            for job in sorted(fresh, key=lambda job: (job.queue, str(job.unique_key)))
        ]
        try:
            if rows:
                with savepoint(tx.connection):
                    tx.connection.execute(insert(table), rows)
        except IntegrityError:
            continue  # another transaction has just taken one of the keys
        return taken
    raise TransientStorageError("unique keys were taken by others again and again", statement_name="unique_key_ttl.take")


def assign(tx: Transaction, ids: Mapping[str, int], queue: str) -> None:
    """Store the ids of the jobs that have taken the keys.

    :param ids: the id of the job for each unique key.
    """
    table = tx.tables.windows
    mine = table.c.queue == queue, table.c.unique_key.in_(list(ids))
    tx.connection.execute(update(table).where(*mine).values(job_id=each(table.c.unique_key, ids, BigInteger())))


def release(tx: Transaction, keys: Sequence[str], queue: str) -> None:
    """Free keys that were taken for jobs that were not enqueued."""
    table = tx.tables.windows
    tx.connection.execute(delete(table).where(table.c.queue == queue, table.c.unique_key.in_(keys)))


def holders(tx: Transaction, queue: str, keys: Sequence[str]) -> dict[str, int]:
    """The ids of the jobs that have taken ``keys``, by key; free keys are missing."""
    table = tx.tables.windows
    now = tx.read_clock()
    mine = table.c.queue == queue, table.c.unique_key.in_(keys), table.c.ends_at > now, table.c.job_id > 0
    return {
        row.unique_key: int(row.job_id) for row in tx.connection.execute(select(table.c.unique_key, table.c.job_id).where(*mine))
    }
