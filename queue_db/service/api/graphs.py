"""Graphs: list, look, cancel, retry. A program enqueues them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from queue_db.graphs import Graph, GraphState, NodeState
from queue_db.graphs.tables import NAME_LENGTH
from queue_db.operations import graphs as operations
from queue_db.operations import rights
from queue_db.service.api.paging import number, opened, sealed
from queue_db.service.api.shapes import After, Id, JobCount, Limit, PathId, View
from queue_db.service.http.openapi import problems
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Manager, Reader
from queue_db.service.http.times import Time

router = APIRouter(tags=["graphs"])

_HIGHEST = 2**63 - 1

NodeName = Annotated[str | None, Query(max_length=NAME_LENGTH, description="Only this node, by name, and those below it.")]


class LayerView(BaseModel):
    """The nodes of a layer."""

    number: int = Field(description="0: without parents; otherwise one more than the highest of the parents.")
    counts: dict[NodeState, int] = Field(description="Nodes by state.")


class GraphView(View):
    """A graph at the time of the call."""

    id: Id
    name: str | None
    state: GraphState
    counts: dict[NodeState, int] = Field(description="Nodes by state.")
    created_at: Time
    finished_at: Time | None = Field(description="When its last node left; null: a node is to be done.")
    queues: list[str]


class WholeGraph(GraphView):
    """A graph with its layers."""

    layers: list[LayerView]


class GraphPage(BaseModel):
    """Some graphs, and where to go on."""

    graphs: list[GraphView]
    after: str | None = Field(description="For the next page; null: there are no more.")


class NodeView(View):
    """A node of a graph."""

    id: Id = Field(description="The id of its job.")
    name: str
    queue: str
    kind: str
    layer: int
    if_failed: str
    state: NodeState
    pending: int = Field(description="For how many parents it still waits.")
    finished_at: Time | None
    parents: list[Id]


class NodePage(BaseModel):
    """Some nodes of a graph, and where to go on."""

    nodes: list[NodeView]
    after: str | None = Field(description="For the next page; null: there are no more.")


@router.get("/graphs")
def list_graphs(db: Db, who: Reader, after: After = None, limit: Limit = 50) -> GraphPage:
    """List the graphs, newest first. Those with a node in a queue that the token may not read are left out."""
    start = opened(("graphs",), after)
    graphs = db.graphs.list(limit=limit, after=None if start is None else number(start, _HIGHEST))
    last = sealed(("graphs",), str(graphs[-1].id)) if len(graphs) == limit else None
    return GraphPage(graphs=[GraphView.of(one) for one in graphs if rights.allows_graph(who, "read", one)], after=last)


@router.get("/graphs/{graph_id}", responses=problems(404))
def get_graph(graph_id: PathId, db: Db, who: Reader) -> WholeGraph:
    """A graph, with the numbers of its nodes by layer."""
    found = rights.graph(db, who, "read", _id(graph_id))
    layers = [LayerView(number=layer.number, counts=dict(layer.counts)) for layer in found.layers]
    return WholeGraph(**GraphView.of(found).model_dump(), layers=layers)


@router.get("/graphs/{graph_id}/nodes", responses=problems(404))
def list_nodes(
    graph_id: PathId, db: Db, who: Reader, state: NodeState | None = None, after: After = None, limit: Limit = 50
) -> NodePage:
    """List the nodes of a graph in the order of their ids, with their parents."""
    graph: Graph = rights.graph(db, who, "read", _id(graph_id))
    listing = ("nodes", graph_id, state)
    start = opened(listing, after)
    nodes = db.graphs.nodes(graph.id, state=state, limit=limit, after=None if start is None else number(start, _HIGHEST))
    last = sealed(listing, str(nodes[-1].id)) if len(nodes) == limit else None
    return NodePage(nodes=[NodeView.of(one) for one in nodes], after=last)


@router.post("/graphs/{graph_id}/cancel", responses=problems(404))
def cancel_graph(graph_id: PathId, db: Db, who: Manager, node: NodeName = None) -> JobCount:
    """Cancel the nodes that are to be done; with `node` this one, and what is cancelled with it."""
    return JobCount(count=operations.cancel(db, who, _id(graph_id), node))


@router.post("/graphs/{graph_id}/retry", responses=problems(404, 409, 429))
def retry_graph(request: Request, graph_id: PathId, db: Db, who: Manager, node: NodeName = None) -> JobCount:
    """Redrive the dead nodes and bring back the cancelled ones; with `node` this one, and those below it."""
    graph = rights.graph(db, who, "manage", _id(graph_id)).id
    with Admission(request) as admission:
        admission.check(admission.graph(db, graph, node))
        return JobCount(count=operations.retry(db, who, graph, node))


def _id(given: str) -> int:
    return min(int(given), _HIGHEST)
