"""A node that has lost the majority of its cluster refuses all until it has it back; nothing is lost or there twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queue_db import LeasedJob, QueueDB, TransientStorageError
from tests.clusters.conftest import catch_up
from tests.races.interleaving import at_once
from tests.servers.cluster import Cluster


def _tried(verb: Callable[[], Any]) -> Any:
    """What the verb returned, or the error that it raised."""
    try:
        return verb()
    except TransientStorageError as error:
        return error


def _refused(answer: Any) -> bool:
    return isinstance(answer, TransientStorageError) and answer.server_away


def test_a_node_without_quorum_refuses_and_the_same_object_goes_on_after_it(cluster: Cluster, urls: list[str], name: str) -> None:
    with QueueDB(urls[0], strategy="optimistic") as db:
        queue = db.queue(name)
        queue.enqueue_many([("old", number) for number in range(20)])
        (held,) = queue.claim(lease=600)
        cluster.pause(1, 2)
        try:
            # These reach the node before it knows that it is alone.
            early: list[Any] = at_once(
                *(
                    lambda number=number: _tried(lambda: queue.enqueue("new", number, unique_key=f"early {number}"))
                    for number in range(4)
                ),
                lambda: _tried(lambda: queue.claim(lease=600)),
            )
            cluster.wait(0, ready=False)
            verbs: list[Callable[[], Any]] = [
                lambda: queue.enqueue("new", 9),
                lambda: queue.claim(lease=600),
                held.complete,
                queue.stats,
            ]
            late = [_tried(verb) for verb in verbs]
        finally:
            cluster.resume(1, 2)
            cluster.wait()
        assert all(map(_refused, early)), early
        assert all(map(_refused, late)), late
        # The nodes that were silent may have got an early enqueue all the same.
        assert all(error.outcome_unknown for error in early[:4])
        assert not any(error.outcome_unknown for error in late)
        assert queue.enqueue("new", 9)
        assert held.complete()
        for url in urls:
            catch_up(url)
            with QueueDB(url) as node:
                kinds = node.queue(name).stats().by_kind
                assert kinds["old"].available + kinds["old"].running == 19
                assert 1 <= kinds["new"].available <= 5
        claimed: list[LeasedJob] = []
        while found := queue.claim(limit=10, lease=600):
            claimed += found
        old = [job.payload for job in claimed if job.kind == "old"]
        assert len(old) == len(set(old)) == 19
