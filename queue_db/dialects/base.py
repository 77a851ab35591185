"""A dialect: everything that differs from one database to the other. To add a database, subclass :class:`Dialect` and name it.

A subclass registers itself under each of its ``names`` (SQLAlchemy's dialect names). Members that it does not override work on any
database whose row counts are matched rows, though in more statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table

from queue_db.dialects import statements
from queue_db.dialects.bulk import Bulk
from queue_db.dialects.diagnosis import Diagnosis
from queue_db.dialects.failures import Failures
from queue_db.dialects.grouping import Grouping
from queue_db.dialects.listing import Listing
from queue_db.dialects.seam import Values
from queue_db.dialects.statements import Columns, Pairs
from queue_db.dialects.transactions import Sender
from queue_db.errors import ConfigurationError

_REGISTRY: dict[str, type[Dialect]] = {}


class Dialect(Bulk, Grouping, Failures, Diagnosis, Listing):
    """Everything that differs from one database to the other.

    :class:`~queue_db.dialects.seam.ClaimSeam` has what claims, settles and enqueues need. Most dialects override members of it, of
    :class:`~queue_db.dialects.opening.Opening` and of :class:`Failures` alone. :class:`Bulk` is for many new jobs at once,
    :class:`Grouping` for groups, :class:`Diagnosis` for ``queue-db doctor``, :class:`Listing` for lists of jobs. What a slice needs
    is in a :class:`~queue_db.dialects.companion.Companion`.
    """

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        for name in cls.names:
            _REGISTRY[name] = cls


class ReturningDialect(Dialect):
    """A database with UPDATE … RETURNING and DELETE … RETURNING: one statement for each verb."""

    def change(self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values) -> set[int]:
        return {job_id for (job_id,) in self.update_returning(tx, jobs, pairs, assignments, values, ("id",))}

    def update_returning(
        self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values, returning: Columns
    ) -> Sequence[Sequence[Any]]:
        texts = statements.on(self, jobs, tx.connection.dialect, settable="now" in values)
        update = texts.made(statements.update, assignments=assignments, one=len(pairs) == 1, returning=returning)
        return tx.fetch(update, {**values, **self.wanted(pairs)})

    def delete_returning(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        texts = statements.on(self, jobs, tx.connection.dialect)
        deleted = tx.fetch(texts.made(statements.delete, one=len(pairs) == 1, returns=True), self.wanted(pairs))
        return {job_id for (job_id,) in deleted}


def dialect_for(name: str) -> Dialect:
    """The dialect registered under a SQLAlchemy dialect name.

    :raises ConfigurationError: when there is none.
    """
    try:
        return _REGISTRY[name]()
    except KeyError:
        raise ConfigurationError(
            f"no dialect for {name!r}; known: {', '.join(sorted(_REGISTRY))}. "
            "Another database is added by subclassing queue_db.dialects.Dialect"
        ) from None


def registered() -> dict[str, type[Dialect]]:
    """Every registered dialect by SQLAlchemy name."""
    return dict(_REGISTRY)
