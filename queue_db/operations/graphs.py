"""Operations on graphs. Who changes a graph needs the scope for the queues of all its nodes."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.graphs.store.changing import Retried
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


def cancel(db: QueueDB, actor: Actor, graph: int, node: str | int | None = None) -> int:
    """Cancel what is to be done of the graph, or one node; return how many nodes were cancelled."""
    rights.graph(db, actor, "manage", graph)
    with entry(db, actor, "cancel", _target(graph, node), of="cancel_graph"):
        return db.graphs.cancel(graph, node=node)


def retry(db: QueueDB, actor: Actor, graph: int, node: str | int | None = None) -> int:
    """Redrive the dead nodes and bring back the cancelled ones, or those from one node on; return how many."""
    rights.graph(db, actor, "manage", graph)
    with entry(db, actor, "retry", _target(graph, node), of="retry_graph", number=_retried):
        return db.graphs.retry(graph, node=node)


def _target(graph: int, node: str | int | None) -> str:
    return f"graph {graph}" if node is None else f"node {node} of graph {graph}"


def _retried(answer: Retried) -> int:
    return len(answer.redriven) + len(answer.revived)
