"""What a worker does with jobs, and when it ends."""

import threading

import pytest

from queue_db import (
    ArgumentError,
    Cancel,
    ConfigurationError,
    Dead,
    JobNotFoundError,
    Retry,
    SchemaOutOfDateError,
    Snooze,
    State,
    StorageError,
)
from queue_db.concurrency.pauses import Idle, Pause
from queue_db.db import QueueDB
from queue_db.store import Transaction, settle
from queue_db.worker import Worker
from queue_db.worker.maintenance import maintenance
from queue_db.worker.options import Options
from queue_db.worker.registration import Registration
from tests.patience import PATIENCE
from tests.worker.serving import serving


def test_every_job_is_handled_once_and_leaves(queue):
    ids = queue.enqueue_many([("n", number) for number in range(30)])
    seen = []
    summary = serving(queue, lambda job: seen.append(job.id), concurrency=3).run(until_empty=True)
    assert sorted(seen) == ids
    assert summary.completed == 30
    assert queue.stats().by_kind == {}


def test_outcomes_are_what_the_handler_returned(queue):
    outcomes = {
        "done": None,
        "snooze": Snooze(1000),
        "retry": Retry("not yet", 1000),
        "cancel": Cancel(),
        "dead": Dead("no way"),
        "result": "ok",
        "wrong": Snooze(-1),
        "raise": ZeroDivisionError("by zero"),
        "exit": SystemExit(3),
    }
    ids = {kind: queue.enqueue(kind) for kind in outcomes}

    def handler(job):
        outcome = outcomes[job.kind]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    summary = serving(queue, handler).run(until_empty=True)
    assert (summary.completed, summary.snoozed, summary.cancelled, summary.dead) == (2, 1, 1, 1)
    assert (summary.failed, summary.lost, summary.released) == (4, 0, 0)
    for kind in ("done", "result", "cancel"):
        with pytest.raises(JobNotFoundError):
            queue.get(ids[kind])
    snoozed = queue.get(ids["snooze"])
    assert (snoozed.state, snoozed.attempts) == (State.SCHEDULED, 0)
    assert queue.get(ids["retry"]).last_error == "not yet"
    assert queue.get(ids["dead"]).state is State.DEAD
    assert queue.get(ids["raise"]).last_error == "ZeroDivisionError: by zero"
    assert queue.get(ids["exit"]).last_error == "SystemExit: 3"
    wrong = queue.get(ids["wrong"])
    assert wrong.last_error == "ArgumentError: Snooze.seconds=-1: must be 0 or more seconds"
    assert wrong.attempts == 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_mapping_has_a_handler_for_each_kind(queue):
    queue.enqueue("known", 5)
    stranger = queue.enqueue("stranger")
    seen = []
    summary = serving(queue, {"known": lambda job: seen.append(job.payload)}, unknown="dead").run(until_empty=True)
    assert seen == [5]
    assert (summary.completed, summary.dead) == (1, 1)
    parked = queue.get(stranger)
    assert (parked.state, parked.attempts) == (State.DEAD, 1)
    assert parked.last_error == "parked: no handler for job kind 'stranger'; known kinds: known"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_impossible_values_are_refused_at_once(queue):
    for options in (
        {"concurrency": 0},
        {"concurrency": 1.5},
        {"prefetch": -1},
        {"lease": 0},
        {"poll": -1},
        {"grace": -1},
        {"mode": "exactly_once"},
        {"weights": {"another": 1}},
        {"weights": {queue.name: 0}},
        {"prefetch": 1, "mode": "at_most_once"},
    ):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            serving(queue, print, **options)
    for queues in ((), {}, {queue.name: 0}, "", " mail", 5):
        with pytest.raises(ArgumentError, match="queue"):
            Worker(queue.db, queues)
    worker = serving(queue, print)
    for option in ({"max_attempts": 0}, {"timeout": 0}, {"backoff": 5}, {"schema": 5}):
        with pytest.raises(ArgumentError, match=next(iter(option))):
            worker.handles("kind", **option)(print)
    with pytest.raises(ArgumentError, match="has a handler already"):
        worker.handles(None)(print)
    for handler in (5, {"kind": 5}):
        with pytest.raises(ArgumentError, match="handler"):
            serving(queue, handler)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_without_tables_it_does_not_begin(fresh_url, name):
    with QueueDB(fresh_url) as db, pytest.raises(SchemaOutOfDateError, match="queue-db migrate"):
        serving(db.queue(name), print).run(until_empty=True)


def test_until_empty_waits_for_what_running_handlers_add(queue, monkeypatch):
    """The worker finds nothing while one thread works, and must be there for the jobs that it adds."""
    queue.enqueue("parent")
    children = threading.Barrier(3, timeout=PATIENCE)
    looks = threading.Semaphore(0)
    next_due = queue.db.next_due

    def counted(queues):
        found = next_due(queues)
        looks.release()
        return found

    monkeypatch.setattr(queue.db, "next_due", counted)

    def handler(job):
        if job.kind == "parent":
            for _ in range(9):  # it has looked in vain again and again
                assert looks.acquire(timeout=PATIENCE)
            queue.enqueue_many([("child", None)] * 3)
        else:
            children.wait()  # passes only when three threads are here at once

    summary = serving(queue, handler, concurrency=4, poll=0.05).run(until_empty=True)
    assert summary.completed == 4


def test_until_empty_leaves_what_is_not_due(queue):
    queue.enqueue("later", delay=1000)
    assert serving(queue, print).run(until_empty=True).completed == 0
    assert queue.stats().scheduled == 1


def test_jobs_claimed_ahead_are_begun_in_their_order(queue):
    queue.enqueue_many([("n", number) for number in range(50)])
    seen = []
    summary = serving(queue, lambda job: seen.append(job.payload), concurrency=1, prefetch=8).run(until_empty=True)
    assert seen == list(range(50))
    assert summary.completed == 50
    assert queue.db.counters.claims < 20


def test_stop_releases_at_once_what_was_claimed_ahead(queue, running, log):
    ids = queue.enqueue_many([("n", number) for number in range(5)])
    started, go = threading.Event(), threading.Event()

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, concurrency=1, prefetch=4)
    with running(worker) as thread:
        assert started.wait(PATIENCE)
        worker.stop()
        log.wait("released 4 unfinished jobs")  # while the handler of the first one runs
        assert len(queue.peek()) == 4
        go.set()
        thread.join(PATIENCE)
    assert (worker.summary.completed, worker.summary.released) == (1, 4)
    assert [(job.id, job.attempts) for job in queue.peek()] == [(job_id, 0) for job_id in ids[1:]]


def test_stop_lets_running_handlers_finish(queue, running):
    queue.enqueue("n")
    started, go = threading.Event(), threading.Event()

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, concurrency=2)
    with running(worker) as thread:
        assert started.wait(PATIENCE)
        worker.stop()
        assert thread.is_alive()
        go.set()
        thread.join(PATIENCE)
    assert worker.summary.completed == 1
    assert queue.stats().by_kind == {}


def test_after_the_grace_time_jobs_are_released_and_the_late_result_does_not_count(queue, running, log):
    job_id = queue.enqueue("n")
    started, go = threading.Event(), threading.Event()

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler)
    with running(worker) as thread:
        assert started.wait(PATIENCE)
        worker.stop(grace=0)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        job = queue.get(job_id)
        assert (job.state, job.attempts) == (State.AVAILABLE, 0)
        go.set()
        log.wait("the result does not count")
    assert (worker.summary.completed, worker.summary.released) == (0, 1)
    assert queue.get(job_id).version == job.version


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_handler_that_can_end_its_calls_is_told_before_their_jobs_are_released(queue, running):
    job_id = queue.enqueue("n")
    states = []

    class Handler:
        def __init__(self):
            self.started, self.ended = threading.Event(), threading.Event()

        def __call__(self, job):
            self.started.set()
            assert self.ended.wait(PATIENCE)
            return Dead("ended")

        def stop(self):
            states.append(queue.get(job_id).state)
            self.ended.set()

    handler = Handler()
    worker = serving(queue, handler)
    with running(worker) as thread:
        assert handler.started.wait(PATIENCE)
        worker.stop(grace=0)
        thread.join(PATIENCE)
    assert states == [State.RUNNING]
    assert queue.get(job_id).state is State.AVAILABLE


@pytest.mark.parametrize("kind", ["sqlite"])
def test_stop_before_run_ends_it_at_once(queue):
    queue.enqueue("n")
    worker = serving(queue, print)
    worker.stop()
    assert worker.run().completed in (0, 1)


class Tombstone:
    """A removal from outside that marks."""

    name, needs, retries, marks = "tombstone", frozenset(), 3, True

    def remove(self, tx: Transaction, pairs):
        return settle.mark(tx, pairs)


@pytest.mark.parametrize("removal", ["delete_mark", Tombstone()], ids=["ours", "third party"])
def test_marked_jobs_are_swept_at_once_and_then_regularly(open_db, name, running, monkeypatch, removal):
    monkeypatch.setattr("queue_db.worker.maintenance.SWEEP_EVERY", 0.02)
    db = open_db(removal=removal)
    queue = db.queue(name)
    ids = queue.enqueue_many([("n", number) for number in range(3)])
    serving(queue, lambda job: None).run(until_empty=True)
    swept = threading.Semaphore(0)
    original = db.sweep

    def sweep(limit=None):
        gone = original(limit)
        swept.release()
        return gone

    monkeypatch.setattr(db, "sweep", sweep)
    with running(serving(queue, lambda job: None)):
        for _ in range(3):
            assert swept.acquire(timeout=PATIENCE)
    with db.database.engine.connect() as connection:
        jobs = db.store.tables.jobs
        assert connection.execute(jobs.select().where(jobs.c.id.in_(ids))).all() == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_only_schedules_and_tasks_with_more_to_do_choose_the_time_of_their_next_run(open_db, name):
    """A number that a task returns is the seconds until its next run: a count of rows would be taken for them."""
    db = open_db(removal="delete_mark")
    options = Options(queues=name, dead_for=60.0)
    own = Registration(db, options.limits, lambda: ("working", 0))
    waits = {task.name: task.run() for task in maintenance(db, options, own)}
    assert "sweeping completed jobs" in waits
    assert {task for task, wait in waits.items() if wait is not None} == {"enqueueing the jobs of schedules"}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_claim_that_fails_is_tried_again_after_growing_pauses(queue, log, monkeypatch):
    failures = iter(range(4))
    claim = queue.claim

    def broken(*arguments, **options):
        if next(failures, None) is not None:
            raise StorageError("the disk is on fire")
        return claim(*arguments, **options)

    monkeypatch.setattr(queue, "claim", broken)
    monkeypatch.setattr("queue_db.worker.run.RETRY", (0.001, 0.01))
    queue.enqueue("n")
    assert serving(queue, lambda job: None).run(until_empty=True).completed == 1
    assert log.wait("trying again in 0.0 s: the disk is on fire")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_settle_that_fails_is_tried_again(queue, log, monkeypatch):
    failures = iter(range(3))
    complete = queue.complete_many

    def broken(jobs, **options):
        if next(failures, None) is not None:
            raise StorageError("the disk is on fire")
        return complete(jobs, **options)

    monkeypatch.setattr(queue, "complete_many", broken)
    monkeypatch.setattr("queue_db.worker.run.RETRY", (0.001, 0.01))
    queue.enqueue("n")
    calls = []
    summary = serving(queue, calls.append).run(until_empty=True)
    assert (len(calls), summary.completed, summary.lost) == (1, 1, 0)
    log.wait("trying again: the disk is on fire")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_settle_that_always_fails_leaves_the_job_to_its_lease(queue, log, monkeypatch):
    def broken(jobs, **options):
        raise StorageError("the disk is on fire")

    monkeypatch.setattr(queue, "complete_many", broken)
    monkeypatch.setattr("queue_db.worker.completer.SETTLE_FOR", 0.0)
    job_id = queue.enqueue("n")
    summary = serving(queue, lambda job: None).run(until_empty=True)
    assert (summary.completed, summary.lost) == (0, 1)
    assert queue.get(job_id).state is State.RUNNING


def test_pauses_grow_to_the_longest_and_are_spread():
    steady = Pause(0.01, 1.0, rng=lambda: 1.0)
    assert [round(steady.next(), 2) for _ in range(9)] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    steady.reset()
    assert steady.next() == 0.01
    spread = Pause(0.01, 1.0, rng=lambda: 0.0)
    assert spread.next() == 0.005
    assert Pause(5.0, 1.0, rng=lambda: 1.0).next() == 1.0


def test_a_worker_without_jobs_looks_ever_more_rarely():
    now = [100.0]
    idle = Idle(0.5, clock=lambda: now[0], rng=lambda: 1.0)
    looks = 0
    while now[0] < 110.0:
        now[0] += idle.next()
        looks += 1
    assert looks < 200
    assert idle.next() == 0.5
    idle.worked()
    assert idle.next() == 0.001


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_worker_that_runs_is_not_started_again(queue):
    """An app and its sub-app enter the same one, or two clients of a test: two runs would take each other's commands."""
    worker, done = serving(queue, lambda job: done.set()), threading.Event()
    assert not worker.running
    with worker:
        assert worker.running
        with pytest.raises(ConfigurationError, match=r"runs already.*changed\(\)"):
            worker.__enter__()
        with pytest.raises(ConfigurationError, match="runs already"):
            worker.run(until_empty=True)
        queue.enqueue("n")
        assert done.wait(PATIENCE)
        assert worker.running
    assert not worker.running
    with worker:
        assert worker.running
    assert worker.changed(concurrency=1).run(until_empty=True).completed == 0
