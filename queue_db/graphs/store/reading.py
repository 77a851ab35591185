"""Read graphs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, func, select

from queue_db.graphs.model import NodeState
from queue_db.graphs.store import rows
from queue_db.graphs.tables import graph_tables
from queue_db.store.base import Transaction
from queue_db.store.portions import portions

Counts = dict[int, dict[int, dict[NodeState, int]]]
"""How many nodes are in each state: graph → layer → state → number."""


def find(tx: Transaction, graph: int) -> Row[Any] | None:
    """The row of a graph; None: there is none with this id."""
    table = graph_tables(tx.tables).graphs
    return tx.connection.execute(select(table).where(table.c.id == graph)).first()


def page(tx: Transaction, *, below: int | None, limit: int) -> Sequence[Row[Any]]:
    """The rows of up to ``limit`` graphs, newest first.

    :param below: only graphs with ids below this one; None: all.
    """
    table = graph_tables(tx.tables).graphs
    chosen = select(table).order_by(table.c.id.desc()).limit(limit)
    return tx.connection.execute(chosen if below is None else chosen.where(table.c.id < below)).all()


def counts(tx: Transaction, graphs: Collection[int]) -> tuple[Counts, dict[int, int]]:
    """The numbers of the nodes of these graphs, and when their last nodes left (microseconds). Reads all their nodes."""
    nodes = graph_tables(tx.tables).nodes
    found: Counts = {graph: {} for graph in graphs}
    latest: dict[int, int] = {}
    query = (
        select(
            nodes.c.graph_id, nodes.c.layer, nodes.c.state, func.count().label("number"), func.max(nodes.c.finished_at).label("at")
        )
        .where(nodes.c.graph_id.in_(sorted(graphs)))
        .group_by(nodes.c.graph_id, nodes.c.layer, nodes.c.state)
        .order_by(nodes.c.graph_id, nodes.c.layer)
    )
    for row in tx.connection.execute(query) if graphs else ():
        found[row.graph_id].setdefault(row.layer, {})[NodeState(row.state)] = int(row.number)
        if row.at is not None:
            latest[row.graph_id] = max(latest.get(row.graph_id, 0), row.at)
    return found, latest


def queues(tx: Transaction, graphs: Collection[int]) -> dict[int, list[str]]:
    """The names of the queues of the nodes of these graphs, by graph."""
    nodes = graph_tables(tx.tables).nodes
    found: dict[int, list[str]] = {}
    query = select(nodes.c.graph_id, nodes.c.queue).where(nodes.c.graph_id.in_(sorted(graphs))).distinct()
    for row in tx.connection.execute(query.order_by(nodes.c.graph_id, nodes.c.queue)) if graphs else ():
        found.setdefault(row.graph_id, []).append(row.queue)
    return found


def page_of_nodes(
    tx: Transaction, graph: int, *, state: NodeState | None, above: int, limit: int
) -> tuple[Sequence[Row[Any]], dict[int, list[int]]]:
    """The rows of up to ``limit`` nodes with ids above ``above``, in the order of their ids, and their parents by id."""
    nodes = graph_tables(tx.tables).nodes
    query = select(nodes).where(nodes.c.graph_id == graph, nodes.c.id > above).order_by(nodes.c.id).limit(limit)
    if state is not None:
        query = query.where(nodes.c.state == state.value)
    found = tx.connection.execute(query).all()
    return found, parents_of(tx, [row.id for row in found])


def parents_of(tx: Transaction, ids: Collection[int]) -> dict[int, list[int]]:
    """The parents of these nodes, ascending; nodes without parents are missing."""
    edges = graph_tables(tx.tables).edges
    parents: dict[int, list[int]] = {}
    for some in rows.parts(ids):
        query = select(edges.c.child, edges.c.parent).where(edges.c.child.in_(some)).order_by(edges.c.child, edges.c.parent)
        for child, parent in tx.connection.execute(query):
            parents.setdefault(child, []).append(parent)
    return parents


def parents_with_results(tx: Transaction, child: int) -> list[Row[Any]]:
    """The rows of the parents of a node, each with its encoded result, in the order of their ids."""
    tables = graph_tables(tx.tables)
    nodes, edges, results = tables.nodes, tables.edges, tables.results
    query = (
        select(nodes, results.c.result)
        .select_from(edges.join(nodes, nodes.c.id == edges.c.parent).outerjoin(results, results.c.id == nodes.c.id))
        .where(edges.c.child == child)
        .order_by(nodes.c.id)
    )
    return list(tx.connection.execute(query))


def edges_within(tx: Transaction, ids: Sequence[int]) -> list[tuple[int, int]]:
    """``(parent, child)`` of the edges that begin at these nodes, in the order of ids."""
    edges = graph_tables(tx.tables).edges
    found: list[tuple[int, int]] = []
    for some in portions(ids):
        query = select(edges.c.parent, edges.c.child).where(edges.c.parent.in_(some)).order_by(edges.c.parent, edges.c.child)
        found += [(row.parent, row.child) for row in tx.connection.execute(query)]
    return found


def node_in(tx: Transaction, graph: int, node: str | int) -> int | None:
    """The id of the node with this name or id; None: the graph has none."""
    nodes = graph_tables(tx.tables).nodes
    mine = nodes.c.name == node if isinstance(node, str) else nodes.c.id == node
    found = tx.connection.execute(select(nodes.c.id).where(nodes.c.graph_id == graph, mine)).scalar()
    return None if found is None else int(found)
