"""What a graph leaves in its tables."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import func, select

from queue_db import QueueDB
from queue_db.graphs.tables import graph_tables
from queue_db.model import StoredResult


def _numbers(db: QueueDB) -> dict[str, int]:
    tables = graph_tables(db.store.tables)
    with db.database.begin() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(getattr(tables, name))).scalar_one()
            for name in ("graphs", "nodes", "edges", "results")
        }


def test_a_prune_leaves_no_row_of_a_graph_that_has_expired(tmp_path: Path) -> None:
    """Nor the results of its nodes, nor what a dead, a cancelled and an added node have."""
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        queue = db.queue("media")
        with db.graph(keep=0) as graph:
            first = graph.add("media", "k", name="first")
            graph.add("media", "k", name="dead", after=first)
            graph.add("media", "k", name="cancelled", after=["dead"])
        (job,) = queue.claim()
        assert job.graph is not None
        job.graph.add("media", "k", name="added", after="first")
        assert all(queue.complete_many([job], results=[StoredResult("1", 0)]))
        jobs = queue.claim(10)
        assert all(queue.complete_many(jobs[:1], results=[StoredResult("2", 0)]))
        assert [one.bury("no use") for one in queue.claim(10) + jobs[1:]]
        assert _numbers(db) == {"graphs": 1, "nodes": 4, "edges": 4, "results": 2}
        for _ in range(2):  # the first one notes the end
            db.prune()
        assert _numbers(db) == {"graphs": 0, "nodes": 0, "edges": 0, "results": 0}
