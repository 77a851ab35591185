"""How a database inserts new jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Table, insert, select
from sqlalchemy.exc import IntegrityError

from queue_db.dialects import statements
from queue_db.dialects.clock import clock_query
from queue_db.dialects.statements import ONE_NEW, Columns, copied
from queue_db.dialects.transactions import Sender
from queue_db.errors import TransientStorageError
from queue_db.model import NewJob, Notice

Rows = Sequence[NewJob]
"""New jobs. The database's time and their fields ``after`` and ``not_before`` give their due time."""

# The most attempts at one insert. An attempt fails if another transaction inserts one of the unique keys first.
_RACES = 8

# Makes SQLAlchemy insert all rows with one statement. With two statements, the second could fail after the first has inserted rows.
_ONE_PAGE = {"insertmanyvalues_page_size": 100_000}


class Inserts:
    """Inserts new jobs. Each member has a default that works on most databases."""

    #: Whether INSERT can return the id of a row. Otherwise the id is the driver's ``lastrowid``.
    returns_new_id: ClassVar[bool] = True
    #: The most jobs in one call of :meth:`load_new`.
    loaded_at_once: ClassVar[int] = 1000
    #: The most jobs in one call of :meth:`load_new` if all of them are in memory. 0: the same as :attr:`loaded_at_once`.
    loaded_from_memory: ClassVar[int] = 0

    def insert_new(self, tx: Sender, jobs: Table, rows: Rows, now: int | None, notice: Notice | None = None) -> list[int | None]:
        """Insert ``rows`` and return their ids in the same order. The id is None if a live job already has the row's unique key.

        The unique keys within ``rows`` must differ from each other.

        :param now: microseconds; None: the database's clock.
        :param notice: a notification to send in the same statement; only if ``Dialect.notifies``.
        """
        keys = [(row.queue, row.unique_key) for row in rows if row.unique_key is not None]
        for race in range(_RACES):
            # After a lost race, a caller's old snapshot does not show the other transaction's row. A locking read shows this row.
            taken = live_keys(tx, jobs, keys, current=race > 0) if keys else None
            fresh = [row for row in rows if row.key not in taken] if taken else rows
            try:
                if len(fresh) != 1:
                    ids: Iterable[int] = self.bulk_load(tx, jobs, fresh, now) if fresh else ()
                else:
                    names, row = (ONE_NEW, fresh[0]) if now is None else ((*ONE_NEW, "now"), (*fresh[0], now))
                    texts = statements.on(tx.dialect, jobs, tx.connection.dialect, settable=now is not None)
                    single = texts.made(statements.insert_one, columns=copied(fresh), returns=self.returns_new_id)
                    if self.returns_new_id:
                        ids = [job_id for (job_id,) in tx.fetch(single, dict(zip(names, row, strict=True)))]
                    else:
                        _, last = tx.execute_many(single, names, [row])
                        ids = (last,)
            except IntegrityError:
                # Another transaction inserted one of the keys between the read and the insert. The failed insert had no effect.
                # Rows without keys are refused by something else, such as a trigger of the application.
                if not keys:
                    raise
                continue
            if not taken:
                return list(ids)
            inserted = iter(ids)
            return [None if row.key in taken else next(inserted) for row in rows]
        raise TransientStorageError("other transactions inserted the same unique keys repeatedly", statement_name="insert_new")

    def bulk_load(self, tx: Sender, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        """Insert several ``rows``, in one statement if the database can, and return their ids in the same order."""
        columns, values = dated(tx, rows, now)
        full = [dict(zip(columns, row, strict=True)) for row in values]
        statement = insert(jobs).returning(jobs.c.id, sort_by_parameter_order=True)
        return list(tx.connection.execute(statement, full, execution_options=_ONE_PAGE).scalars())

    def load_new(
        self, tx: Sender, jobs: Table, chunks: Iterable[Rows], number: int, now: int | None, *, ids: bool, tied: bool = False
    ) -> tuple[int, Sequence[int]] | None:
        """Insert many new jobs without keys and groups in a transaction that has begun.

        Return None, without reading ``chunks``, if the database has no way that is faster than ``insert_new``. This is the default.

        :param chunks: the jobs. Each chunk is read while the database loads the chunks before it.
        :param number: the most jobs that ``chunks`` may have.
        :param now: microseconds; None: the database's clock.
        :param ids: whether to return the ids.
        :param tied: whether jobs have a callback.
        :return: the number of jobs, and their ids in the order of the jobs.
        :raises Exception: the exception that reading ``chunks`` has raised.
        """
        return None


def live_keys(
    tx: Sender, jobs: Table, keys: Collection[tuple[str, str]], *, current: bool = False
) -> dict[tuple[str, str] | None, tuple[int, int]]:
    """Return the live jobs that have one of ``keys``: ``(queue, unique_key)`` → ``(id, version)``.

    :param current: use a locking read, which also shows rows that are newer than the transaction's snapshot.
    """
    if not keys:
        return {}
    query = select(jobs.c.queue, jobs.c.unique_key, jobs.c.id, jobs.c.version).where(
        queue_of_keys(jobs).in_({queue for queue, _ in keys}), jobs.c.unique_key.in_([key for _, key in keys])
    )
    rows = tx.connection.execute(tx.dialect.lock_rows(query, skip=False) if current else query)
    return {(row.queue, row.unique_key): (row.id, row.version) for row in rows}


def queue_of_keys(jobs: Table) -> ColumnElement[str]:
    """Return the column of the queue by which the index of unique keys finds jobs."""
    return jobs.c.get("unique_queue", jobs.c.queue)


def dated(tx: Sender, rows: Rows, now: int | None) -> tuple[Columns, list[tuple[Any, ...]]]:
    """Return the columns to insert, with due time and creation time, and the values of each row.

    A separate statement reads the clock, because drivers and SQLAlchemy join rows into one statement only if no value is an
    expression.
    """
    clock: int = now if now is not None else tx.connection.execute(clock_query()).scalar_one()
    columns = copied(rows)
    width = len(columns)
    values = [(*row[:width], max(clock + row.after, row.not_before), clock) for row in rows]
    return (*columns, "available_at", "created_at"), values


def load(tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert rows of these columns with the driver's ``executemany``; return the driver's ``lastrowid``."""
    texts = statements.on(tx.dialect, jobs, tx.connection.dialect)
    _, last = tx.execute_many(texts.made(statements.insert_into, columns=columns), [f"new_{name}" for name in columns], rows)
    return last
