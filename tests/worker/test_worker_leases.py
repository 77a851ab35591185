"""The heartbeat: leases that last as long as their handlers, and lost ones."""

import threading
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import select, update

from queue_db import State, TransientStorageError
from queue_db.db import QueueDB
from queue_db.testing import SettableClock
from queue_db.verbs.running import Verbs
from queue_db.worker.leases import Heartbeat, InFlight
from queue_db.worker.maintenance import PeriodicTasks
from tests.patience import PATIENCE, wait_for
from tests.worker.serving import serving


def test_a_handler_may_run_longer_than_its_lease(name, open_db, running, monkeypatch, quick_beats):
    clock = SettableClock()
    queue, rival = (open_db(clock=clock).queue(name) for _ in range(2))
    queue.enqueue("slow")
    beats = threading.Semaphore(0)
    extend = queue.extend_unlocked

    def counted(jobs, seconds):
        verdicts = extend(jobs, seconds)
        assert all(verdicts)
        beats.release()
        return verdicts

    monkeypatch.setattr(queue, "extend_unlocked", counted)
    versions = []

    def handler(job):
        first = job.lease_ends
        while clock() <= first:
            clock.advance(200)
            # Of two beats the second began after that.
            for _ in range(2):
                assert beats.acquire(timeout=PATIENCE)
            versions.append(job.version)
            assert rival.claim() == []
        done.set()

    done = threading.Event()
    with running(serving(queue, handler, lease=600), until_empty=True) as thread:
        assert done.wait(PATIENCE)
        thread.join(PATIENCE)
    assert versions[0] > 1
    assert versions == sorted(versions)
    assert rival.stats().by_kind == {}


def test_a_lost_lease_is_told_and_the_result_does_not_count(queue, open_db, running, log, quick_beats):
    job_id = queue.enqueue("stolen")
    started, go = threading.Event(), threading.Event()

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, lease=600)
    with running(worker, until_empty=True) as thread:
        assert started.wait(PATIENCE)
        # For a claimer an hour ahead the lease is over.
        later = open_db(clock=lambda: time.time_ns() // 1000 + 3600 * 1_000_000).queue(queue.name)
        (theirs,) = wait_for(lambda: later.claim(lease=3600))  # it loses to a heartbeat at the same moment
        assert theirs.id == job_id
        log.wait("the lease is lost")
        go.set()
        thread.join(PATIENCE)
    assert (worker.summary.completed, worker.summary.lost) == (0, 1)
    assert queue.get(job_id).version == theirs.version
    assert theirs.complete()


def test_a_job_that_is_settled_while_the_heart_beats_is_not_called_lost(url, name, running, log, monkeypatch, quick_beats):
    """Beats as fast as they come, jobs as short as they are."""
    with QueueDB(url) as db:
        queue = db.queue(name)
        queue.enqueue_many([("short", number) for number in range(100)])
        worker = serving(queue, lambda job: None, concurrency=3, lease=600)

        beat = Heartbeat.beat
        monkeypatch.setattr(Heartbeat, "beat", lambda heartbeat: min(beat(heartbeat), 0.001))
        with running(worker, until_empty=True) as thread:
            thread.join(PATIENCE)
        assert (worker.summary.completed, worker.summary.lost) == (100, 0)
        assert not log.has("the lease is lost")
        assert queue.stats().by_kind == {}


def test_a_heartbeat_that_loses_to_a_handler_that_completes_its_job_calls_no_lease_lost(
    queue, running, log, monkeypatch, quick_beats
):
    """The handler settles its job after the heart has looked which are in flight and before it extends them, and runs on."""
    go, beats, handled = threading.Event(), threading.Semaphore(0), []
    extend = queue.extend_unlocked

    def late(jobs, seconds):
        if jobs:
            go.set()
            wait_for(lambda: jobs[0].settled)
        verdicts = extend(jobs, seconds)
        assert not any(verdicts)
        beats.release()
        return verdicts

    def handler(job):
        handled.append(job)
        assert go.wait(PATIENCE)
        assert job.complete()
        # When the second beat has begun, what the first has found out is done.
        for _ in range(2):
            assert beats.acquire(timeout=PATIENCE)

    monkeypatch.setattr(queue, "extend_unlocked", late)
    worker = serving(queue, handler, lease=600)
    with running(worker):
        queue.enqueue("n")
        wait_for(lambda: worker.summary.completed)
    assert (worker.summary.completed, worker.summary.lost) == (1, 0)
    assert not handled[0].lost.is_set()
    assert not log.has("the lease is lost")


def test_a_job_comes_back_when_its_worker_is_gone(queue, open_db):
    """What is left of a worker without heartbeat: a lease."""
    job_id = queue.enqueue("n")
    queue.claim(lease=5.0)
    later = open_db(clock=lambda: time.time_ns() // 1000 + 60 * 1_000_000).queue(queue.name)
    assert later.get(job_id).state is State.AVAILABLE
    (again,) = later.claim()
    assert (again.id, again.attempts) == (job_id, 2)
    assert again.complete()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_task_that_fails_does_not_stop_the_heartbeat(kind):
    ended, beats = threading.Event(), []

    def heartbeat():
        beats.append(1)
        if len(beats) == 3:
            ended.set()
        return 0.0

    def broken():
        raise RuntimeError("a mistake")

    def start(run, turn):
        thread = threading.Thread(target=run, args=(turn,))
        thread.start()
        return thread

    tasks = PeriodicTasks([(0.0, broken), (0.001, heartbeat)], ended, start)
    tasks.start()
    (thread,) = tasks.threads
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(beats) == 3


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_handler_that_returns_while_its_job_is_abandoned_frees_its_slot(queue, moment):
    """Whichever thread wins: the slot must become free."""
    queue.enqueue("n")
    jobs = queue.claim()
    in_flight = InFlight([queue.name])
    in_flight.add(queue.name, jobs)
    remove = in_flight.remove

    def handler_ends():
        if not remove(jobs[0]):
            in_flight.returned(jobs[0])

    def removed(job):
        if moment == "before":
            handler_ends()
        won = remove(job)
        if moment == "after":
            handler_ends()
        return won

    in_flight.remove = removed
    assert in_flight.abandon(jobs[0]) == (moment == "after")
    assert in_flight.slots_in_use() == in_flight.in_use(queue.name) == 0


@contextmanager
def locked(queue, table, column, value):
    """Another transaction holds this row until the end of the block."""
    with queue.transaction() as connection:
        assert connection.execute(select(table).where(column == value).with_for_update()).all()
        yield


def test_a_locked_schedule_stops_no_heartbeat_and_no_other_schedule(fresh_url, name, differs, running, monkeypatch, quick_beats):
    differs("one writer")
    with QueueDB(fresh_url) as rival, QueueDB(fresh_url) as db:
        db.migrate()
        queue = db.queue(name)
        beats, started, ticked, go = threading.Semaphore(0), threading.Event(), threading.Event(), threading.Event()
        extend = queue.extend_unlocked

        def counted(jobs, seconds):
            verdicts = extend(jobs, seconds)
            for verdict in verdicts:
                assert verdict
                beats.release()
            return verdicts

        monkeypatch.setattr(queue, "extend_unlocked", counted)

        def slow(job):
            started.set()
            assert go.wait(PATIENCE)

        queue.enqueue("slow")
        for schedule in ("a-locked", "b-free"):
            db.schedules.set(schedule, name, schedule, every=3600)
        schedules = db.store.tables.slices["schedules"]
        with queue.transaction() as connection:
            connection.execute(update(schedules).values(next_at=1))
        worker = serving(queue, {"slow": slow, "b-free": lambda job: ticked.set()}, lease=600, concurrency=2)
        with locked(rival.queue(name), schedules, schedules.c.name, "a-locked"), running(worker):
            assert started.wait(PATIENCE)
            assert ticked.wait(PATIENCE), "a schedule waits for the lock of another one"
            for _ in range(3):
                assert beats.acquire(timeout=PATIENCE), "no heartbeat while a schedule is locked"
            go.set()
        assert (worker.summary.completed, worker.summary.lost) == (2, 0)

        def came():
            db.schedules.tick()  # unless one of the worker's that was under way has enqueued it, or is about to
            return [job.kind for job in queue.peek()] == ["a-locked"]

        wait_for(came)  # it was not left out for good


@pytest.mark.parametrize("kind", ["sqlite"])
def test_no_task_stops_the_heartbeat(queue, running, monkeypatch):
    """Whatever the other tasks wait for."""
    beats, waiting, go = threading.Semaphore(0), threading.Event(), threading.Event()
    beat = Heartbeat.beat

    def counted(heartbeat):
        wait = beat(heartbeat)
        beats.release()
        return min(wait, 0.01)

    def stuck():
        waiting.set()
        assert go.wait(PATIENCE)
        return 0, None

    monkeypatch.setattr(Heartbeat, "beat", counted)
    monkeypatch.setattr(queue.db.schedules, "tick", stuck)
    with running(serving(queue, print, lease=0.03)):
        assert waiting.wait(PATIENCE)
        while beats.acquire(blocking=False):
            pass
        for _ in range(3):
            assert beats.acquire(timeout=PATIENCE)
        go.set()


def test_the_heartbeat_steps_over_a_locked_job(db, open_db, name, differs):
    """Neither its fellows nor other queues lose their leases by it, and nor does it."""
    differs("one writer")
    queues = [db.queue(f"{name}-{number}") for number in range(2)]
    in_flight, lost = InFlight([queue.name for queue in queues]), []
    for queue in queues:
        queue.enqueue_many([("n", None)] * 2)
        in_flight.add(queue.name, queue.claim(2, lease=60))
    (stuck, fellow), others = (in_flight.jobs()[:2], in_flight.jobs()[2:])
    versions = {job: job.version for job in in_flight.jobs()}
    heartbeat = Heartbeat(in_flight, 60, lost.append)
    jobs = db.store.tables.jobs
    with locked(open_db().queue(name), jobs, jobs.c.id, stuck.id):
        assert heartbeat.beat() <= 1.0, "it is not tried again soon"
        assert db.counters.lost == 0
        assert [job.version - versions[job] for job in (stuck, fellow, *others)] == [0, 1, 1, 1]
    assert heartbeat.beat() == 20
    assert [job.version - versions[job] for job in (stuck, fellow, *others)] == [1, 2, 2, 2]
    fellow_now = db.queue(fellow.queue).get(fellow.id)
    assert (fellow_now.state, lost) == (State.RUNNING, [])
    # A lost lease is reported also where locked rows are skipped.
    db.rescue(db.worker)
    heartbeat.beat()
    assert set(lost) >= {stuck, fellow, *others}


def test_a_handler_that_settles_its_job_does_not_hold_up_the_heartbeat(db, name):
    """Its verb may wait for a lock in the database, and holds the job meanwhile."""
    queue = db.queue(name)
    in_flight = InFlight([name])
    queue.enqueue_many([("n", None)] * 2)
    in_flight.add(name, queue.claim(2, lease=60))
    settled, fellow = in_flight.jobs()
    versions = settled.version, fellow.version
    heartbeat = Heartbeat(in_flight, 60, lambda job: None)
    at_it, go = threading.Event(), threading.Event()

    def verb():
        with Verbs([settled]):
            at_it.set()
            assert go.wait(PATIENCE)

    thread = threading.Thread(target=verb)
    thread.start()
    assert at_it.wait(PATIENCE)
    assert heartbeat.beat() <= 1.0
    go.set()
    thread.join(PATIENCE)
    assert (settled.version - versions[0], fellow.version - versions[1]) == (0, 1)
    heartbeat.beat()
    assert settled.version - versions[0] == 1


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("error", [TransientStorageError("away"), RuntimeError("a mistake")])
def test_one_queue_that_fails_does_not_end_the_beat_of_the_others(db, name, monkeypatch, error):
    first, second = db.queue(f"{name}-1"), db.queue(f"{name}-2")
    in_flight = InFlight([first.name, second.name])
    for queue in (first, second):
        queue.enqueue("n")
        in_flight.add(queue.name, queue.claim(lease=60))

    def broken(jobs, seconds):
        raise error

    monkeypatch.setattr(first, "extend_unlocked", broken)
    versions = [job.version for job in in_flight.jobs()]
    assert Heartbeat(in_flight, 60, lambda job: None).beat() <= 1.0
    assert [job.version for job in in_flight.jobs()] == [versions[0], versions[1] + 1]
