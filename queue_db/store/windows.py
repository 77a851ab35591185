"""Unique keys that stay taken for a while after their job was enqueued, whatever becomes of it."""

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

# A lost race for one key; more in a row than this is not chance.
_RACES = 8


def take(tx: Transaction, jobs: Sequence[NewJob]) -> dict[Key, int]:
    """Take the keys of ``jobs`` for as long as each says; return those that are taken, and the ids of the jobs that took them.

    Each job has a key, no two the same, and the transaction goes on with :func:`fill` or :func:`give_back`.

    :raises TransientStorageError: others took some of the keys again and again.
    """
    windows = tx.tables.windows
    queues, keys = sorted({job.queue for job in jobs}), [str(job.unique_key) for job in jobs]
    query = select(windows).where(windows.c.queue.in_(queues), windows.c.unique_key.in_(keys))
    for race in range(_RACES):
        now = tx.read_clock()
        # A caller's old snapshot does not show who was faster; a locking read does.
        found = tx.connection.execute(tx.dialect.lock_rows(query, skip=False) if race else query).all()
        over = [row for row in found if row.ends_at <= now]
        for row in over:  # by its whole key: InnoDB locks the gaps between keys that it does not find
            mine = windows.c.queue == row.queue, windows.c.unique_key == row.unique_key, windows.c.ends_at <= now
            tx.connection.execute(delete(windows).where(*mine))
        taken = {(row.queue, row.unique_key): int(row.job_id) for row in found if row.ends_at > now}
        fresh = [job for job in jobs if job.key not in taken]
        rows = [
            {"queue": job.queue, "unique_key": job.unique_key, "job_id": 0, "ends_at": now + job.unique_for}
            # In one order, so that two who want the same keys do not wait for each other in a circle.
            for job in sorted(fresh, key=lambda job: (job.queue, str(job.unique_key)))
        ]
        try:
            if rows:
                with savepoint(tx.connection):
                    tx.connection.execute(insert(windows), rows)
        except IntegrityError:
            continue  # another transaction has just taken one of them
        return taken
    raise TransientStorageError("unique keys were taken by others again and again", statement_name="windows.take")


def fill(tx: Transaction, ids: Mapping[str, int], queue: str) -> None:
    """Say which jobs (unique key → id) have taken the keys."""
    windows = tx.tables.windows
    mine = windows.c.queue == queue, windows.c.unique_key.in_(list(ids))
    tx.connection.execute(update(windows).where(*mine).values(job_id=each(windows.c.unique_key, ids, BigInteger())))


def give_back(tx: Transaction, keys: Sequence[str], queue: str) -> None:
    """Nothing was enqueued for these."""
    windows = tx.tables.windows
    tx.connection.execute(delete(windows).where(windows.c.queue == queue, windows.c.unique_key.in_(keys)))


def holders(tx: Transaction, queue: str, keys: Sequence[str]) -> dict[str, int]:
    """Which of these keys are taken, and the ids of the jobs that took them."""
    windows = tx.tables.windows
    now = tx.read_clock()
    mine = windows.c.queue == queue, windows.c.unique_key.in_(keys), windows.c.ends_at > now, windows.c.job_id > 0
    return {
        row.unique_key: int(row.job_id)
        for row in tx.connection.execute(select(windows.c.unique_key, windows.c.job_id).where(*mine))
    }


def prune(tx: Transaction, limit: int) -> int:
    """Delete up to ``limit`` expired keys; return how many."""
    windows = tx.tables.windows
    now = tx.read_clock()
    query = select(windows.c.queue, windows.c.unique_key).where(windows.c.ends_at <= now).order_by(windows.c.ends_at).limit(limit)
    over = tx.connection.execute(query).all()
    if not over:
        return 0
    mine = windows.c.unique_key.in_({row.unique_key for row in over}), windows.c.ends_at <= now
    return tx.connection.execute(delete(windows).where(windows.c.queue.in_({row.queue for row in over}), *mine)).rowcount
