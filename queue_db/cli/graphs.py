"""``queue-db graphs``: jobs that start when their parents have left."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from queue_db.cli import panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import user
from queue_db.graphs import Graph, Node, NodeState
from queue_db.operations import graphs as operations

GraphArgument = Annotated[int, typer.Argument(metavar="ID", min=1, help="Id of the graph.")]
NodeOption = Annotated[
    str | None, typer.Option("--node", metavar="NAME", help="Only this node, and those below it that depend on it.")
]

app = typer.Typer(
    name="graphs",
    help="Jobs that wait for other jobs: a node of a graph starts when all its parents have left.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@command(app, "list", "queue-db graphs list", "queue-db graphs list --json | jq .counts")
def list_graphs(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N graphs, the newest.")] = 50,
    common: CommonOptions,
) -> None:
    """List the graphs, newest first, with the numbers of their nodes by state."""
    with common.open() as db:
        found = db.graphs.list(limit=limit)
    common.print_all(
        found,
        ("graph", "name", "state", *NodeState, "created", "finished"),
        lambda one: (one.id, one.name or "", one.state, *_numbers(one), one.created_at, one.finished_at or ""),
        _record,
    )


@command(
    app, "show", "queue-db graphs show 7", "queue-db graphs show 7 --state dead", "queue-db graphs show 7 --json | jq .parents"
)
def show(
    graph: GraphArgument,
    *,
    state: Annotated[
        NodeState | None, typer.Option("--state", metavar="|".join(NodeState), help="Only nodes in this state.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N nodes.")] = 100,
    common: CommonOptions,
) -> None:
    """List the nodes of a graph, with the nodes for which each waits. The id of a node is that of its job."""
    with common.open() as db:
        nodes = db.graphs.nodes(graph, state=state, limit=limit)
    names = {node.id: node.name for node in nodes}
    common.print_all(
        nodes,
        ("job", "node", "queue", "kind", "layer", "state", "parents", "if failed", "left"),
        lambda one: (
            *(one.id, one.name, one.queue, one.kind, one.layer, one.state),
            _few([names.get(parent, str(parent)) for parent in one.parents]),
            *(one.if_failed, one.finished_at or ""),
        ),
        _node,
    )


@command(app, "cancel", "queue-db graphs cancel 7", "queue-db graphs cancel 7 --node publish")
def cancel(graph: GraphArgument, *, node: NodeOption = None, common: CommonOptions) -> None:
    """Cancel the nodes that are to be done: their jobs leave their queues, and workers lose them.

    With --node only this node, and what is cancelled with it.
    """
    with common.open() as db:
        number = operations.cancel(db, user(), graph, node)
    common.print({"graph": graph, "cancelled": number}, f"cancelled {number:,} nodes of graph {graph}")


@command(app, "retry", "queue-db graphs retry 7", "queue-db graphs retry 7 --node publish")
def retry(graph: GraphArgument, *, node: NodeOption = None, common: CommonOptions) -> None:
    """Redrive the dead nodes, and bring back the cancelled ones, which wait for their parents again."""
    with common.open() as db:
        number = operations.retry(db, user(), graph, node)
    common.print({"graph": graph, "retried": number}, f"retried {number:,} nodes of graph {graph}")


#: Most parents in a line.
_FEW = 5


def _few(names: list[str]) -> str:
    more = len(names) - _FEW
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_FEW])} and {more:,} more"


def _numbers(graph: Graph) -> list[int]:
    return [graph.counts.get(state, 0) for state in NodeState]


def _record(graph: Graph) -> dict[str, Any]:
    record = asdict(graph)
    del record["layers"]
    return record


def _node(node: Node) -> dict[str, Any]:
    record = asdict(node)
    del record["result"]
    return record
