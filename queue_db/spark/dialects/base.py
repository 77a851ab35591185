"""What Spark's jobs, streams and staged loads need of a database, with defaults that work on most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL, ColumnElement, Engine, Select, Table, and_, delete, func, insert, or_, select, update

from queue_db.dialects.base import Companion
from queue_db.dialects.copy_stream import Value
from queue_db.dialects.statements import has_dependents, match
from queue_db.dialects.transactions import Sender
from queue_db.errors import UnsupportedError
from queue_db.spark.staging.chunks import Unpacked

# Jobs with unique keys in one statement.
_PAIRS = 1000


def keeps_row(table: Table) -> ColumnElement[bool]:
    """Jobs whose row stays in ``jobs`` while a stream holds them: those with a unique key, a group or a batch.

    :param table: ``jobs`` or ``held``.
    """
    return or_(table.c.unique_key.is_not(None), has_dependents(table))


@dataclass(frozen=True, slots=True)
class Move:
    """The claim of a stream: the first ``limit`` of the ``due`` jobs move from ``jobs`` to ``held``.

    ``values`` are the columns of ``held``; no row there has their ``stream`` and ``batch`` yet. Jobs with a unique key, a group or
    a callback (:func:`keeps_row`) stay in ``jobs`` too, changed by ``reserved``; None: none of the due jobs has any. ``skip``:
    other transactions do the same now: step over the rows that they have locked.
    """

    jobs: Table
    held: Table
    due: Sequence[ColumnElement[bool]]
    limit: int
    values: Mapping[str, ColumnElement[Any]]
    reserved: Mapping[str, Any] | None
    skip: bool

    @property
    def mine(self) -> ColumnElement[bool]:
        """The rows of ``held`` that this claim has moved."""
        return and_(self.held.c.stream == self.values["stream"], self.held.c.batch == self.values["batch"])


class SparkDialect(Companion):
    """Short tasks, loads of rows, rows as CSV, and the move of due jobs to the held ones."""

    def short_lived_options(self, url: URL, *, local_infile: bool = False) -> dict[str, Any]:
        """The dialect's ``engine_options`` for a short task, which may go through a pooler in transaction mode.

        :param local_infile: the server may request the rows of a file that this process loads.
        """
        return self.dialect.server.engine_options(url)

    def limit_waits(self, engine: Engine) -> None:
        """Limit the waits of a short task in each transaction, where :meth:`short_lived_options` do not. Default: they do."""

    def jdbc(self, url: URL, driver: str | None) -> tuple[str, str, dict[str, str]]:
        """For Spark's JDBC source: the address without user and password, the driver's class, and the driver's properties.

        :raises ArgumentError: for an option in the URL that has no name in JDBC, or an unknown ``driver``.
        :raises UnsupportedError: for a database that the source does not support. Default.
        """
        raise UnsupportedError(
            f"Spark's own JDBC source does not go to {self.dialect.title}: add jobs with queue_db.spark.enqueue and take them with "
            "queue_db.spark.drain, or use a server: PostgreSQL, MySQL or MariaDB",
            capability="JDBC",
            dialect=url.get_backend_name(),
        )

    def move_to_held(self, tx: Sender, move: Move, parameters: Mapping[str, Any]) -> int:
        """Move jobs in claim order; return how many."""
        jobs, held = move.jobs, move.held
        rows = self.dialect.by_claim(select(*move.values.values()), jobs)
        rows = rows.where(*move.due).order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id).limit(move.limit)
        source = insert(held).from_select(list(move.values), self.dialect.lock_rows(rows, skip=move.skip))
        moved = tx.connection.execute(source, parameters).rowcount
        if moved > 0:
            if move.reserved is not None:
                self._reserve(tx, move, move.reserved, parameters)
            self.delete_held(tx, jobs, held, and_(move.mine, ~keeps_row(held)))
        return moved

    def _reserve(self, tx: Sender, move: Move, reserved: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        jobs, held = move.jobs, move.held
        named = tx.connection.execute(select(held.c.id, held.c.version - 1).where(move.mine, keeps_row(held))).all()
        for start in range(0, len(named), _PAIRS):
            pairs = [(job_id, version) for job_id, version in named[start : start + _PAIRS]]
            # In their order: MySQL reads the new value of a column that was assigned before.
            mark = update(jobs).where(match(self.dialect, pairs)).ordered_values(*reserved.items())
            tx.connection.execute(self.dialect.by_id(mark, jobs), parameters)

    def delete_held(self, tx: Sender, jobs: Table, held: Table, which: ColumnElement[bool]) -> None:
        """Delete the jobs of the rows of ``held`` that match ``which``."""
        tx.connection.execute(delete(jobs).where(jobs.c.id.in_(select(held.c.id).where(which))))

    def append(
        self, tx: Sender, table: Table, columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value] | None = None
    ) -> None:
        """Insert many rows into any table: column → values, all of the same length.

        The caller begins a transaction first: there may be several statements.

        :param same: columns with the same value in all rows.
        """
        rows = [dict(zip(columns, row, strict=True)) | dict(same or {}) for row in zip(*columns.values(), strict=True)]
        tx.connection.execute(insert(table), rows)

    def size(self, text: ColumnElement[str]) -> ColumnElement[int]:
        """The bytes of a text."""
        return func.octet_length(text)

    def as_csv(self, tx: Sender, query: Select[Any]) -> bytes | None:
        """The rows of ``query`` as CSV: NULL is empty, an empty text is quoted. Default: unsupported (None).

        For many rows it costs a fraction of Python objects.
        """
        return None

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked | None:
        """Unpack a chunk of jobs (:mod:`queue_db.spark.staging.chunks`) in SQL. Default: unsupported (None)."""
        return None
