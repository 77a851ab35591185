"""Those who come to one node at the same time: it starts once, when the last parent has left, and never without one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from queue_db import LeasedJob, NewGraph, Queue, QueueDB, TransientStorageError, Verdict
from queue_db.graphs.dialects import GraphDialect, WaitingNode
from queue_db.graphs.store import changing, enqueue, rows
from queue_db.graphs.store.enqueue import Joining, Planned
from queue_db.graphs.tables import graph_tables
from queue_db.model import NewJob
from queue_db.store import Transaction
from tests.races.interleaving import Loser, at_once, open_transaction

OpenDB = Callable[..., QueueDB]


def graph_of(queue: Queue, parents: str, child: str = "child") -> int:
    """A graph in which ``child`` waits for each of ``parents``."""
    graph: NewGraph
    with queue.db.graph() as graph:
        graph.add(queue.name, "step", child, name=child, after=[graph.add(queue.name, "step", name, name=name) for name in parents])
    assert graph.id is not None
    return graph.id


def claimed(queue: Queue, number: int = 100) -> dict[str, LeasedJob]:
    return {job.payload: job for job in queue.claim(number)}


def joined(queue: Queue, connection: Any, at: LeasedJob, others: list[str]) -> None:
    """Add the node ``new`` in an open transaction."""
    job = NewJob(queue.name, "step", '"new"', None, 0, 25)
    assert at.graph_id is not None
    enqueue.join(
        Transaction(connection, queue.db.store),
        Joining(at.graph_id, at.id, at.version),
        [Planned("new", job, 0, "cancel", ())],
        [others],
    )


def a_completion_loses_to_that_of_another_parent(kind: str, ours: Queue, theirs: Queue) -> None:
    graph_of(ours, "ab")
    (first,), (second,) = ours.claim(), theirs.claim()
    with open_transaction(ours.db) as connection:
        assert first.complete(using=connection) is Verdict.APPLIED
        late = Loser(kind, theirs.db, second.complete)
        late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert list(claimed(ours)) == ["child"]


def a_completion_loses_to_nodes_that_the_job_adds(kind: str, ours: Queue, theirs: Queue) -> None:
    graph_of(ours, "a")
    (job,) = theirs.claim()
    with open_transaction(ours.db) as connection:
        joined(ours, connection, job, [])
        late = Loser(kind, theirs.db, job.complete)
        late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert list(claimed(ours)) == ["new"]


def a_completion_loses_to_a_node_that_waits_for_it_from_now_on(kind: str, ours: Queue, theirs: Queue) -> None:
    graph_of(ours, "ab")
    (first,), (second,) = ours.claim(), theirs.claim()
    with open_transaction(ours.db) as connection:
        joined(ours, connection, first, [second.payload])
        late = Loser(kind, theirs.db, second.complete)
        late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert list(claimed(ours)) == ["new"]


def a_cancel_loses_to_a_completion(kind: str, ours: Queue, theirs: Queue) -> None:
    graph = graph_of(ours, "a")
    (job,) = ours.claim()
    with open_transaction(ours.db) as connection:
        assert job.complete(using=connection) is Verdict.APPLIED
        late = Loser(kind, theirs.db, lambda: theirs.db.graphs.cancel(graph))
        late.until_it_waits()
        connection.commit()
        assert late.result() == 1
    assert ours.claim() == []
    assert ours.db.graphs.get(graph).counts == {"completed": 1, "cancelled": 1}


def a_completion_loses_to_a_cancel(kind: str, ours: Queue, theirs: Queue) -> None:
    graph = graph_of(ours, "a")
    (job,) = theirs.claim()
    with open_transaction(ours.db) as connection:
        assert changing.cancel(Transaction(connection, ours.db.store), graph, None) == 2
        late = Loser(kind, theirs.db, job.complete)
        late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.LOST
    assert ours.claim() == []
    assert ours.db.graphs.get(graph).counts == {"cancelled": 2}


def a_cancel_loses_to_nodes_that_a_job_adds(kind: str, ours: Queue, theirs: Queue) -> None:
    graph = graph_of(ours, "a")
    (job,) = ours.claim()
    with open_transaction(ours.db) as connection:
        joined(ours, connection, job, [])
        late = Loser(kind, theirs.db, lambda: theirs.db.graphs.cancel(graph))
        late.until_it_waits()
        connection.commit()
        assert late.result() == 3
    assert ours.claim() == []
    assert ours.db.graphs.get(graph).counts == {"cancelled": 3}


def a_completion_loses_to_a_retry(kind: str, ours: Queue, theirs: Queue) -> None:
    graph = graph_of(ours, "ab")
    jobs = claimed(theirs)
    assert jobs["b"].bury("broken")
    with open_transaction(ours.db) as connection:
        assert len(changing.retry(Transaction(connection, ours.db.store), graph, None).revived) == 1
        late = Loser(kind, theirs.db, jobs["a"].complete)
        late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert claimed(ours)["b"].complete()
    assert list(claimed(ours)) == ["child"]


def a_completion_loses_to_a_retry_that_brings_back_its_child(kind: str, ours: Queue, theirs: Queue) -> None:
    with ours.db.graph() as graph:
        child = graph.add(ours.name, "step", "child", name="child", after=graph.add(ours.name, "step", "a", name="a"))
        graph.add(ours.name, "step", "grandchild", name="grandchild", after=child)
    assert graph.id is not None
    (job,) = theirs.claim()
    assert ours.db.graphs.cancel(graph.id, node="child") == 2
    with open_transaction(ours.db) as connection:
        assert len(changing.retry(Transaction(connection, ours.db.store), graph.id, None).revived) == 2
        late = Loser(kind, theirs.db, job.complete)
        late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert claimed(ours)["child"].complete()
    assert list(claimed(ours)) == ["grandchild"]


RACES = [
    a_completion_loses_to_that_of_another_parent,
    a_completion_loses_to_nodes_that_the_job_adds,
    a_completion_loses_to_a_node_that_waits_for_it_from_now_on,
    a_cancel_loses_to_a_completion,
    a_completion_loses_to_a_cancel,
    a_cancel_loses_to_nodes_that_a_job_adds,
    a_completion_loses_to_a_retry,
    a_completion_loses_to_a_retry_that_brings_back_its_child,
]


@pytest.mark.parametrize("race", RACES)
def test_a_node_is_seen_as_the_winner_left_it(
    kind: str, race: Callable[[str, Queue, Queue], None], ours: Queue, theirs: Queue
) -> None:
    race(kind, ours, theirs)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_child_is_due_after_the_parent_that_its_admission_waited_for(kind: str, open_db: OpenDB, name: str) -> None:
    """The statement that admits it has begun before: a claim could have passed the time of its start."""
    ours, theirs = (open_db(strategy="optimistic").queue(name) for _ in range(2))
    graph_of(ours, "ab")
    (first,), (second,) = ours.claim(), theirs.claim()
    with open_transaction(ours.db) as connection:
        assert first.complete(using=connection) is Verdict.APPLIED
        late = Loser(kind, theirs.db, second.complete)
        late.until_it_waits()
        before = Transaction(connection, ours.db.store).read_clock()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    jobs = ours.db.store.tables.jobs
    with ours.db.database.engine.connect() as connection:
        assert connection.execute(select(jobs.c.available_at).where(jobs.c.queue == name)).scalar_one() >= before


def completed_in_a_snapshot(queue: Queue, job: LeasedJob, change: Callable[[], object] = lambda: None) -> Verdict:
    """Complete a job in a caller's transaction at REPEATABLE READ that has read before ``change``.

    Some servers refuse to lock rows that have changed since. Then the caller runs its transaction again, as the error says.
    """
    engine = queue.db.database.engine.execution_options(isolation_level="REPEATABLE READ")
    nodes = graph_tables(queue.db.store.tables).nodes
    try:
        with engine.begin() as connection:
            assert connection.execute(select(func.count()).select_from(nodes)).scalar_one()
            change()
            return job.complete(using=connection)
    except TransientStorageError:
        with engine.begin() as connection:
            return job.complete(using=connection)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_callers_old_snapshot_does_not_hide_that_another_parent_has_left(kind: str, ours: Queue, theirs: Queue) -> None:
    graph_of(ours, "ab")
    (first,), (second,) = theirs.claim(), ours.claim()
    assert completed_in_a_snapshot(theirs, first, second.complete) is Verdict.APPLIED
    assert list(claimed(ours)) == ["child"]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_callers_old_snapshot_does_not_hide_a_node_that_waits_for_it(kind: str, ours: Queue, theirs: Queue) -> None:
    a_snapshot_loses_to_a_new_node(ours, theirs)


def a_snapshot_loses_to_a_new_node(ours: Queue, theirs: Queue) -> None:
    graph_of(ours, "ab")
    (first,), (second,) = theirs.claim(), ours.claim()

    def wait() -> None:
        with open_transaction(ours.db) as connection:
            joined(ours, connection, second, [first.payload])
            connection.commit()
        assert second.complete()

    assert completed_in_a_snapshot(theirs, first, wait) is Verdict.APPLIED
    assert list(claimed(ours)) == ["new"]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_callers_transaction_with_a_snapshot_loses_to_another_parent(kind: str, ours: Queue, theirs: Queue) -> None:
    """It waits for the child, which the other parent has locked, and then counts from what that one has left."""
    graph_of(ours, "ab")
    (first,), (second,) = ours.claim(), theirs.claim()
    with open_transaction(ours.db) as connection:
        assert first.complete(using=connection) is Verdict.APPLIED
        late = Loser(kind, theirs.db, lambda: completed_in_a_snapshot(theirs, second))
        late.until_it_waits()
        connection.commit()
        assert late.result() is Verdict.APPLIED
    assert list(claimed(ours)) == ["child"]


@pytest.mark.parametrize("kind", ["mysql"])
def test_with_edges_of_the_snapshot_a_new_node_waits_forever(
    kind: str, ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_locks", lambda tx: False)
    monkeypatch.setattr(type(rows.on(ours.db.store.dialect)), "waiting_for", lambda self, tx, parent: None)
    with pytest.raises(AssertionError):
        a_snapshot_loses_to_a_new_node(ours, theirs)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_without_the_lock_of_the_child_nobody_starts_it(
    kind: str, ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two parents believes that the child waits for the other one."""
    for made in (type(rows.on(ours.db.store.dialect)), GraphDialect):
        monkeypatch.setattr(made, "complete", lambda self, tx, ids: None)
        monkeypatch.setattr(made, "waiting_for", lambda self, tx, parent: None)
    monkeypatch.setattr(rows, "waiting", _unlocked)
    with pytest.raises(AssertionError):
        a_completion_loses_to_that_of_another_parent(kind, ours, theirs)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_without_the_lock_of_a_parents_job_a_new_node_waits_forever(
    kind: str, ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(ours.db.store.dialect), "lock_rows", lambda self, query, **_: query)
    with pytest.raises(AssertionError):
        a_completion_loses_to_a_node_that_waits_for_it_from_now_on(kind, ours, theirs)


def _unlocked(tx: Transaction, ids: Any) -> list[WaitingNode]:
    nodes = graph_tables(tx.tables).nodes
    columns = (nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending, nodes.c.if_failed)
    found = tx.connection.execute(select(*columns).where(nodes.c.id.in_(list(ids)), nodes.c.state == "waiting"))
    return [WaitingNode(*row) for row in found]


@pytest.mark.parametrize("children", [1, 5])
def test_twenty_parents_complete_at_once_and_each_child_starts_once(
    kind: str, url: str, name: str, open_db: OpenDB, children: int
) -> None:
    db = open_db(pool_size=20)
    queue = db.queue(name)
    with db.graph() as graph:
        parents = [graph.add(name, "step", number) for number in range(20)]
        for child in range(children):
            # In opposite orders, so that those who lock in the order of the edges wait for each other.
            graph.add(name, "step", f"child {child}", after=parents if child % 2 else parents[::-1])
    jobs = queue.claim(20)
    assert at_once(*[job.complete for job in jobs]) == [Verdict.APPLIED] * 20
    assert Counter(job.payload for job in queue.claim(100)) == {f"child {number}": 1 for number in range(children)}
    assert graph.id is not None
    assert db.graphs.get(graph.id).counts == {"completed": 20, "queued": children}
