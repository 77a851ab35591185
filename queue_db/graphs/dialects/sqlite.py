"""SQLite for graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import func, select, update

from queue_db.graphs.dialects import base
from queue_db.graphs.dialects.base import WAITING, GraphDialect, Started
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.store.base import Transaction


class SQLiteForGraphs(GraphDialect):
    """Counts down by one statement: there is one writer, so nothing needs a lock first."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)

    def complete(self, tx: Transaction, ids: Sequence[int]) -> list[Started] | None:
        tables = graph_tables(tx.tables)
        tx.execute(base.completed(self, tables.nodes, settable=tx.store.clock is not None), {"ids": ids, **tx.time()})
        rows = tx.fetch(_counted(self, tables), {"ids": ids})
        ready = {node: (graph, queue) for node, graph, queue, pending in rows if pending <= 0}
        if not ready:
            return []
        admitted = set(ready)
        if self.start(tx, sorted(ready)) < len(ready):
            jobs = tx.tables.jobs
            admitted = set(tx.connection.execute(select(jobs.c.id).where(jobs.c.id.in_(sorted(ready)))).scalars())
        return [Started(node, *of, node in admitted) for node, of in ready.items()]


@lru_cache(maxsize=64)
def _counted(of: GraphDialect, tables: GraphTables) -> Any:
    """Count down the nodes that wait for those in the list ``ids``, and return them."""
    nodes, edges = tables.nodes, tables.edges
    parents = of.lists.one_of(edges.c.parent, "ids")
    number = select(func.count()).where(edges.c.child == nodes.c.id, parents).scalar_subquery()
    hit = nodes.c.id.in_(select(edges.c.child).where(parents))
    counted = update(nodes).where(hit, nodes.c.state == WAITING).values(pending=nodes.c.pending - number)
    return counted.returning(nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending)
