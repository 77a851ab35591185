"""``db.graphs``: the graphs of the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from queue_db import arguments
from queue_db.core import Core, observe
from queue_db.errors import ArgumentError, GraphNotFoundError
from queue_db.graphs.cancellations import Cancellations
from queue_db.graphs.model import Graph, GraphState, Layer, Node, NodeState, state_of
from queue_db.graphs.store import changing, reading
from queue_db.graphs.tables import NAME_LENGTH
from queue_db.model import from_micros
from queue_db.store import Transaction

#: Aliases, since the class below has a method called ``list``.
GraphList = list[Graph]
NodeList = list[Node]

_HIGHEST = 2**63 - 1


class Graphs:
    """The graphs of one database: jobs that start when their parents have left. ``db.graph()`` enqueues one."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: Reports the nodes that are cancelled in this process since a parent failed to listeners: ``cancelled.add(listener)``.
        self.cancelled: Cancellations = core.store.beside.setdefault("graphs", Cancellations(core.database))

    def get(self, graph: int) -> Graph:
        """The graph with this id, with the numbers of its nodes by state and layer. Reads all its nodes.

        :raises GraphNotFoundError: there is no such graph, or it has expired.
        """
        found = observe(self._core, "graphs.get", _get, _id(graph))
        if found is None:
            raise GraphNotFoundError(graph)
        return found

    def list(self, *, limit: int = 50, after: Graph | int | None = None) -> GraphList:
        """Graphs, newest first, without layers. Reads all their nodes.

        :param after: the last graph of the previous page, or its id.
        """
        arguments.whole("limit", limit, 1)
        below = after.id if isinstance(after, Graph) else None if after is None else _id(after)
        return observe(self._core, "graphs.list", _list, below=below, limit=limit)

    def nodes(
        self, graph: int, *, state: NodeState | str | None = None, limit: int = 1000, after: Node | int | None = None
    ) -> NodeList:
        """The nodes of a graph in the order of their ids, with the ids of their parents.

        :param state: only nodes in this state.
        :param after: the last node of the previous page, or its id.
        :raises GraphNotFoundError: there is no such graph, or it has expired.
        """
        arguments.whole("limit", limit, 1)
        above = after.id if isinstance(after, Node) else -1 if after is None else arguments.whole("after", after, 0, _HIGHEST)
        try:
            chosen = None if state is None else NodeState(state)
        except ValueError:
            raise arguments.wrong("state", state, f": must be one of {', '.join(NodeState)}") from None
        found = observe(self._core, "graphs.nodes", _nodes, _id(graph), state=chosen, above=above, limit=limit)
        if found is None:
            raise GraphNotFoundError(graph)
        rows, parents = found
        return [node_of(row, parents=parents.get(row.id, ())) for row in rows]

    def cancel(self, graph: int, *, node: str | int | None = None) -> int:
        """Cancel the nodes that are to be done: they leave their queues. Return how many nodes were cancelled.

        :param node: cancel only this node, by name or id, and what is cancelled with it by its ``if_failed``.
        :raises GraphNotFoundError: there is no such graph, or it has expired.
        :raises ArgumentError: the graph has no such node.
        """
        return self._core.write("cancel_graph", _cancel, _id(graph), _node(node))

    def retry(self, graph: int, *, node: str | int | None = None) -> int:
        """Redrive the dead nodes, and bring back the cancelled ones, which wait for their parents again. Return how many.

        A node that was cancelled by itself stays cancelled: its job is gone.

        :param node: only this node, by name or id, and those below it.
        :raises GraphNotFoundError: there is no such graph, or it has expired.
        :raises ArgumentError: the graph has no such node.
        :raises DuplicateJobError: a live job has the unique key of a cancelled node; nothing was changed.
        """
        retried = self._core.write("retry_graph", _retry, _id(graph), _node(node))
        return len(retried.redriven) + len(retried.revived)


def node_of(row: Any, *, parents: Sequence[int] = (), result: Any = None) -> Node:
    """The node in a row."""
    return Node(
        id=row.id,
        graph=row.graph_id,
        name=row.name,
        queue=row.queue,
        kind=row.kind,
        layer=row.layer,
        if_failed=row.if_failed,
        state=NodeState(row.state),
        pending=row.pending,
        finished_at=None if row.finished_at is None else from_micros(row.finished_at),
        parents=tuple(parents),
        result=result,
    )


def _get(tx: Transaction, graph: int) -> Graph | None:
    row = reading.find(tx, graph)
    return None if row is None else _graphs(tx, [row], layers=True)[0]


def _list(tx: Transaction, *, below: int | None, limit: int) -> GraphList:
    return _graphs(tx, reading.page(tx, below=below, limit=limit), layers=False)


def _graphs(tx: Transaction, rows: Sequence[Any], *, layers: bool) -> GraphList:
    ids = [row.id for row in rows]
    counts, latest = reading.counts(tx, ids)
    queues = reading.queues(tx, ids)
    graphs = []
    for row in rows:
        total: Counter[NodeState] = Counter()
        for of_layer in counts[row.id].values():
            total.update(of_layer)
        state, last = state_of(total), latest.get(row.id)
        graphs.append(
            Graph(
                id=row.id,
                name=row.name,
                state=state,
                counts=dict(total),
                created_at=from_micros(row.created_at),
                finished_at=None if state is GraphState.OPEN or last is None else from_micros(last),
                queues=tuple(queues.get(row.id, ())),
                layers=tuple(Layer(number, found) for number, found in sorted(counts[row.id].items())) if layers else (),
            )
        )
    return graphs


def _nodes(
    tx: Transaction, graph: int, *, state: NodeState | None, above: int, limit: int
) -> tuple[Sequence[Any], dict[int, list[int]]] | None:
    if reading.find(tx, graph) is None:
        return None
    return reading.page_of_nodes(tx, graph, state=state, above=above, limit=limit)


def _cancel(tx: Transaction, graph: int, node: str | int | None) -> int:
    return changing.cancel(tx, graph, _known(tx, graph, node))


def _retry(tx: Transaction, graph: int, node: str | int | None) -> changing.Retried:
    return changing.retry(tx, graph, _known(tx, graph, node))


def _known(tx: Transaction, graph: int, node: str | int | None) -> int | None:
    """The id of the node of the graph; None: none was given."""
    if reading.find(tx, graph) is None:
        raise GraphNotFoundError(graph)
    if node is None:
        return None
    found = reading.node_in(tx, graph, node)
    if found is None:
        raise ArgumentError(f"node={arguments.shown(node)}: graph {graph} has no such node")
    return found


def _id(graph: object) -> int:
    return arguments.whole("graph", graph, 0, _HIGHEST)


def _node(node: str | int | None) -> str | int | None:
    if node is None or isinstance(node, str):
        return None if node is None else arguments.name("node", node, NAME_LENGTH)
    return arguments.whole("node", node, 0, _HIGHEST)
