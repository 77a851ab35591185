"""Graphs: a job starts once, when all its parents have left; what becomes of it if a parent fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from queue_db.errors import ArgumentError, ConfigurationError, DuplicateJobError, GraphNotFoundError, JobStateError, LeaseLostError
from queue_db.graphs import NewGraph, NewNode, NodesCancelled
from queue_db.leased_job import LeasedJob
from queue_db.model import State, StoredResult, Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestGraphChanges", "TestGraphFailures", "TestGraphs"]


def _add(graph: NewGraph, queue: Queue, name: str, *after: NewNode | str, **options: Any) -> NewNode:
    return graph.add(queue.name, "step", name, name=name, after=after, **options)


def _claimed(queue: Queue) -> dict[str, LeasedJob]:
    return {job.payload: job for job in queue.claim(100)}


def _run(queue: Queue) -> list[str]:
    """Claim what is due, complete it, and return the names of the nodes."""
    jobs = queue.claim(100)
    assert all(queue.complete_many(jobs))
    return sorted(job.payload for job in jobs)


def _states(queue: Queue, graph: NewGraph) -> dict[str, str]:
    assert graph.id is not None
    return {node.name: node.state.value for node in queue.db.graphs.nodes(graph.id)}


def _chain(queue: Queue, *names: str, **options: object) -> NewGraph:
    """A graph in which each node waits for the one before it; ``options`` are those of all but the first."""
    graph: NewGraph
    with queue.db.graph() as graph:
        before: list[NewNode] = []
        for name in names:
            before = [_add(graph, queue, name, *before, **(options if before else {}))]
    return graph


def _id(graph: NewGraph) -> int:
    assert graph.id is not None
    return graph.id


class TestGraphs:
    """A job starts when its parents have left."""

    def test_a_child_is_blocked_until_its_parent_completes(self, queue: Queue) -> None:
        graph = _chain(queue, "parent", "child")
        jobs = _claimed(queue)
        assert jobs.keys() == {"parent"}
        assert (jobs["parent"].graph_id, jobs["parent"].batch) == (graph.id, None)
        child = queue.db.graphs.nodes(_id(graph))[1]
        assert (queue.get(child.id).state, child.pending) == (State.BLOCKED, 1)
        assert jobs["parent"].complete()
        assert _run(queue) == ["child"]
        assert _states(queue, graph) == {"parent": "completed", "child": "completed"}
        assert queue.db.graphs.get(_id(graph)).state == "completed"

    def test_fan_in_waits_for_the_last_parent(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            parents = [_add(graph, queue, name) for name in ("a", "b", "c")]
            _add(graph, queue, "child", *parents)
        jobs = _claimed(queue)
        for name in ("b", "a"):
            assert jobs[name].complete()
            assert queue.claim() == []
        assert jobs["c"].complete()
        assert _run(queue) == ["child"]
        assert _run(queue) == []

    def test_fan_out_and_layers(self, queue: Queue) -> None:
        with queue.db.graph("shape") as graph:
            root = _add(graph, queue, "0")
            middle = [_add(graph, queue, f"1{name}", root) for name in "abc"]
            _add(graph, queue, "2", *middle[:2])
            _add(graph, queue, "3", root, "2", *middle)
        assert [_run(queue) for _ in range(5)] == [["0"], ["1a", "1b", "1c"], ["2"], ["3"], []]
        found = queue.db.graphs.get(_id(graph))
        assert (found.name, found.nodes, [layer.nodes for layer in found.layers]) == ("shape", 6, [1, 3, 1, 1])
        assert found.finished_at is not None

    def test_several_parents_complete_together(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            one, two = _add(graph, queue, "p1"), _add(graph, queue, "p2")
            _add(graph, queue, "c1", one)
            _add(graph, queue, "c2", two)
            _add(graph, queue, "both", one, two)
        assert _run(queue) == ["p1", "p2"]
        assert _run(queue) == ["both", "c1", "c2"]

    def test_a_child_of_a_job_with_a_group_runs_when_it_is_due(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            roots = [_add(graph, queue, name, group="g") for name in ("first", "second")]
            _add(graph, queue, "child", *roots)
            later = _add(graph, queue, "later", roots[0], delay=3600.0)
        assert [_run(queue) for _ in range(4)] == [["first"], ["second"], ["child"], []]
        assert later.id is not None
        assert queue.get(later.id).state is State.SCHEDULED

    def test_a_child_in_another_queue(self, queue: Queue) -> None:
        other = queue.db.queue(f"{queue.name}-other")
        with queue.db.graph() as graph:
            _add(graph, other, "child", _add(graph, queue, "parent"))
        assert other.claim() == []
        assert _run(queue) == ["parent"]
        assert _run(other) == ["child"]
        assert graph.id is not None

    def test_parents_and_children_are_known(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            one, two = _add(graph, queue, "a"), _add(graph, queue, "b")
            both = _add(graph, queue, "c", one, two)
        nodes = {node.name: node for node in queue.db.graphs.nodes(_id(graph))}
        assert (nodes["a"].parents, nodes["c"].parents) == ((), (one.id, two.id))
        assert [nodes[name].layer for name in "abc"] == [0, 0, 1]
        assert nodes["c"].id == both.id

    def test_results_of_parents_are_at_hand(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            _add(graph, queue, "sum", *(_add(graph, queue, name) for name in ("a", "b", "none")))
        jobs = _claimed(queue)
        kept = [StoredResult("1", 0), StoredResult('{"n": 2}', 60_000_000), None]
        assert all(queue.complete_many([jobs["a"], jobs["b"], jobs["none"]], results=kept))
        (job,) = queue.claim()
        assert job.results() == {"a": 1, "b": {"n": 2}, "none": None}
        assert {name: parent.state for name, parent in job.parents().items()} == dict.fromkeys(("a", "b", "none"), "completed")
        assert queue.db.state(jobs["a"].id) is State.UNKNOWN  # only the graph keeps it
        assert queue.db.finished(jobs["b"].id).result == {"n": 2}

    def test_a_job_outside_graphs_has_no_parents(self, queue: Queue) -> None:
        queue.enqueue("step", "alone")
        (job,) = queue.claim()
        assert (job.graph, job.graph_id, job.parents(), job.results()) == (None, None, {}, {})

    def test_a_parent_that_is_tried_again_still_has_its_child(self, queue: Queue, clock: SettableClock) -> None:
        graph = _chain(queue, "parent", "child")
        assert queue.claim()[0].fail("again", retry_in=1)
        clock.advance(2)
        (late,) = queue.claim(lease=1)
        clock.advance(2)
        (job,) = queue.claim()
        assert not late.complete()
        assert _states(queue, graph)["child"] == "waiting"
        assert job.complete()
        assert _run(queue) == ["child"]

    def test_a_delay_of_a_child_counts_from_the_enqueue(self, queue: Queue, clock: SettableClock) -> None:
        with queue.db.graph() as graph:
            parent = _add(graph, queue, "parent")
            _add(graph, queue, "late", parent, delay=60.0)
            _add(graph, queue, "now", parent, delay=1.0)
        clock.advance(5)
        assert _run(queue) == ["parent"]
        assert _run(queue) == ["now"]
        clock.advance(54)
        assert _run(queue) == []
        clock.advance(2)
        assert _run(queue) == ["late"]

    def test_other_ways_to_complete(self, queue: Queue) -> None:
        _chain(queue, "a", "b", "c", "d")
        assert [job.payload for job in queue.pop()] == ["a"]
        (second,) = queue.claim()
        with second.transaction():
            pass
        (third,) = queue.claim()
        _, jobs = queue.complete_and_claim([third], 1)
        assert [job.payload for job in jobs] == ["d"]

    def test_a_rolled_back_completion_starts_nothing(self, queue: Queue, notes: Notes) -> None:
        _chain(queue, "parent", "child")
        (job,) = queue.claim()
        with notes.engine.begin() as connection:
            assert job.complete(using=connection)
            connection.rollback()
        assert queue.claim() == []
        with notes.engine.begin() as connection:
            assert job.complete(using=connection)
        assert _run(queue) == ["child"]


class TestGraphChanges:
    """What is enqueued, or not; nodes that are added later; cancel, retry and prune."""

    def test_an_exception_in_the_block_enqueues_nothing(self, queue: Queue) -> None:
        graph = queue.db.graph()
        _add(graph, queue, "a")
        with pytest.raises(KeyError), graph:
            raise KeyError
        assert (graph.id, queue.stats().available) == (None, 0)
        with pytest.raises(ConfigurationError, match="has ended"):
            _add(graph, queue, "late")

    def test_in_a_transaction_of_the_caller(self, queue: Queue, notes: Notes) -> None:
        with notes.engine.begin() as connection:
            with queue.db.graph(using=connection) as lost:
                _add(lost, queue, "b", _add(lost, queue, "a"))
            connection.rollback()
        with pytest.raises(GraphNotFoundError):
            queue.db.graphs.get(_id(lost))
        with notes.engine.begin() as connection:
            with queue.db.graph(using=connection) as graph:
                _add(graph, queue, "b", _add(graph, queue, "a"))
            notes.write(connection, "with it")
        assert [_run(queue), _run(queue)] == [["a"], ["b"]]

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (lambda graph, queue: None, "no node"),
            (lambda graph, queue: [_add(graph, queue, "a"), _add(graph, queue, "a")], "a node with this name"),
            (lambda graph, queue: _add(graph, queue, "b", "missing"), "missing.*no node with this name"),
            (lambda graph, queue: [_add(graph, queue, "a", "b"), _add(graph, queue, "b", "a")], "a → b → a|b → a → b"),
            (lambda graph, queue: _add(graph, queue, "a", "a"), "a → a"),
            (lambda graph, queue: _add(graph, queue, "a", if_failed="ignore"), "cancel, run, wait"),
            (lambda graph, queue: _add(graph, queue, "b", _add(graph, queue, "a"), priority=1.5), "priority"),
            (lambda graph, queue: _add(graph, queue, "b", _add(graph, queue, "a"), group="g"), "has no group"),
            (lambda graph, queue: _add(graph, queue, "a", delays=1), "unknown options delays"),
        ],
    )
    def test_what_cannot_be_a_graph_enqueues_nothing(
        self, queue: Queue, wrong: Callable[[NewGraph, Queue], object], words: str
    ) -> None:
        with pytest.raises(ArgumentError, match=words), queue.db.graph() as graph:
            wrong(graph, queue)
        assert queue.stats().available == 0

    def test_a_cycle_of_later_edges_is_named(self, queue: Queue) -> None:
        graph = queue.db.graph()
        first = _add(graph, queue, "b", _add(graph, queue, "a"))
        graph.after(first, _add(graph, queue, "d", _add(graph, queue, "c", first)))
        with pytest.raises(ArgumentError, match=r"(b → c → d → b|c → d → b → c|d → b → c → d)$"), graph:
            pass
        assert queue.stats().available == 0

    def test_a_taken_key_enqueues_nothing(self, queue: Queue) -> None:
        queue.enqueue("step", "holder", unique_key="k")
        with pytest.raises(DuplicateJobError, match="node 'b'"), queue.db.graph() as graph:
            _add(graph, queue, "b", _add(graph, queue, "a"), unique_key="k")
        assert _run(queue) == ["holder"]

    def test_a_blocked_node_gets_another_priority_and_no_other_time(self, queue: Queue) -> None:
        graph = _chain(queue, "parent", "child")
        child = queue.db.graphs.nodes(_id(graph))[1].id
        assert queue.reschedule(child, priority=7)
        with pytest.raises(JobStateError, match="behind its parents"):
            queue.reschedule(child, delay=5)
        assert _run(queue) == ["parent"]
        assert [job.priority for job in queue.claim()] == [7]

    def test_a_node_that_runs_adds_others_for_which_its_children_wait(self, queue: Queue) -> None:
        graph = _chain(queue, "plan", "report")
        (plan,) = queue.claim()
        assert plan.graph is not None
        for _ in range(2):  # the second attempt adds nothing
            with plan.graph.adding() as more:
                parts = [more.add(queue.name, "step", name, name=name) for name in ("x", "y")]
                more.add(queue.name, "step", "z", name="z", after=parts)
        assert plan.graph.add(queue.name, "step", "w") == plan.graph.add(queue.name, "step", "v", name=f"{plan.id}.3.1")
        assert plan.complete()
        assert _run(queue) == ["w", "x", "y"]
        assert _run(queue) == ["z"]
        (report,) = queue.claim()
        assert report.parents().keys() == {"plan", "x", "y", "z", f"{plan.id}.3.1"}
        assert report.complete()
        assert queue.db.graphs.get(_id(graph)).counts == {"completed": 6}

    def test_an_added_node_waits_for_nodes_of_the_graph(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            _add(graph, queue, "plan")
            _add(graph, queue, "beside")
        jobs = _claimed(queue)
        plan = jobs["plan"].graph
        assert plan is not None
        plan.add(queue.name, "step", "after it", after="beside")
        with pytest.raises(ArgumentError, match="no node with this name"):
            plan.add(queue.name, "step", "lost", after="nobody")
        assert jobs["plan"].complete()
        assert queue.claim() == []
        assert jobs["beside"].complete()
        assert _run(queue) == ["after it"]

    def test_a_parent_that_an_earlier_attempt_has_added_is_a_parent(self, queue: Queue) -> None:
        _chain(queue, "plan", "report")
        (plan,) = queue.claim()
        assert plan.graph is not None
        plan.graph.add(queue.name, "step", "x", name="x")
        with plan.graph.adding() as more:
            more.add(queue.name, "step", "y", name="y", after=more.add(queue.name, "step", "x", name="x"))
        assert plan.complete()
        assert [_run(queue) for _ in range(4)] == [["x"], ["y"], ["report"], []]

    def test_an_added_node_cannot_wait_for_what_waits_for_it(self, queue: Queue) -> None:
        _chain(queue, "plan", "report", "archive")
        (plan,) = queue.claim()
        assert plan.graph is not None
        for below in ("report", "archive"):
            with pytest.raises(ArgumentError, match=f"after='{below}': this node waits for the one that adds nodes"):
                plan.graph.add(queue.name, "step", "x", after=below)
        assert plan.complete()
        assert [_run(queue) for _ in range(3)] == [["report"], ["archive"], []]

    def test_a_node_without_its_lease_adds_nothing(self, queue: Queue, clock: SettableClock) -> None:
        graph = _chain(queue, "plan", "report")
        (plan,) = queue.claim(lease=1)
        clock.advance(2)
        (again,) = queue.claim()
        assert plan.graph is not None
        with pytest.raises(LeaseLostError):
            plan.graph.add(queue.name, "step", "x")
        assert again.complete()
        assert _run(queue) == ["report"]
        assert queue.db.graphs.get(_id(graph)).nodes == 2

    def test_a_retry_brings_groups_and_due_times_back(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            for name in ("first", "second"):
                _add(graph, queue, name, group="g")
            later = _add(graph, queue, "later", delay=3600.0)
        assert queue.db.graphs.cancel(_id(graph)) == 3
        assert queue.db.graphs.retry(_id(graph)) == 3
        assert [_run(queue) for _ in range(3)] == [["first"], ["second"], []]
        assert later.id is not None
        assert queue.get(later.id).state is State.SCHEDULED

    def test_cancel_and_retry_a_graph(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            root = _add(graph, queue, "a")
            _add(graph, queue, "c", _add(graph, queue, "b", root), root, if_failed="run")
        (job,) = queue.claim()
        assert queue.db.graphs.cancel(_id(graph)) == 3
        assert job.complete() is Verdict.LOST
        assert (queue.claim(), queue.db.graphs.get(_id(graph)).state) == ([], "cancelled")
        assert queue.db.graphs.cancel(_id(graph)) == 0
        assert queue.db.graphs.retry(_id(graph)) == 3
        assert [_run(queue) for _ in range(4)] == [["a"], ["b"], ["c"], []]
        assert queue.db.graphs.retry(_id(graph)) == 0

    def test_cancel_one_node_and_what_follows(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            root = _add(graph, queue, "a")
            _add(graph, queue, "b1", _add(graph, queue, "b", root))
            _add(graph, queue, "c", root)
        assert queue.db.graphs.cancel(_id(graph), node="b") == 2
        assert _run(queue) == ["a"]
        assert _run(queue) == ["c"]
        assert queue.db.graphs.retry(_id(graph), node="b") == 2
        assert [_run(queue), _run(queue)] == [["b"], ["b1"]]
        with pytest.raises(ArgumentError, match="no such node"):
            queue.db.graphs.cancel(_id(graph), node="d")

    def test_a_cancelled_child_waits_for_what_its_parent_adds_before_a_retry(self, queue: Queue) -> None:
        graph = _chain(queue, "plan", "report")
        (plan,) = queue.claim()
        assert plan.bury("no use")
        assert queue.db.dead.redrive(plan.id) == [plan.id]
        (plan,) = queue.claim()
        assert plan.graph is not None
        plan.graph.add(queue.name, "step", "x", name="x")
        assert queue.db.graphs.retry(_id(graph)) == 1
        assert plan.complete()
        assert [_run(queue) for _ in range(3)] == [["x"], ["report"], []]

    def test_layers_follow_the_edges_when_nodes_are_added(self, queue: Queue) -> None:
        graph = _chain(queue, "plan", "report", "archive")
        (plan,) = queue.claim()
        assert plan.graph is not None
        with plan.graph.adding() as more:
            x, y = _add(more, queue, "x", "plan"), _add(more, queue, "y")
            _add(more, queue, "z", x, y)
        layers = {node.name: node.layer for node in queue.db.graphs.nodes(_id(graph))}
        assert layers == {"plan": 0, "x": 1, "y": 0, "z": 2, "report": 3, "archive": 4}
        assert plan.complete()
        assert [_run(queue) for _ in range(4)] == [["x", "y"], ["z"], ["report"], ["archive"]]

    def test_graphs_are_pruned_some_time_after_their_end(self, queue: Queue, clock: SettableClock) -> None:
        with queue.db.graph(keep=60) as graph:
            _add(graph, queue, "b", _add(graph, queue, "a"))
        with queue.db.graph(keep=60) as open_graph:
            _add(open_graph, queue, "open", delay=1000.0)
        assert [_run(queue), _run(queue)] == [["a"], ["b"]]
        queue.db.prune()
        clock.advance(59)
        queue.db.prune()
        assert [found.id for found in queue.db.graphs.list(limit=2)] == [open_graph.id, graph.id]
        clock.advance(2)
        queue.db.prune()
        with pytest.raises(GraphNotFoundError):
            queue.db.graphs.get(_id(graph))
        assert queue.db.graphs.get(_id(open_graph)).state == "open"


# Ways in which a parent fails: it is dead, or cancelled.
FAILURES: dict[str, tuple[Callable[[Queue], object], str]] = {
    "buried": (lambda queue: queue.claim()[0].bury("no use"), "dead"),
    "failed": (lambda queue: queue.claim()[0].fail("no use"), "dead"),
    "cancelled": (lambda queue: queue.cancel(queue.peek()[0].id), "cancelled"),
    "cancelled by lease": (lambda queue: queue.claim()[0].cancel(), "cancelled"),
}


class TestGraphFailures:
    """``if_failed`` decides what becomes of a node whose parent is dead or cancelled."""

    @pytest.mark.parametrize("way", FAILURES)
    def test_by_default_all_below_are_cancelled(self, queue: Queue, way: str, caplog: pytest.LogCaptureFixture) -> None:
        fail, state = FAILURES[way]
        other = queue.db.queue(f"{queue.name}-other")
        with queue.db.graph() as graph:
            parent = _add(graph, queue, "a", max_attempts=1)
            _add(graph, queue, "c", _add(graph, queue, "b", parent), if_failed="cancel")
            _add(graph, other, "other")  # in a queue of its own: not every strategy claims "a" before it
        told: list[NodesCancelled] = []
        before = queue.db.counters.nodes_cancelled
        queue.db.graphs.cancelled.add(told.append)
        with caplog.at_level(logging.WARNING, "queue_db.graphs"):
            fail(queue)
        queue.db.graphs.cancelled.remove(told.append)
        assert _states(queue, graph) == {"a": state, "b": "cancelled", "c": "cancelled", "other": "queued"}
        (warned,) = [record.getMessage() for record in caplog.records if record.name == "queue_db.graphs"]
        assert ": 2; " in warned
        # A log record, a counter and an event agree.
        ids = [node.id for node in queue.db.graphs.nodes(_id(graph)) if node.name in "bc"]
        assert (told, queue.db.counters.nodes_cancelled - before) == ([NodesCancelled(_id(graph), ids)], 2)
        assert _run(other) == ["other"]
        assert queue.db.graphs.get(_id(graph)).state == ("failed" if state == "dead" else "cancelled")

    @pytest.mark.parametrize("way", FAILURES)
    def test_a_node_that_runs_anyway_sees_what_failed(self, queue: Queue, way: str) -> None:
        fail, state = FAILURES[way]
        with queue.db.graph() as graph:
            parent = _add(graph, queue, "a", max_attempts=1)
            _add(graph, queue, "after", _add(graph, queue, "any", parent, if_failed="run"))
        fail(queue)
        (job,) = queue.claim()
        assert (job.payload, job.results(), job.parents()["a"].state) == ("any", {}, state)
        assert job.complete()
        assert _run(queue) == ["after"]
        assert graph.id is not None

    def test_two_parents_fail_and_one_completes(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            parents = [_add(graph, queue, name) for name in ("a", "b", "c")]
            _add(graph, queue, "any", *parents, if_failed="run")
        jobs = _claimed(queue)
        assert jobs["a"].bury("no use")
        assert jobs["b"].cancel()
        assert queue.claim() == []
        assert jobs["c"].complete()
        assert _run(queue) == ["any"]
        assert _states(queue, graph) == {"a": "dead", "b": "cancelled", "c": "completed", "any": "completed"}
        assert queue.db.graphs.get(_id(graph)).state == "failed"

    def test_a_node_that_waits_starts_after_the_dead_parent_is_redriven(self, queue: Queue) -> None:
        graph = _chain(queue, "parent", "child", if_failed="wait")
        (job,) = queue.claim()
        assert job.bury("no use")
        assert _states(queue, graph) == {"parent": "dead", "child": "waiting"}
        assert queue.db.graphs.get(_id(graph)).state == "open"
        assert queue.db.dead.redrive(job.id) == [job.id]
        assert _states(queue, graph)["parent"] == "queued"
        assert [_run(queue), _run(queue), _run(queue)] == [["parent"], ["child"], []]

    def test_a_node_that_waits_is_cancelled_when_the_dead_parent_is_purged(self, queue: Queue) -> None:
        graph = _chain(queue, "parent", "child", "grandchild", if_failed="wait")
        assert queue.claim()[0].bury("no use")
        assert queue.db.dead.purge(queue.name) == 1
        assert set(_states(queue, graph).values()) == {"cancelled"}

    def test_a_dead_parent_that_comes_back_counts_once(self, queue: Queue) -> None:
        with queue.db.graph() as graph:
            parents = [_add(graph, queue, name) for name in ("a", "b")]
            _add(graph, queue, "any", *parents, if_failed="run")
        jobs = _claimed(queue)
        assert jobs["a"].bury("no use")
        assert queue.db.dead.redrive(jobs["a"].id)
        assert jobs["b"].complete()
        assert _run(queue) == ["a"]
        assert _run(queue) == ["any"]
        assert queue.db.graphs.get(_id(graph)).state == "completed"

    @pytest.mark.parametrize("node", [None, "a"])
    def test_retry_brings_back_what_a_death_has_cancelled(self, queue: Queue, node: str | None) -> None:
        graph = _chain(queue, "a", "b", "c")
        assert queue.claim()[0].bury("no use")
        assert queue.db.graphs.retry(_id(graph), node=node) == 3
        assert _states(queue, graph) == {"a": "queued", "b": "waiting", "c": "waiting"}
        assert [_run(queue) for _ in range(4)] == [["a"], ["b"], ["c"], []]

    def test_retry_below_a_parent_that_stays_dead_brings_nothing_back(self, queue: Queue) -> None:
        graph = _chain(queue, "a", "b", "c")
        assert queue.claim()[0].bury("no use")
        assert queue.db.graphs.retry(_id(graph), node="b") == 0
        assert _states(queue, graph) == {"a": "dead", "b": "cancelled", "c": "cancelled"}

    def test_an_exhausted_parent_is_dead(self, queue: Queue, clock: SettableClock) -> None:
        with queue.db.graph() as graph:
            _add(graph, queue, "b", _add(graph, queue, "a", max_attempts=1))
        queue.claim(lease=1)
        clock.advance(2)
        assert queue.claim() == []
        assert _states(queue, graph) == {"a": "dead", "b": "cancelled"}

    def test_a_purged_queue_takes_its_nodes_along(self, queue: Queue) -> None:
        other = queue.db.queue(f"{queue.name}-other")
        with queue.db.graph() as graph:
            parent = _add(graph, queue, "a")
            _add(graph, other, "run", parent, if_failed="run")
            _add(graph, other, "cancel", parent)
        assert queue.purge() == 1
        assert _states(queue, graph) == {"a": "cancelled", "run": "queued", "cancel": "cancelled"}
        assert _run(other) == ["run"]
