"""SQLite for graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import func, select

from queue_db.graphs.dialects import base
from queue_db.graphs.dialects.base import WAITING, GraphDialect, Started, counted_down
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.store.base import Transaction


class SQLiteForGraphs(GraphDialect):
    """Counts down by one statement: there is one writer, so nothing needs a lock first."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)

    def complete(self, tx: Transaction, ids: Sequence[int]) -> list[Started] | None:
        tables = graph_tables(tx.tables)
        tx.execute(base.completed(self, tables.nodes, settable=tx.store.clock is not None), {"ids": ids, **tx.time()})
        return self.admitted(tx, tx.fetch(_counted(self, tables), {"ids": ids}))


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
