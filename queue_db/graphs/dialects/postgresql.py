"""PostgreSQL for graphs: arrays, and one statement for completed nodes and those that wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import ARRAY, BigInteger, Table, bindparam, column, func, insert, literal_column, select, update

from queue_db.dialects.postgresql_inserts import copy_rows
from queue_db.dialects.statements import Columns
from queue_db.graphs.dialects import base
from queue_db.graphs.dialects.base import ROWS, WAITING, GraphDialect, Started, admission, counted_down, is_blocked
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.store.base import Transaction

#: The fewest rows that are worth a COPY, which takes one more round trip.
_LOADED = 100


class PostgreSQLForGraphs(GraphDialect):
    """A WITH clause changes the nodes and those that wait for them."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    def insert_all(self, tx: Transaction, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
        number = len(next(iter(columns.values())))
        if tx.own and number >= _LOADED and copy_rows(tx, table, columns):
            return
        for start in range(0, number, ROWS):
            values = {f"all_{name}": list(given[start : start + ROWS]) for name, given in columns.items()}
            tx.execute(_insertion(table, tuple(columns)), values)

    def complete(self, tx: Transaction, ids: Sequence[int]) -> list[Started] | None:
        statement = _completion(self, graph_tables(tx.tables), tx.tables.jobs, settable=tx.store.clock is not None)
        started = [Started(*row) for row in tx.fetch(statement, {"ids": list(ids), **tx.time()})]
        # While the statement waited for a child, a retry may have inserted the child's job, which only a new snapshot shows.
        if late := [node.id for node in started if not node.admitted]:
            self.admit(tx, late)
            there = self.with_jobs(tx, late)
            started = [node._replace(admitted=node.admitted or node.id in there) for node in started]
        return started


@lru_cache(maxsize=64)
def _insertion(table: Table, columns: Columns) -> Any:
    """Insert the rows whose values are in one array for each column: the driver would send a statement for each row."""
    arrays = func.unnest(*[bindparam(f"all_{name}", type_=ARRAY(table.c[name].type)) for name in columns])
    given = arrays.table_valued(*[column(name, table.c[name].type) for name in columns], name="given").render_derived(name="given")
    return insert(table).from_select(list(columns), select(*given.c))


@lru_cache(maxsize=64)
def _completion(of: GraphDialect, tables: GraphTables, jobs: Table, *, settable: bool) -> Any:
    """Complete the nodes in the array ``ids``, count down those that wait for them, and admit and return those that start."""
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
    ready = counted.c.pending <= literal_column("0")
    # The planner does not know how many nodes start. With joins it would compare each of them with each job, and with each result.
    starting = func.array(select(counted.c.id).where(ready).scalar_subquery(), type_=ARRAY(BigInteger))
    admitted = (
        update(jobs)
        .values(**admission(jobs, settable=settable))
        .where(jobs.c.id == func.any(starting), is_blocked(jobs))
        .returning(jobs.c.id)
        .cte("admitted")
    )
    there = counted.c.id.in_(select(admitted.c.id)).label("admitted")
    return select(counted.c.id, counted.c.graph_id, counted.c.queue, there).where(ready).add_cte(over)
