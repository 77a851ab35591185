"""Handlers that never come back: their slots are shown, and a worker may end when too many are stuck."""

import threading

import pytest
from prometheus_client import CollectorRegistry

from queue_db import ArgumentError
from queue_db.backoff import constant
from queue_db.instrumentation import prometheus
from queue_db.monitoring.insights import findings
from queue_db.worker import Worker
from queue_db.worker.events import Results
from tests.patience import PATIENCE, wait_for

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def hanging(queue, monkeypatch):
    """A worker with two slots whose handlers hang, past their timeouts."""
    monkeypatch.setattr("queue_db.worker.run.STUCK_AFTER", 0.0)
    monkeypatch.setattr("queue_db.worker.registration.REPORT_EVERY", 0.02)
    go = threading.Event()

    def make(**options):
        worker = Worker(queue.db, queue.name, concurrency=2, **options)
        worker.handles("hangs", timeout=0.05, backoff=constant(1000))(lambda job: go.wait(PATIENCE))
        return worker

    yield make
    go.set()


def test_stuck_slots_are_shown_wherever_workers_are(queue, db, open_db, hanging, running):
    others = open_db()
    queue.enqueue_many([("hangs", None)] * 5)
    worker = hanging()
    registry = CollectorRegistry()
    prometheus.instrument(worker, registry, depth=False)
    with running(worker):
        mine = lambda one: queue.name in one.queues and (one.stuck, one.in_hand) == (2, 0)  # noqa: E731
        (row,) = wait_for(lambda: [one for one in others.workers() if mine(one)])
        assert row.state == "working"
        assert worker.stuck == registry.get_sample_value("queue_db_stuck") == 2
        (found,) = [one for one in findings(others) if row.name in one.sentence]
        assert found.stuck
        assert found.sentence.startswith(f"worker {row.name!r} has 2 stuck slots: handlers that have not come back")
    assert queue.stats().available == 3


@SQLITE
def test_a_worker_ends_when_so_many_are_stuck(queue, hanging, log):
    queue.enqueue_many([("hangs", None)] * 5)
    summary = hanging(exit_when_stuck=2).run()
    assert (summary.stuck, summary.failed, summary.released) == (2, 2, 0)
    log.wait("2 handlers have not returned after their timeouts or lost leases, and exit_when_stuck is 2: stopping")
    assert queue.stats().available == 3


@SQLITE
def test_a_handler_that_comes_back_is_not_stuck(queue, monkeypatch):
    """It is late, and its result does not count; but it frees its slot."""
    monkeypatch.setattr("queue_db.worker.run.STUCK_AFTER", PATIENCE)
    worker = Worker(queue.db, queue.name, concurrency=1, exit_when_stuck=1)
    worker.handles("late", timeout=0.02, backoff=constant(1000))(lambda job: job.lost.wait(PATIENCE))
    queue.enqueue_many([("late", None)] * 3)
    summary = worker.run(until_empty=True)
    assert (summary.failed, summary.stuck) == (3, 0)


@SQLITE
def test_the_stop_of_a_run_that_ended_by_itself_does_not_end_the_next_one(queue, hanging):
    """The end of the block is a second stop."""
    queue.enqueue_many([("hangs", None)] * 2)
    worker = hanging(exit_when_stuck=2)
    done = threading.Event()
    worker.handles("n")(lambda job: done.set())
    with worker:
        worker._background.join(PATIENCE)
        assert worker.summary.stuck == 2
    queue.enqueue("n")
    with worker:
        assert done.wait(PATIENCE)
    assert worker.summary.completed == 1


@SQLITE
def test_timeouts_are_watched_while_a_stop_releases_what_was_claimed_ahead(queue, running, monkeypatch):
    """The release may wait for the database."""
    begun, releasing, go = threading.Event(), threading.Event(), threading.Event()
    release = Results.release

    def wait_and_release(results, jobs):
        releasing.set()
        assert go.wait(PATIENCE)
        release(results, jobs)

    monkeypatch.setattr(Results, "release", wait_and_release)
    worker = Worker(queue.db, queue.name, concurrency=1, prefetch=4)

    @worker.handles("n", timeout=0.5, backoff=constant(1000))
    def handler(job):
        begun.set()
        assert go.wait(PATIENCE)

    queue.enqueue_many([("n", None)] * 3)
    with running(worker):
        try:
            assert begun.wait(PATIENCE)
            worker.stop()
            assert releasing.wait(PATIENCE)
            wait_for(lambda: worker.summary.failed == 1)
        finally:
            go.set()
    assert (worker.summary.failed, worker.summary.released) == (1, 2)
    assert queue.stats().available == 2


@SQLITE
def test_as_many_stuck_handlers_as_there_are_slots_at_most(queue):
    with pytest.raises(ArgumentError, match="exit_when_stuck=5: this worker has 2 slots, so that would never happen: at most 2"):
        Worker(queue.db, queue.name, concurrency=2, exit_when_stuck=5)
    assert Worker(queue.db, queue.name, concurrency=2, prefetch=3, exit_when_stuck=5)
