"""SQLite for graphs."""

# ruff: noqa: S608 - the texts are made of constants and of names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from sqlalchemy import Table, func, select
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect

from queue_db.graphs.dialects import base
from queue_db.graphs.dialects.base import WAITING, GraphDialect, Started, counted_down
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.store.base import Transaction

#: The most parameters of a statement before SQLite 3.32.
_PARAMETERS = 999


class SQLiteForGraphs(GraphDialect):
    """Counts down by one statement: there is one writer, so nothing needs a lock first."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)

    def insert_all(self, tx: Transaction, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
        # One statement with many rows takes half the time of as many statements.
        rows, at_once = list(zip(*columns.values(), strict=True)), _PARAMETERS // len(columns)
        full = len(rows) - len(rows) % at_once
        for start in range(0, full, at_once):
            text = _insertion(table, tuple(columns), at_once, tx.connection.dialect)
            tx.execute(text, tuple(chain.from_iterable(rows[start : start + at_once])))
        if rest := rows[full:]:
            super().insert_all(tx, table, dict(zip(columns, zip(*rest, strict=True), strict=True)))

    def complete(self, tx: Transaction, ids: Sequence[int]) -> list[Started] | None:
        tables = graph_tables(tx.tables)
        tx.execute(base.completed(self, tables.nodes, settable=tx.store.clock is not None), {"ids": ids, **tx.time()})
        return self.admitted(tx, tx.fetch(_counted(self, tables), {"ids": ids}))


@lru_cache(maxsize=64)
def _insertion(table: Table, names: tuple[str, ...], rows: int, sql: SQLAlchemyDialect) -> str:
    """The text of an INSERT of this many rows."""
    quoted, row = map(sql.identifier_preparer.quote, names), f"({', '.join('?' * len(names))})"
    return f"INSERT INTO {sql.identifier_preparer.format_table(table)} ({', '.join(quoted)}) VALUES {', '.join([row] * rows)}"


@lru_cache(maxsize=64)
def _counted(of: GraphDialect, tables: GraphTables) -> Any:
    """Count down the nodes that wait for those in the list ``ids``, and return them."""
    nodes, edges = tables.nodes, tables.edges
    hit = (
        select(edges.c.child, func.count().label("number"))
        .where(of.lists.one_of(edges.c.parent, "ids"))
        .group_by(edges.c.child)
        .subquery("hit")
    )
    counted = counted_down(nodes, hit.c.number).where(nodes.c.id == hit.c.child, nodes.c.state == WAITING)
    return counted.returning(nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending)
