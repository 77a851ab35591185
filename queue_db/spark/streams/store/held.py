"""The held jobs: the columns that they keep, and those that stay in the jobs table too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from sqlalchemy import ColumnElement, select

from queue_db.dialects.statements import Pairs
from queue_db.spark.dialects.base import keeps_row
from queue_db.spark.tables import spark_tables
from queue_db.store.base import Transaction

# Jobs with keys in one statement.
_PAIRS = 1000

#: Columns that a held job has in common with a live one.
SAME = (
    "id",
    "kind",
    "payload",
    "headers",
    "priority",
    "available_at",
    "max_attempts",
    "unique_key",
    "created_at",
    "last_error",
    "group_key",
    "callback_id",
)


def keyed_pairs(tx: Transaction, mine: ColumnElement[bool]) -> Iterator[Pairs]:
    """``(id, version)`` of the held jobs with a key, in parts."""
    held = spark_tables(tx.tables).held
    found = tx.connection.execute(select(held.c.id, held.c.version).where(mine, keeps_row(held)).order_by(held.c.id))
    return _some((row.id, row.version) for row in found.all())


def _some(pairs: Iterable[tuple[int, int]]) -> Iterator[Pairs]:
    rest = iter(pairs)
    while some := list(islice(rest, _PAIRS)):
        yield some
