"""The slots of a worker for feeds: how they wait, what starts with them, and what hangs in them."""

import math
import threading

import pytest

from queue_db import ConfigurationError, LeasedJob
from queue_db.feeds import SharedCursor
from queue_db.feeds.notifications import notifications_of
from queue_db.feeds.waiting import Waiting
from queue_db.worker import Summary, Worker
from tests.patience import PATIENCE, wait_for

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])
# They lock rows, and step over locked ones.
SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])


def waiting_of(worker, cursor):
    """What wakes the idle slots of a cursor; None: none has waited yet."""
    return worker._run and worker._run.others[0]._lookouts[cursor]._waiting._wakeup


def in_process(db):
    """Who is notified of new messages in this process."""
    return notifications_of(db.store)._listeners


@pytest.fixture
def feed(db, name):
    return db.feed(name)


@pytest.fixture
def cursor(name):
    return f"{name}:{name}"


def test_an_idle_slot_is_woken_by_a_publisher(feed, db, open_db, cursor, running, monkeypatch):
    """Elsewhere in this process; on PostgreSQL in any process. It would look again after an hour."""
    monkeypatch.setattr("queue_db.feeds.waiting.FIRST_LOOK", 3600)
    publisher = open_db() if db.database.dialect.notifies else db
    worker, done = Worker(db, feeds={cursor: 1}, poll=3600), threading.Event()
    worker.handles("n")(lambda job: done.set())
    with running(worker):
        wait_for(lambda: waiting_of(worker, cursor))
        wait_for(lambda: waiting_of(worker, cursor)._listener if db.database.dialect.notifies else in_process(db))
        publisher.feed(feed.name).publish("n")
        assert done.wait(PATIENCE)


@SQLITE
def test_a_stop_wakes_idle_slots(db, cursor, monkeypatch):
    monkeypatch.setattr("queue_db.feeds.waiting.FIRST_LOOK", 3600)
    worker = Worker(db, feeds={cursor: 3}, poll=3600)
    worker.handles("n")(print)
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_for(lambda: waiting_of(worker, cursor))
    worker.stop(grace=PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()


@SQLITE
def test_one_idle_slot_looks_for_all(feed, db, cursor, running, monkeypatch):
    looks, pauses, done = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)
    claim, inside, most = SharedCursor.claim, [], []

    def count_looks(*args, **options):
        found = claim(*args, **options)
        looks.release()
        return found

    def wait(waiting, *args):
        inside.append(threading.current_thread())
        most.append(len(inside))
        while not pauses.acquire(timeout=0.02) and not worker._run.others[0].stopping.is_set():
            pass
        inside.pop()

    monkeypatch.setattr(SharedCursor, "claim", count_looks)
    monkeypatch.setattr(Waiting, "wait", wait)
    worker = Worker(db, feeds={cursor: 4}, span=1)
    worker.handles("n")(lambda job: done.release())
    with running(worker):
        for _ in range(4):
            assert looks.acquire(timeout=PATIENCE), "each slot looks before it waits"
        feed.publish_many([("n", number) for number in range(10)])
        wait_for(lambda: inside)
        pauses.release()
        for _ in range(10):
            assert done.acquire(timeout=PATIENCE)
    assert set(most) == {1}


@pytest.mark.parametrize("slots", [1, 2])
def test_a_slot_whose_handler_hangs_is_stuck(feed, db, open_db, name, cursor, running, monkeypatch, slots):
    monkeypatch.setattr("queue_db.worker.run.STUCK_AFTER", 0.0)
    monkeypatch.setattr("queue_db.worker.registration.REPORT_EVERY", 0.02)
    feed.publish_many([("hangs", None)] * slots)
    worker, go = Worker(db, feeds={cursor: slots}, span=1), threading.Event()
    worker.handles("hangs", timeout=0.05, max_attempts=1)(lambda job: go.wait(PATIENCE))
    others = open_db()
    with running(worker):
        (row,) = wait_for(lambda: [one for one in others.workers() if cursor in one.queues and one.stuck == slots])
        assert row.queues == {name: 10, cursor: slots}
        assert worker.stuck == slots
        go.set()
        wait_for(lambda: worker.stuck == 0)
    assert worker.summary == Summary(dead=slots)


@SQLITE
def test_a_worker_ends_when_so_many_slots_are_stuck(feed, db, name, cursor, monkeypatch, log):
    monkeypatch.setattr("queue_db.worker.run.STUCK_AFTER", 0.0)
    feed.publish_many([("hangs", None)] * 2)
    worker, go = Worker(db, feeds={cursor: 2}, concurrency=1, span=1, exit_when_stuck=2), threading.Event()
    worker.handles("hangs", timeout=0.05, max_attempts=1)(lambda job: go.wait(PATIENCE))
    try:
        assert worker.run() == Summary(dead=2, stuck=2)
    finally:
        go.set()
    log.wait("2 handlers have not returned")


@pytest.mark.parametrize("start", [Worker.run, Worker.__enter__])
def test_a_cursor_with_one_holder_is_refused_at_the_start(feed, db, name, cursor, start):
    with feed.cursor(name):
        pass
    worker = Worker(db, feeds={cursor: 1})
    worker.handles("n")(print)
    with pytest.raises(ConfigurationError, match=f"has one holder.* `queue-db cursors remove {name} {name}`"):
        start(worker)


@pytest.fixture
def between(monkeypatch):
    """``between(worker, act)`` calls ``act(work)`` between the handlers of messages 0 and 1, in the thread of the slot."""

    def call_between(worker, act):
        of = worker.handlers.of

        def act_and_look(job):
            if job.payload == 1:
                (slot,) = worker._run.others[0]._slots
                act(slot.work)
            return of(job)

        monkeypatch.setattr(worker.handlers, "of", act_and_look)

    return call_between


@SQLITE
def test_a_handler_that_was_faster_than_its_timeout_has_its_own_result(feed, db, cursor, between):
    feed.publish_many([("n", 0), ("n", 1)])
    worker, seen = Worker(db, feeds={cursor: 1}), []
    worker.handles("n", timeout=3600)(lambda job: seen.append(job.payload))

    def end_the_time(work):
        work._call = (*work._call[:2], -math.inf)
        work.check_timeout()

    between(worker, end_the_time)
    assert worker.run(until_empty=True) == Summary(completed=2)
    assert seen == [0, 1]
    assert feed.spans(feed.name) == []


@SQLITE
def test_no_handler_is_called_after_its_span_was_taken_away(feed, db, name, cursor, between):
    feed.publish_many([("n", 0), ("n", 1), ("n", 2)])
    worker, attempts = Worker(db, feeds={cursor: 1}), []
    worker.handles("n")(lambda job: attempts.append((job.payload, job.version)))
    taken = []

    def take_once(work):
        if not taken:
            taken.append(work)
            work.end()

    between(worker, take_once)
    assert worker.run(until_empty=True) == Summary(completed=3)
    (zero, first), (one, second), (two, _) = attempts
    assert (zero, one, two) == (0, 1, 2)
    assert second > first, "the rest was claimed again before its handlers were called"


@SQLITE
def test_a_message_has_all_that_a_job_has(feed, db, name, queue, cursor):
    """It sets the attributes by itself: there are hundreds of messages in a span."""
    headers, key = {"trace": "1"}, "order-7"
    feed.publish("n", {"order": 7}, key=key, headers=headers)
    queue.enqueue("n", {"order": 7}, group=key, headers=headers)
    worker, jobs = Worker(db, feeds={cursor: 1}), []
    worker.handles("n")(jobs.append)
    worker.run(until_empty=True)
    at_first_use = {"_graph", "resumption"}
    slots = [slot for kind in LeasedJob.__mro__ for slot in getattr(kind, "__slots__", ()) if slot not in at_first_use]
    message, job = sorted(jobs, key=lambda job: job.queue == name)
    assert (message.queue, job.queue) == (cursor, name)
    assert [slot for slot in slots if not hasattr(message, slot)] == []
    same = ("kind", "payload", "payload_text", "headers", "group", "attempts", "max_attempts", "priority", "settled_by", "claimant")
    assert {one: getattr(message, one) for one in same} == {one: getattr(job, one) for one in same}
    assert (message.id, message.due_at) == (1, message.created_at)
    assert message.lease_expires > message.created_at
    assert message.fence != job.fence


@SERVERS
def test_a_stop_does_not_wait_for_a_handlers_transaction(feed, db, name, cursor, running, log):
    feed.publish_many([("n", number) for number in range(3)])
    worker, begun, go = Worker(db, feeds={cursor: 1}), threading.Event(), threading.Event()

    @worker.handles("n")
    def handle(job):
        if job.payload == 1:
            with db.database.begin("effect") as connection:
                job.complete(using=connection).require(job)
                begun.set()
                go.wait(PATIENCE)

    with running(worker) as thread:
        begun.wait(PATIENCE)
        worker.stop(grace=0)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert db.counters.lock_timeouts == 0
        log.wait("comes back when its lease ends")
        go.set()
        log.wait("the result does not count")
    (span,) = feed.spans(name)
    assert (span.low, span.worker) == (1, db.worker), "the effect of the second message counts, but the first was not settled"


@SQLITE
def test_a_name_that_nobody_has_used_is_warned_of_once(db, name, caplog):
    for _ in range(2):
        worker = Worker(db, feeds={f"{name}-typo:m": 2})
        worker.handles("n")(print)
        assert worker.run(until_empty=True).completed == 0
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"there was no feed {name + '-typo'!r}: it was created, with cursor 'm'; is the name right?"]
    caplog.clear()
    db.feed(name).publish("n")
    db.feed(name).shared("there")
    worker = Worker(db, feeds={f"{name}:there": 1, f"{name}:typo": 1})
    worker.handles("n")(print)
    assert worker.run(until_empty=True).completed == 2
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"feed {name!r} had no cursor 'typo': it was created, before the first message; is the name right?"]
