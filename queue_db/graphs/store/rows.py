"""What all changes of nodes share: their edges, and their rows, locked in the order of their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Table, func, select

from queue_db.dialects import Dialect
from queue_db.dialects.transactions import own
from queue_db.graphs.dialects import GraphDialect, WaitingNode
from queue_db.graphs.dialects.base import WAITING
from queue_db.graphs.model import NodeState
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.store.base import Transaction
from queue_db.store.portions import portions

_REVIVABLE = (NodeState.WAITING.value, NodeState.CANCELLED.value)

#: The most nodes in one statement without a value for each node. SQLite allows 32,766 parameters, and fewer before 3.32.
MANY = 5000


@lru_cache(maxsize=64)
def on(dialect: Dialect) -> GraphDialect:
    """Kept, since the statements below are kept by it."""
    return GraphDialect.of(dialect)


def parts(ids: Collection[int]) -> Iterable[Sequence[int]]:
    """The ids in ascending order, in parts for one statement each."""
    return portions(sorted(ids), MANY)


def edges_from(tx: Transaction, parents: Collection[int]) -> list[tuple[int, int]]:
    """``(parent, child)`` of each edge that begins at one of ``parents``."""
    statement = _edges_from(on(tx.dialect), graph_tables(tx.tables), locks=_locks(tx))
    edges: list[tuple[int, int]] = []
    for some in parts(parents):
        edges += [(parent, child) for parent, child in tx.fetch(statement, {"ids": some})]
    return edges


def children_of(tx: Transaction, parents: Collection[int]) -> Mapping[int, int]:
    """Of each node that waits for one of ``parents``: for how many of them."""
    if _locks(tx):  # not every database locks groups of rows
        return Counter(child for _, child in edges_from(tx, parents))
    statement = _children_of(on(tx.dialect), graph_tables(tx.tables))
    children: Counter[int] = Counter()
    for some in parts(parents):
        for child, number in tx.fetch(statement, {"ids": some}):
            children[child] += number
    return children


def _locks(tx: Transaction) -> bool:
    """Whether edges are read with locks: a caller's transaction may have an old snapshot, but this returns the current rows."""
    return own(tx.connection) is None and tx.connection.get_isolation_level() != "READ COMMITTED"


@lru_cache(maxsize=64)
def _children_of(of: GraphDialect, tables: GraphTables) -> Any:
    child = tables.edges.c.child
    return select(child, func.count().label("number")).where(of.lists.one_of(tables.edges.c.parent, "ids")).group_by(child)


@lru_cache(maxsize=64)
def _edges_from(of: GraphDialect, tables: GraphTables, *, locks: bool) -> Any:
    query = select(tables.edges.c.parent, tables.edges.c.child).where(of.lists.one_of(tables.edges.c.parent, "ids"))
    return of.dialect.lock_rows(query, skip=False) if locks else query


def waiting(tx: Transaction, ids: Collection[int]) -> list[WaitingNode]:
    """Lock those of the nodes that are waiting, in the order of their ids, and return them."""
    statement = _waiting(on(tx.dialect), graph_tables(tx.tables).nodes)
    return [WaitingNode(*row) for some in parts(ids) for row in tx.fetch(statement, {"ids": some})]


@lru_cache(maxsize=64)
def _waiting(of: GraphDialect, nodes: Table) -> Any:
    columns = (nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending, nodes.c.if_failed)
    query = select(*columns).where(of.lists.one_of(nodes.c.id, "ids"), nodes.c.state == WAITING).order_by(nodes.c.id)
    return of.dialect.lock_rows(of.dialect.by_id(query, nodes), skip=False)


def held(tx: Transaction, ids: Collection[int]) -> dict[int, NodeState]:
    """Lock those of the nodes that wait or are cancelled, in the order of their ids, and return their states."""
    nodes = graph_tables(tx.tables).nodes
    found: dict[int, NodeState] = {}
    for some in parts(ids):
        query = select(nodes.c.id, nodes.c.state).where(nodes.c.id.in_(some), nodes.c.state.in_(_REVIVABLE)).order_by(nodes.c.id)
        locked = tx.dialect.lock_rows(tx.dialect.by_id(query, nodes), skip=False)
        found |= {row.id: NodeState(row.state) for row in tx.connection.execute(locked)}
    return found
