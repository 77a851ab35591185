"""Graphs: the newest ones, and one of them as a drawing."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request, Response

from queue_db.graphs import NodeState
from queue_db.operations import graphs as operations
from queue_db.operations import rights
from queue_db.service.http.pressure import Admission
from queue_db.service.http.requests import Db, Fields, Person
from queue_db.service.pages import graph_drawing as drawing
from queue_db.service.pages.render import address, back, page
from queue_db.service.pages.routing import page_router

router = page_router()

#: Graphs on one page of the list, and nodes in the table below a drawing.
MOST, MOST_NODES = 50, 80

GraphId = Annotated[int, Path(ge=0, lt=2**63)]


@router.get("/graphs", name="graphs")
def show(request: Request, db: Db, who: Person, after: Annotated[int | None, Query(ge=0, lt=2**63)] = None) -> Response:
    """The graphs, newest first. ``after``: the id of the last one of the previous page."""
    who.check("read")
    found = db.graphs.list(limit=MOST + 1, after=after)
    return page(
        request,
        "graphs",
        graphs=[one for one in found[:MOST] if rights.allows_graph(who, "read", one)],
        older=found[MOST - 1].id if len(found) > MOST else None,
        after=after,
        states=list(NodeState),
    )


@router.get("/graphs/{number}", name="graph")
def graph(request: Request, db: Db, who: Person, number: GraphId, state: NodeState | None = None) -> Response:
    """A graph. ``state``: only nodes in this state are in the table."""
    found = rights.graph(db, who, "read", number)
    # A large graph is not read as a whole: of it the layers are drawn.
    small = found.nodes <= drawing.MOST_NODES
    nodes = db.graphs.nodes(number, limit=drawing.MOST_NODES) if small else []
    small = small and sum(len(node.parents) for node in nodes) <= drawing.MOST_EDGES
    listed = (
        [node for node in nodes if state in (None, node.state)] if small else db.graphs.nodes(number, state=state, limit=MOST_NODES)
    )
    return page(
        request,
        "graph",
        here="graphs",
        graph=found,
        picture=drawing.drawn(found, nodes, lambda job: address(request, "job", number=job))
        if small
        else drawing.summarized(found),
        small=small,
        nodes=listed,
        state=state,
        states=list(NodeState),
        most=MOST_NODES,
        may=rights.allows_graph(who, "manage", found),
    )


@router.post("/graphs/{number}/cancel", name="cancel_graph")
def cancel(request: Request, db: Db, who: Person, number: GraphId, fields: Fields) -> Response:
    """Cancel what is to be done."""
    cancelled = operations.cancel(db, who, number, fields.get("node") or None)
    return back(request, "graph", "graph-cancelled", {"number": cancelled}, number=number)


@router.post("/graphs/{number}/retry", name="retry_graph")
def retry(request: Request, db: Db, who: Person, number: GraphId, fields: Fields) -> Response:
    """Redrive the dead nodes and bring back the cancelled ones."""
    rights.graph(db, who, "manage", number)
    node = fields.get("node") or None
    with Admission(request) as admission:
        admission.check(admission.graph(db, number, node))
        retried = operations.retry(db, who, number, node)
    return back(request, "graph", "graph-retried", {"number": retried}, number=number)
