"""PostgreSQL for graphs: arrays, and one statement for completed nodes and those that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import ARRAY, Table, bindparam, column, func, insert, literal_column, select

from queue_db.dialects.statements import Columns
from queue_db.graphs.dialects import base
from queue_db.graphs.dialects.base import WAITING, GraphDialect, Started, counted_down
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.store.base import Transaction


class PostgreSQLForGraphs(GraphDialect):
    """A WITH clause changes the nodes and those that wait for them."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    def insert_all(self, tx: Transaction, table: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> None:
        values = {f"all_{name}": list(given) for name, given in zip(columns, zip(*rows, strict=True), strict=True)}
        tx.execute(_insertion(table, columns), values)

    def complete(self, tx: Transaction, ids: Sequence[int]) -> list[Started] | None:
        # Another statement admits the jobs: the planner does not know how many nodes come out of this one, and would compare each
        # of them with each job.
        statement = _completion(self, graph_tables(tx.tables), settable=tx.store.clock is not None)
        return self.admitted(tx, tx.fetch(statement, {"ids": list(ids), **tx.time()}))


@lru_cache(maxsize=64)
def _insertion(table: Table, columns: Columns) -> Any:
    """Insert the rows whose values are in one array for each column: the driver would send a statement for each row."""
    arrays = func.unnest(*[bindparam(f"all_{name}", type_=ARRAY(table.c[name].type)) for name in columns])
    given = arrays.table_valued(*[column(name, table.c[name].type) for name in columns], name="given").render_derived(name="given")
    return insert(table).from_select(list(columns), select(*given.c))


@lru_cache(maxsize=64)
def _completion(of: GraphDialect, tables: GraphTables, *, settable: bool) -> Any:
    """Complete the nodes in the array ``ids``, count down those that wait for them, and return the ones that start."""
    nodes, edges = tables.nodes, tables.edges
    over = base.completed(of, nodes, settable=settable).cte("over")
    hit = (
        select(edges.c.child, func.count().label("number"))
        .where(of.lists.one_of(edges.c.parent, "ids"))
        .group_by(edges.c.child)
        .cte("hit")
    )
    # Lock the rows in the order of their ids, so that no two transactions wait for each other. The lock returns the newest row, so
    # the state is asked after it: a retry may have brought a node back that is cancelled in this statement's snapshot.
    held = (
        select(nodes.c.id, nodes.c.state, hit.c.number)
        .join_from(hit, nodes, nodes.c.id == hit.c.child)
        .order_by(nodes.c.id)
        .with_for_update(of=nodes)
        .cte("held")
    )
    # If another transaction has counted meanwhile, the UPDATE takes its numbers, and not those of the snapshot.
    counted = (
        counted_down(nodes, held.c.number)
        .where(nodes.c.id == held.c.id, held.c.state == WAITING)
        .returning(nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending)
        .cte("counted")
    )
    return select(*counted.c).where(counted.c.pending <= literal_column("0")).add_cte(over)
