"""What each operation on graphs is on the three sides: a command, a request, a form."""

from __future__ import annotations

from queue_db import NewGraph, QueueDB
from tests.operations.sides import Sides


def prepare(db: QueueDB) -> dict[str, str]:
    """A graph that is open, and one with a dead node."""
    opened: NewGraph
    failed: NewGraph
    with db.graph() as opened:
        opened.add("nodes", "k", name="b", after=opened.add("nodes", "k", name="a", delay=10**6))
    with db.graph() as failed:
        failed.add("fails", "k", name="d", after=failed.add("fails", "k", name="c"))
    db.queue("fails").claim()[0].bury("no use")
    return {"opened": str(opened.id), "failed": str(failed.id)}


SIDES = [
    Sides(
        "graphs.cancel",
        ("cancel", "graph {opened}", 2),
        "graphs cancel {opened}",
        ("POST", "/graphs/{opened}/cancel"),
        "/graphs/{opened}",
        ("/graphs/{opened}/cancel", {}),
    ),
    Sides(
        "graphs.retry",
        ("retry", "graph {failed}", 2),
        "graphs retry {failed}",
        ("POST", "/graphs/{failed}/retry"),
        "/graphs/{failed}",
        ("/graphs/{failed}/retry", {}),
    ),
    Sides(
        "graphs.retry",
        ("retry", "node c of graph {failed}", 2),
        "graphs retry {failed} --node c",
        ("POST", "/graphs/{failed}/retry?node=c"),
        "/graphs/{failed}",
        ("/graphs/{failed}/retry", {"node": "c"}),
    ),
]
