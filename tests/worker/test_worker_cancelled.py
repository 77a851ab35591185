"""A job that is cancelled, or taken from its worker in another way, does not begin; its handler, if it runs, learns of it."""

import logging
import threading

import pytest

from queue_db import Verdict
from queue_db.testing import counted_statements
from queue_db.verbs.running import Verbs
from queue_db.worker import Worker, leases
from queue_db.worker.events import EventType
from queue_db.worker.leases import InFlight, LeaseCheck
from tests.patience import PATIENCE, wait_for
from tests.worker.serving import serving


def test_claimed_ahead_and_cancelled_never_begins(queue, open_db, running, log):
    """No heartbeat finds it: the lease is an hour long."""
    others = open_db().queue(queue.name)
    go, seen = threading.Event(), []

    def handler(job):
        seen.append(job.payload)
        assert go.wait(PATIENCE)

    ids = queue.enqueue_many([("n", number) for number in range(5)])
    worker = serving(queue, handler, concurrency=1, prefetch=4, lease=3600.0)
    with running(worker):
        wait_for(lambda: others.stats().running == 5)
        assert [others.cancel(job_id) for job_id in ids[1:4]] == [Verdict.APPLIED] * 3
        wait_for(lambda: worker.summary.lost == 3)
        go.set()
        wait_for(lambda: worker.summary.completed == 2)
    assert seen == [0, 4]
    assert "handler" not in log.wait("the lease is lost")  # none was called


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_that_runs_hears_that_its_job_was_cancelled(queue, open_db, running, asynchronous):
    import asyncio

    others = open_db().queue(queue.name)
    began, heard = threading.Event(), threading.Event()

    def function(job):
        began.set()
        if job.lost.wait(PATIENCE):
            heard.set()

    async def coroutine(job):
        began.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            heard.set()
            raise

    job_id = queue.enqueue("n")
    with running(serving(queue, coroutine if asynchronous else function, lease=3600.0)):
        assert began.wait(PATIENCE)
        assert others.cancel(job_id)
        assert heard.wait(PATIENCE)


@pytest.fixture
def never_checks(monkeypatch):
    """Without a notification a worker checks after an hour."""
    monkeypatch.setattr("queue_db.worker.run.CHECK_EVERY", 3600.0)
    monkeypatch.setattr(leases, "VALID_FOR", 7200.0)


@pytest.mark.usefixtures("never_checks")
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_cancel_is_told_at_once(queue, open_db, running, kind, elsewhere):
    """By PostgreSQL to other processes, and within one process on every database; also to a worker with free slots."""
    canceller = open_db().queue(queue.name) if elsewhere and kind == "postgresql" else queue
    began, heard = threading.Semaphore(0), threading.Semaphore(0)

    def handler(job):
        began.release()
        if job.lost.wait(PATIENCE):
            heard.release()

    worker = serving(queue, handler, concurrency=2, lease=3600.0)
    with running(worker):
        for _ in range(2):
            job_id = queue.enqueue("n")
            assert began.acquire(timeout=PATIENCE)
            assert canceller.cancel(job_id)
            assert heard.acquire(timeout=PATIENCE)


@pytest.mark.usefixtures("never_checks")
@pytest.mark.parametrize("kind", ["postgresql"])
def test_notifications_of_others_do_no_harm(queue, db, open_db, running, caplog):
    """Nothing is logged and claims do not pause."""
    others, heard, began = open_db(), threading.Event(), threading.Event()

    def handler(job):
        began.set()
        if job.lost.wait(PATIENCE):
            heard.set()

    job_id = queue.enqueue("n")
    with running(serving(queue, handler, lease=3600.0)):
        assert began.wait(PATIENCE)
        for text in ("", "\x18", "\x18x", "\x18²", f"\x18{2**70}", "\x18" + "9" * 5000, "no queue of ours"):
            others.core.write("test", lambda tx, text=text: tx.dialect.notify(tx, db.notifications.channel, text))
        assert others.cancel(job_id)
        assert heard.wait(PATIENCE)
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("waits", [False, True], ids=["before its first step", "while it waits for a check"])
@pytest.mark.parametrize("kind", ["sqlite"])
def test_coroutines_that_are_cancelled_before_their_handlers_leave_their_slots(queue, open_db, running, monkeypatch, waits):
    """Else the slots would be gone for good: the jobs after them need all three at once."""
    import asyncio

    others = open_db().queue(queue.name)
    blocked, go, meeting = threading.Event(), threading.Event(), asyncio.Barrier(3)
    begun = []

    async def handler(job):
        begun.append(job.payload)
        if job.payload == "blocks the loop":
            blocked.set()
            assert go.wait(PATIENCE)
        if job.payload == "meets":
            await meeting.wait()

    worker = serving(queue, handler, concurrency=3, lease=3600.0)
    with running(worker):
        queue.enqueue("n", "blocks the loop")
        assert blocked.wait(PATIENCE)
        if waits:
            monkeypatch.setattr(leases, "VALID_FOR", 0.0)
            go.set()
        ids = queue.enqueue_many([("n", "never begins")] * 2)
        wait_for(lambda: others.stats().running == 2 + (not waits))
        assert all(others.cancel(job_id) for job_id in ids)
        wait_for(lambda: worker.summary.lost == 2)
        monkeypatch.setattr(leases, "VALID_FOR", 3600.0)
        go.set()
        queue.enqueue_many([("n", "meets")] * 3)
        wait_for(lambda: worker.summary.completed == 4)
    assert "never begins" not in begun


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_slow_hook_of_a_lost_job_holds_up_neither_leases_nor_claims(queue, open_db, running, quick_beats):
    others = open_db().queue(queue.name)
    go, called, jobs = threading.Event(), threading.Event(), {}

    def handler(job):
        jobs[job.kind] = job
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, concurrency=3, lease=600)

    @worker.on
    def hook(event):
        if event.type is EventType.LOST:
            called.set()
            assert go.wait(PATIENCE)

    with running(worker):
        job_id = queue.enqueue("lost")
        queue.enqueue("kept")
        wait_for(lambda: len(jobs) == 2)
        wait_for(lambda: others.cancel(job_id))  # it loses to a heartbeat at the same moment
        assert called.wait(PATIENCE)
        assert jobs["lost"].lost.is_set()
        version = jobs["kept"].version
        queue.enqueue("next")
        wait_for(lambda: "next" in jobs and jobs["kept"].version > version + 2)
        go.set()
    assert (worker.summary.completed, worker.summary.lost) == (2, 1)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_only_a_cancel_of_a_job_that_runs_notifies(queue, db):
    """A notification lets one commit after the other."""
    waiting, running = queue.enqueue("n", delay=100), queue.enqueue("n")
    assert queue.claim()
    sent = []
    for job_id in (waiting, running):
        with counted_statements(db.database.engine) as statements:
            assert queue.cancel(job_id)
        sent.append(sum("pg_notify" in text for text in statements))
    assert sent == [0, 1]


@pytest.fixture
def checking(queue):
    """A lease check without a worker: the jobs in flight, the check, and the lost jobs."""
    in_flight, lost = InFlight([queue.name]), []

    def lose(job):
        assert in_flight.abandon(job)
        lost.append(job)

    return in_flight, LeaseCheck(queue.db.core, in_flight, lose, enabled=True), lost


def test_a_check_finds_what_others_took_and_nothing_else(queue, open_db, checking):
    in_flight, check, lost = checking
    others = open_db().queue(queue.name)
    keys = ("extended", "cancelled", "replaced", "again", "settled", "busy")
    queue.enqueue_many([(key, None, {"unique_key": key}) for key in keys])
    jobs = {job.kind: job for job in queue.claim(10)}
    in_flight.add(queue.name, list(jobs.values()))
    check.check()
    assert lost == []
    assert jobs["extended"].extend(100)
    for key in ("cancelled", "busy"):
        assert others.cancel(jobs[key].id)
    others.enqueue("new", unique_key="replaced", on_duplicate="replace")
    assert jobs["again"].release()
    jobs["again"].settled = False  # as if another process had released it
    assert "again" in {job.kind for job in others.claim(10)}
    assert jobs["settled"].complete()
    with Busy(jobs["busy"]):
        check.check()
    assert {job.kind for job in lost} == {"cancelled", "replaced", "again"}
    assert not any(job in in_flight for job in lost)
    check.check()
    assert lost[-1] is jobs["busy"], "when the verb has ended without ending the lease, the next check finds it"
    assert {job.kind for job in in_flight.jobs()} == {"extended", "settled"}


class Busy:
    """Another thread runs a verb on the job."""

    def __init__(self, job):
        self.job, self.locked, self.go = job, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.hold)

    def hold(self):
        with Verbs([self.job]):
            self.locked.set()
            assert self.go.wait(PATIENCE)

    def __enter__(self):
        self.thread.start()
        assert self.locked.wait(PATIENCE)

    def __exit__(self, *_):
        self.go.set()
        self.thread.join(PATIENCE)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_job_that_was_not_checked_for_long_waits_for_a_check(queue, checking, monkeypatch):
    """The database did not answer, or the thread that checks was late."""
    in_flight, check, lost = checking
    monkeypatch.setattr(leases, "VALID_FOR", 3600.0)
    queue.enqueue_many([("n", None)] * 2)
    jobs = queue.claim(2)
    in_flight.add(queue.name, jobs)
    assert all(map(check.valid, jobs))
    monkeypatch.setattr(leases, "VALID_FOR", 0.0)
    assert not any(map(check.valid, jobs))
    answers = {}
    threads = [threading.Thread(target=lambda job=job: answers.update({job.id: check.wait_until_valid(job)})) for job in jobs]
    for thread in threads:
        thread.start()
    assert answers == {}
    assert queue.cancel(jobs[0].id)
    check.check()
    threads[0].join(PATIENCE)
    monkeypatch.setattr(leases, "VALID_FOR", 3600.0)
    check.check()
    threads[1].join(PATIENCE)
    assert answers == {jobs[0].id: False, jobs[1].id: True}
    assert lost == [jobs[0]]


def test_a_check_is_one_statement_for_all_queues_and_none_without_jobs(db, name):
    queues = [db.queue(f"{name}-{number}") for number in range(3)]
    in_flight = InFlight([queue.name for queue in queues])
    check = LeaseCheck(db.core, in_flight, print, enabled=True)
    with counted_statements(db.database.engine) as statements:
        check.check()
    assert statements == []
    for queue in queues:
        queue.enqueue_many([("n", None)] * 5)
        in_flight.add(queue.name, queue.claim(5))
    with counted_statements(db.database.engine) as statements:
        check.check()
    assert len(statements) == 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_jobs_that_are_deleted_when_they_are_claimed_are_not_checked(queue):
    queue.enqueue_many([("n", None)] * 20)
    worker = Worker(queue.db, queue.name, mode="at_most_once")
    worker.handles(None)(lambda job: None)
    assert worker.run(until_empty=True).completed == 20
