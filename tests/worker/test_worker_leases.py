"""The heartbeat: leases that last as long as their handlers, and lost ones."""

import threading
import time

import pytest

from queue_db import State
from queue_db.queues import QueueDB
from queue_db.worker.held import Heartbeat, Held
from queue_db.worker.keeper import keep
from tests.worker.serving import serving

PATIENCE = 20.0


def test_a_handler_may_run_longer_than_its_lease(queue, open_db, running, monkeypatch):
    job_id = queue.enqueue("slow")
    beats = threading.Semaphore(0)
    extend = queue.extend_many

    def counted(jobs, seconds):
        verdicts = extend(jobs, seconds)
        assert all(verdicts)
        beats.release()
        return verdicts

    monkeypatch.setattr(queue, "extend_many", counted)
    rival = open_db().queue(queue.name)
    began = time.monotonic()
    versions = []

    def handler(job):
        for _ in range(4):  # a third of the lease each: one lease and a third
            assert beats.acquire(timeout=PATIENCE)
            versions.append(job.version)
            assert rival.claim() == []
        done.set()

    done = threading.Event()
    with running(serving(queue, handler, lease=0.6), until_empty=True) as thread:
        assert done.wait(PATIENCE)
        assert time.monotonic() - began > 0.6
        thread.join(PATIENCE)
    assert versions == [2, 3, 4, 5]
    assert rival.stats().by_kind == {}
    assert job_id is not None


def test_a_lost_lease_is_told_and_the_result_does_not_count(queue, open_db, running, log):
    job_id = queue.enqueue("stolen")
    started, go = threading.Event(), threading.Event()

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, lease=0.5)
    with running(worker, until_empty=True) as thread:
        assert started.wait(PATIENCE)
        # For a claimer an hour ahead the lease is over.
        later = open_db(clock=lambda: time.time_ns() // 1000 + 3600 * 1_000_000).queue(queue.name)
        (theirs,) = later.claim(lease=3600)
        assert theirs.id == job_id
        log.wait("lost the lease of")
        go.set()
        thread.join(PATIENCE)
    assert (worker.summary.completed, worker.summary.lost) == (0, 1)
    assert queue.get(job_id).version == theirs.version
    assert theirs.complete()


def test_a_job_that_is_settled_while_the_heart_beats_is_not_called_lost(url, name, running, log, monkeypatch):
    """Beats as fast as they come, jobs as short as they are."""
    with QueueDB(url) as db:
        queue = db.queue(name)
        queue.enqueue_many([("short", number) for number in range(100)])
        worker = serving(queue, lambda job: None, concurrency=3, lease=0.3)

        beat = Heartbeat.beat
        monkeypatch.setattr(Heartbeat, "beat", lambda heartbeat: min(beat(heartbeat), 0.001))
        with running(worker, until_empty=True) as thread:
            thread.join(PATIENCE)
        assert (worker.summary.completed, worker.summary.lost) == (100, 0)
        assert not log.has("lost the lease")
        assert queue.stats().by_kind == {}


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
def test_a_chore_that_fails_does_not_stop_the_heartbeat(kind):
    ended, beats = threading.Event(), []

    def heartbeat():
        beats.append(1)
        if len(beats) == 3:
            ended.set()
        return 0.0

    def broken():
        raise RuntimeError("a mistake")

    thread = threading.Thread(target=keep, args=([(0.0, broken), (0.001, heartbeat)], ended))
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(beats) == 3


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_handler_that_comes_back_while_its_job_is_given_up_frees_its_slot(queue, moment):
    """Whoever wins: the slot must not be in use for ever."""
    queue.enqueue("n")
    jobs = queue.claim()
    held = Held([queue.name])
    held.add(queue.name, jobs)
    drop = held.drop

    def handler_ends():
        if not drop(jobs[0]):
            held.gone(jobs[0])

    def dropped(job):
        if moment == "before":
            handler_ends()
        won = drop(job)
        if moment == "after":
            handler_ends()
        return won

    held.drop = dropped
    assert held.give_up(jobs[0]) == (moment == "after")
    assert held.in_use(None) == held.in_use(queue.name) == 0
