"""PostgreSQL for graphs: one statement does all that follows from the completion of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import ARRAY, Table, bindparam, case, column, func, insert, literal_column, select, update

from queue_db.dialects.statements import Columns
from queue_db.graphs.dialects import base
from queue_db.graphs.dialects.base import QUEUED, WAITING, GraphDialect, Started, admission, is_blocked
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.store.base import Transaction


class PostgreSQLForGraphs(GraphDialect):
    """A WITH clause changes the nodes, those that wait for them, and the jobs of those that start."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    def insert_all(self, tx: Transaction, table: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> None:
        values = {f"all_{name}": list(given) for name, given in zip(columns, zip(*rows, strict=True), strict=True)}
        tx.execute(_insertion(table, columns), values)

    def complete(self, tx: Transaction, ids: Sequence[int]) -> list[Started] | None:
        statement = _completion(self, graph_tables(tx.tables), tx.tables.jobs, settable=tx.store.clock is not None)
        rows = tx.fetch(statement, {"ids": list(ids), **tx.time()})
        return [Started(node, graph, queue, admitted is not None) for node, graph, queue, admitted in rows]


@lru_cache(maxsize=64)
def _insertion(table: Table, columns: Columns) -> Any:
    """Insert the rows whose values are in one array for each column: the driver would send a statement for each row."""
    arrays = func.unnest(*[bindparam(f"all_{name}", type_=ARRAY(table.c[name].type)) for name in columns])
    given = arrays.table_valued(*[column(name, table.c[name].type) for name in columns], name="given").render_derived(name="given")
    return insert(table).from_select(list(columns), select(*given.c))


@lru_cache(maxsize=64)
def _completion(of: GraphDialect, tables: GraphTables, jobs: Table, *, settable: bool) -> Any:
    """The statement of :meth:`GraphDialect.complete`, for the nodes in the array ``ids``."""
    nodes, edges = tables.nodes, tables.edges
    over = base.completed(of, nodes, settable=settable).cte("over")
    hit = (
        select(edges.c.child, func.count().label("number"))
        .where(of.lists.one_of(edges.c.parent, "ids"))
        .group_by(edges.c.child)
        .cte("hit")
    )
    # Lock the rows in the order of their ids, so that no two transactions wait for each other.
    held = (
        select(nodes.c.id, hit.c.number)
        .join_from(hit, nodes, nodes.c.id == hit.c.child)
        .where(nodes.c.state == WAITING)
        .order_by(nodes.c.id)
        .with_for_update(of=nodes)
        .cte("held")
    )
    # If another transaction has counted meanwhile, the UPDATE takes its numbers, and not those of the snapshot.
    counted = (
        update(nodes)
        .where(nodes.c.id == held.c.id)
        .values(
            pending=nodes.c.pending - held.c.number, state=case((nodes.c.pending <= held.c.number, QUEUED), else_=nodes.c.state)
        )
        .returning(nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending)
        .cte("counted")
    )
    none_left = counted.c.pending <= literal_column("0")
    admitted = (
        update(jobs)
        .where(jobs.c.id == counted.c.id, none_left, is_blocked(jobs))
        .values(**admission(jobs, settable=settable))
        .returning(jobs.c.id)
        .cte("admitted")
    )
    started = select(counted.c.id, counted.c.graph_id, counted.c.queue, admitted.c.id.label("admitted"))
    return started.outerjoin_from(counted, admitted, admitted.c.id == counted.c.id).where(none_left).add_cte(over)
