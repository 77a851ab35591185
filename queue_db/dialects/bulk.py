"""Bulk verbs, for Spark, staging and streams: load many rows, read them as CSV, move due jobs to the held ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import URL, ColumnElement, Engine, Select, Table, and_, delete, insert, select, update

from queue_db.dialects import numbering
from queue_db.dialects.chunks import Unpacked
from queue_db.dialects.numbering import NumberedMove
from queue_db.dialects.opening import Opening
from queue_db.dialects.seam import ClaimSeam, Rows
from queue_db.dialects.statements import stays
from queue_db.dialects.tabbed import Value
from queue_db.dialects.transactions import Sender
from queue_db.errors import UnsupportedError

# Jobs with unique keys in one statement.
_PAIRS = 1000

# Messages moved in one statement.
_IDS = 500


@dataclass(frozen=True, slots=True)
class Move:
    """The claim of a stream: the first ``limit`` of the ``due`` jobs move from ``jobs`` to ``held``.

    ``values`` are the columns of ``held``; no row there has their ``stream`` and ``batch`` yet. Jobs with a unique key, a group or
    a callback (:func:`stays`) stay in ``jobs`` too, changed by ``reserved``; None: none of the due jobs has any. ``skip``: other
    transactions do the same now: step over the rows that they have locked.
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


class Bulk(ClaimSeam, Opening):
    """The bulk verbs, with defaults that work on most databases."""

    #: Most jobs of one :meth:`load_new`, which waits for the database once or twice.
    loaded_at_once: ClassVar[int] = 1000
    #: The same if all jobs are in memory, so that it can read them while the database loads; 0: it does not work so.
    loaded_from_memory: ClassVar[int] = 0

    def short_lived_options(self, url: URL, *, local_infile: bool = False) -> dict[str, Any]:
        """:meth:`engine_options` for a short task, which may go through a pooler in transaction mode.

        :param local_infile: the server may request the rows of a file that this process loads.
        """
        return self.engine_options(url)

    def limit_waits(self, engine: Engine) -> None:
        """Limit the waits of a short task in each transaction, where :meth:`short_lived_options` do not. Default: they do."""

    def jdbc(self, url: URL, driver: str | None) -> tuple[str, str, dict[str, str]]:
        """For Spark's JDBC source: the address without user and password, the driver's class, and the driver's properties.

        :raises ArgumentError: for an option in the URL that has no name in JDBC, or an unknown ``driver``.
        :raises UnsupportedError: for a database that the source does not support. Default.
        """
        raise UnsupportedError(
            f"Spark's own JDBC source does not go to {self.title}: add jobs with queue_db.spark.enqueue and take them with "
            "queue_db.spark.drain, or use a server: PostgreSQL, MySQL or MariaDB",
            capability="JDBC",
            dialect=url.get_backend_name(),
        )

    def move_to_held(self, tx: Sender, move: Move, parameters: Mapping[str, Any]) -> int:
        """Move jobs in claim order; return how many."""
        jobs, held = move.jobs, move.held
        rows = self.by_claim(select(*move.values.values()), jobs)
        rows = rows.where(*move.due).order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id).limit(move.limit)
        source = insert(held).from_select(list(move.values), self.lock_rows(rows, skip=move.skip))
        moved = tx.connection.execute(source, parameters).rowcount
        if moved > 0:
            if move.reserved is not None:
                self._reserve(tx, move, move.reserved, parameters)
            self.delete_held(tx, jobs, held, and_(move.mine, ~stays(held)))
        return moved

    def _reserve(self, tx: Sender, move: Move, reserved: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        jobs, held = move.jobs, move.held
        named = tx.connection.execute(select(held.c.id, held.c.version - 1).where(move.mine, stays(held))).all()
        for start in range(0, len(named), _PAIRS):
            pairs = [(job_id, version) for job_id, version in named[start : start + _PAIRS]]
            # In their order: MySQL reads the new value of a column that was assigned before.
            mark = update(jobs).where(self.match(jobs, pairs)).ordered_values(*reserved.items())
            tx.connection.execute(self.by_id(mark, jobs), parameters)

    def delete_held(self, tx: Sender, jobs: Table, held: Table, which: ColumnElement[bool]) -> None:
        """Delete the jobs of the rows of ``held`` that match ``which``."""
        tx.connection.execute(delete(jobs).where(jobs.c.id.in_(select(held.c.id).where(which))))

    def move_numbered(self, tx: Sender, move: NumberedMove, *, feed: int, first: int, most: int, largest: int) -> int:
        """Move the first rows of a feed, in a transaction that has begun; return how many.

        :param first: the number of the first.
        :param most: rows.
        :param largest: of their payloads together, unless it is one row; in the unit in which the database measures a text.
        """
        found = tx.fetch(numbering.waiting(move.inbox), {"of_feed": feed, "most": most})
        # Ids, not the same condition twice: others may commit rows with lower ids between two statements.
        ids = numbering.first_few(found, largest)
        for start in range(0, len(ids), _IDS):
            self.move_ids(tx, move, ids[start : start + _IDS], first + start)
        return len(ids)

    def move_ids(self, tx: Sender, move: NumberedMove, ids: Sequence[int], first: int) -> None:
        """Move the rows with these ids, in their order, without a wait for other rows."""
        tx.execute(numbering.copy(move), {"of_ids": ids, "first": first})
        tx.execute(numbering.removal(move), {"of_ids": ids})

    def load_new(
        self, tx: Sender, jobs: Table, chunks: Iterable[Rows], number: int, now: int | None, *, ids: bool
    ) -> tuple[int, Sequence[int]] | None:
        """Insert many new jobs without keys, groups and callbacks by a way of its own, in a transaction that has begun; return
        their number and, by position, their ids.

        Default: there is none that is faster than ``insert_new``: None, and nothing of ``chunks`` was read.

        :param chunks: read while the database loads those before.
        :param number: the most jobs that ``chunks`` may have.
        :param now: microseconds; None: the database's clock.
        :param ids: False: they are not needed, return none.
        :raises Exception: reading ``chunks`` raised it.
        """
        return None

    def append(
        self, tx: Sender, table: Table, columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value] | None = None
    ) -> None:
        """Insert many rows into any table: column → values, all of the same length.

        The caller begins a transaction first: there may be several statements.

        :param same: columns with the same value in all rows.
        """
        rows = [dict(zip(columns, row, strict=True)) | dict(same or {}) for row in zip(*columns.values(), strict=True)]
        tx.connection.execute(insert(table), rows)

    def as_csv(self, tx: Sender, query: Select[Any]) -> bytes | None:
        """The rows of ``query`` as CSV: NULL is empty, an empty text is quoted. Default: unsupported (None).

        For many rows it costs a fraction of Python objects.
        """
        return None

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked | None:
        """Unpack a chunk of jobs (:mod:`queue_db.dialects.chunks`) in SQL. Default: unsupported (None)."""
        return None
