"""Jobs by ranges of ids: for readers that share the work of reading all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, func, select

from queue_db.spark.dialects import SparkDialect
from queue_db.spark.ranges.places import View
from queue_db.store.base import Transaction

#: The columns of a job for readers, in this order.
COLUMNS = ("id", "kind", "payload", "headers", "priority", "attempts", "created_at", "version")

Rows = Sequence[Sequence[Any]] | bytes
"""Rows of :data:`COLUMNS`, or of some of them, or the same as CSV."""

#: How a condition compares.
COMPARISONS: Mapping[str, Callable[[Any, Any], ColumnElement[bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# A range is read by its ids alone if at least one in so many of them is the queue's; else the rows of other queues between them
# would cost more than to read the queue's own ids first.
_DENSE = 4


class Condition(NamedTuple):
    """A condition on a column of the jobs table; one of :data:`COMPARISONS`."""

    column: str
    comparison: str
    value: Any


class Range(NamedTuple):
    """So many jobs of a queue, with ids from ``low`` to ``high``."""

    low: int
    high: int
    jobs: int

    @property
    def dense(self) -> bool:
        """Whether few ids between are those of other queues."""
        return self.high - self.low < _DENSE * self.jobs


#: All live jobs.
ALL_LIVE = View()


def queue_ranges(tx: Transaction, queue: str, parts: int, worth: int, view: View = ALL_LIVE) -> list[Range]:
    """The jobs of ``queue`` in a place as up to ``parts`` ranges of ids with about as many jobs each, and not fewer than ``worth``.

    Reads the entries of the queue in an index, and no row of any other.
    """
    # No word of the marked ones: a mark stands in no index. Those are left out when the rows are read.
    jobs = view.table(tx.store)
    # Not in the order of the primary key: a planner that takes the rows from there reads those of all queues.
    place = func.ntile(parts).over(order_by=jobs.c.id + 0).label("place")
    shares = select(jobs.c.id, place).where(jobs.c.queue == queue).subquery("shares")
    found = tx.connection.execute(
        select(func.min(shares.c.id), func.max(shares.c.id), func.count()).group_by(shares.c.place).order_by(shares.c.place)
    ).all()
    ranges: list[Range] = []
    for low, high, count in found:
        if ranges and ranges[-1].jobs < worth:
            ranges[-1] = Range(ranges[-1].low, high, ranges[-1].jobs + count)
        else:
            ranges.append(Range(low, high, count))
    return ranges


def ids(tx: Transaction, queue: str, part: Range, view: View = ALL_LIVE) -> list[int]:
    """The ids of the jobs of ``queue`` in a range, in their order; from an index of the queue."""
    jobs = view.table(tx.store)
    # By no range of the primary key: a planner that prefers that would read the rows of all queues.
    query = select(jobs.c.id).where(jobs.c.queue == queue, (jobs.c.id + 0).between(part.low, part.high))
    return sorted(tx.connection.execute(query).scalars())


def jobs(
    tx: Transaction,
    queue: str,
    *,
    after: int,
    high: int,
    limit: int,
    columns: Sequence[str] = COLUMNS,
    conditions: Sequence[Condition] = (),
    csv: bool = False,
    view: View = ALL_LIVE,
) -> Rows:
    """Up to ``limit`` jobs of ``queue`` with ids above ``after`` and up to ``high``, by id.

    :param csv: rather as CSV, if the database writes it: faster for many rows.
    """
    table = view.table(tx.store)
    query = (
        select(*(view.column(table, name).label(name) for name in columns))
        # By id and by no other index: a planner that prefers the queue's would sort all of it for each page.
        .where(table.c.queue.concat("") == queue, *view.conditions(table), table.c.id > after, table.c.id <= high)
        .where(*_compared(view, table, conditions))
        .order_by(table.c.id)
        .limit(limit)
    )
    return rows_of(tx, tx.dialect.by_id(query, table), csv=csv)


def jobs_of(
    tx: Transaction,
    queue: str,
    some: Sequence[int],
    *,
    columns: Sequence[str] = COLUMNS,
    conditions: Sequence[Condition] = (),
    csv: bool = False,
    view: View = ALL_LIVE,
) -> Rows:
    """Those of the jobs with these ids that are ones of ``queue``, by id."""
    table = view.table(tx.store)
    query = (
        select(*(view.column(table, name).label(name) for name in columns))
        .where(table.c.queue.concat("") == queue, *view.conditions(table), table.c.id.in_(list(some)))
        .where(*_compared(view, table, conditions))
        .order_by(table.c.id)
    )
    return rows_of(tx, tx.dialect.by_id(query, table), csv=csv)


def rows_of(tx: Transaction, query: Select[Any], *, csv: bool) -> Rows:
    """The rows of ``query``; as CSV if the reader prefers that, and the database writes it."""
    text = SparkDialect.of(tx.dialect).as_csv(tx, query) if csv else None
    return tx.connection.execute(query).all() if text is None else text


def counts(
    tx: Transaction, queues: Sequence[str], by: Sequence[str], *, view: View, conditions: Sequence[Condition] = ()
) -> list[tuple[Any, ...]]:
    """The values of ``by`` and the number of jobs that have them, of these queues in one place."""
    table = view.table(tx.store)
    wanted = [table.c.queue.in_(list(queues)), *view.conditions(table), *_compared(view, table, conditions)]
    rows = select(*(view.column(table, name).label(name) for name in ("id", *by))).where(*wanted).subquery("rows")
    of = [rows.c[name] for name in by]
    return [tuple(row) for row in tx.connection.execute(select(*of, func.count()).select_from(rows).group_by(*of))]


def _compared(view: View, table: Table, conditions: Sequence[Condition]) -> list[ColumnElement[bool]]:
    return [COMPARISONS[comparison](view.column(table, name), value) for name, comparison, value in conditions]
