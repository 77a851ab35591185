"""A node that was cancelled with its graph keeps its steps as long as a retry can bring it back."""

from __future__ import annotations

from queue_db import Queue
from queue_db.testing.suite.steps import rows


def test_a_cancelled_node_goes_on_after_a_retry(queue: Queue) -> None:
    with queue.db.graph() as graph:
        graph.add(queue.name, "order", name="pay")
    assert graph.id is not None
    (job,) = queue.claim()
    assert job.step("charge", lambda: "paid") == "paid"
    assert queue.db.graphs.cancel(graph.id) == 1
    queue.db.prune()
    assert queue.db.graphs.retry(graph.id)
    (again,) = queue.claim()
    assert again.id == job.id
    assert again.step("charge", lambda: "twice") == "paid"
    assert again.complete()
    queue.db.prune()
    assert rows(queue.db, job.id) == 0
