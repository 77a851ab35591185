"""A worker is killed while it completes a parent: the child starts once, or not at all while the parent is still to be done."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from queue_db import LeasedJob, NewGraph, Queue, QueueDB
from tests.patience import PATIENCE, wait_for


def _claimed(queue: Queue) -> list[LeasedJob]:
    return queue.claim(10)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"], scope="session")
def test_a_child_starts_once_whenever_the_worker_of_its_parent_is_killed(url: str, name: str, when: str) -> None:
    with QueueDB(url) as db:
        queue = db.queue(name)
        graph: NewGraph
        with db.graph() as graph:
            graph.add(name, "step", "child", name="child", after=graph.add(name, "step", "parent", name="parent"))
        assert graph.id is not None
        killed = subprocess.run([sys.executable, "-m", "tests.crash.parent", url, name, when], timeout=PATIENCE, check=False)
        assert killed.returncode == -signal.SIGKILL
        states = {node.name: node.state.value for node in db.graphs.nodes(graph.id)}
        if when == "before":
            assert states == {"parent": "queued", "child": "waiting"}
            (parent,) = wait_for(lambda: _claimed(queue))  # its lease of a second ends
            assert parent.payload == "parent"
            assert parent.complete()
        else:
            assert states == {"parent": "completed", "child": "queued"}
        assert [job.payload for job in _claimed(queue)] == ["child"]
        assert _claimed(queue) == []
