"""A worker runs the messages of shared cursors: the outcomes of jobs, leases that are extended, and a polite stop."""

import asyncio
import contextlib
import math
import threading
from collections import Counter

import pytest

from queue_db import ArgumentError, Cancel, Dead, Retry, Snooze
from queue_db.backoff import constant
from queue_db.errors import TransientStorageError
from queue_db.feeds import SharedCursor, Span
from queue_db.feeds.worker.span_work import SpanWork
from queue_db.model import DeathReason
from queue_db.testing import SettableClock
from queue_db.worker import Summary, Worker
from queue_db.worker.events import EventType
from tests.patience import PATIENCE, wait_for

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def feed(db, name):
    return db.feed(name)


@pytest.fixture
def make(db, name):
    """A worker of the shared cursor with the name of the test, and its events."""

    def make_worker(slots=1, **options):
        worker = Worker(db, feeds={f"{name}:{name}": slots}, **options)
        worker.events = Counter()
        worker.on(lambda event: worker.events.update([event.type]))
        return worker

    return make_worker


@pytest.fixture
def waiting(open_db, name):
    """The jobs of the queue that are due now or within the hour."""

    def jobs():
        clock = SettableClock()
        clock.advance(3600)
        return open_db(clock=clock).queue(name).peek()

    return jobs


def behind(feed):
    """Messages that the cursor is behind and its open spans; of none: infinitely many."""
    for info in feed.cursors():
        return info.behind, info.spans
    return math.inf, 0


def test_messages_are_done_in_the_order_of_their_span(feed, make):
    feed.publish_many([("n", number) for number in range(250)])
    worker, seen = make(), []

    @worker.handles("n")
    def handle(job):
        seen.append((job.payload, job.id, job.queue, job.attempts))

    assert worker.run(until_empty=True) == Summary(completed=250)
    assert seen == [(number, number + 1, f"{feed.name}:{feed.name}", 1) for number in range(250)]
    assert worker.events == {EventType.STARTED: 250, EventType.COMPLETED: 250}
    assert behind(feed) == (0, 0)


def test_slots_and_workers_divide_the_messages(feed, make, open_db, name):
    feed.publish_many([("n", number) for number in range(300)])
    seen: Counter[int] = Counter()
    workers = [make(3, span=7), Worker(open_db(), feeds={f"{name}:{name}": 2}, span=11)]
    for worker in workers:
        worker.handles("n")(lambda job: seen.update([job.payload]))
    threads = [threading.Thread(target=worker.run, kwargs={"until_empty": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == Counter(range(300))
    assert sum(worker.summary.completed for worker in workers) == 300
    assert behind(feed) == (0, 0)


def test_a_message_that_fails_becomes_a_job_with_its_retries(feed, make, queue, db, waiting):
    """The worker runs the jobs too: that is what it does without ``queues``."""
    outcomes = {
        "raises": ValueError("bad"),
        "retry": Retry("later", 1000),
        "snooze": Snooze(1000),
        "dead": Dead("no"),
        "cancel": Cancel(),
    }
    feed.publish_many([(kind, None, {"key": f"about {kind}"}) for kind in [*outcomes, "done"]])
    worker, attempts = make(), []

    def handle(job):
        attempts.append((job.kind, job.attempts))
        if job.kind == "raises" and job.attempts == 1:
            raise outcomes["raises"]
        return outcomes.get(job.kind) if job.attempts == 1 else None

    worker.handles("raises", backoff=constant(0))(handle)
    worker.handles("dead")(handle)
    worker.handles(None)(handle)
    assert worker.run(until_empty=True) == Summary(completed=2, failed=2, snoozed=1, dead=1, cancelled=1)
    assert sorted(attempts) == sorted([(kind, 1) for kind in [*outcomes, "done"]] + [("raises", 2)])
    retry, snooze = sorted(waiting(), key=lambda job: job.kind)
    assert (retry.kind, retry.attempts, retry.group) == ("retry", 1, "about retry")
    assert (snooze.kind, snooze.attempts) == ("snooze", 0)
    (dead,) = db.dead.list(queue.name)
    assert (dead.kind, dead.attempts, dead.last_error) == ("dead", 1, "no")
    assert behind(feed) == (0, 0)


def test_a_last_attempt_is_the_first_one(feed, make, queue, db):
    feed.publish("n", 7)
    worker = make()

    @worker.handles("n", max_attempts=1)
    def handle(job):
        raise ValueError("bad")

    assert worker.run(until_empty=True) == Summary(dead=1)
    assert [job.last_error for job in db.dead.list(queue.name)] == ["ValueError: bad"]
    assert worker.events == {EventType.STARTED: 1, EventType.DEAD: 1}


def test_a_message_without_a_handler_waits_as_a_job(feed, make, waiting):
    feed.publish_many([("known", 1), ("other", 2)])
    worker = make()
    worker.handles("known")(lambda job: None)
    summary = worker.run(until_empty=True)
    assert summary.completed == 1
    assert summary.snoozed >= 1
    assert [job.kind for job in waiting()] == ["other"]
    assert behind(feed) == (0, 0)


def test_coroutines_and_their_timeouts(feed, make, waiting):
    feed.publish_many([("quick", number) for number in range(5)] + [("hangs", None)])
    worker, seen = make(), []

    @worker.handles("quick")
    async def quick(job):
        await asyncio.sleep(0)
        seen.append(job.payload)

    @worker.handles("hangs", timeout=0.05, backoff=constant(1000))
    async def hangs(job):
        await asyncio.Event().wait()

    assert worker.run(until_empty=True) == Summary(completed=5, failed=1)
    assert seen == list(range(5))
    assert [job.last_error for job in waiting()] == ["TimeoutError: no result after 0.05 s"]


def test_a_function_past_its_timeout_keeps_its_slot_and_no_message(feed, make, waiting, running):
    feed.publish_many([("hangs", 0), ("n", 1), ("n", 2)])
    worker, go, seen = make(2), threading.Event(), []
    worker.handles("hangs", timeout=0.05, backoff=constant(1000))(lambda job: go.wait(PATIENCE))
    worker.handles("n")(lambda job: seen.append(job.payload))
    with running(worker):
        wait_for(lambda: behind(feed) == (0, 0))
        assert [job.last_error for job in waiting()] == ["TimeoutError: no result after 0.05 s"]
        go.set()
    assert seen == [1, 2]
    assert worker.summary == Summary(completed=2, failed=1)


def test_a_handler_completes_its_message_in_its_own_transaction(feed, make, db, name):
    copy = db.feed(f"{name}-copy")
    feed.publish_many([("n", number) for number in range(10)])
    worker = make()

    @worker.handles("n")
    def handle(job):
        with job.transaction() as connection:
            copy.publish("n", job.payload, using=connection)
            if job.payload == 3:
                raise ValueError("rolled back")
        if job.payload == 5:
            raise ValueError("committed before")

    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.failed) == (9, 1)
    assert [message.payload for message in copy.read().messages] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert behind(feed) == (0, 0)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("number", [1, 3])
def test_a_message_is_completed_whatever_became_of_its_handlers_transaction(feed, make, db, committed, number):
    """Its handler returned."""
    feed.publish_many([("n", one) for one in range(number)])
    worker = make()

    @worker.handles("n")
    def handle(job):
        with contextlib.suppress(ZeroDivisionError), db.queue(job.queue).transaction() as connection:
            assert job.complete(using=connection)
            if not committed:
                raise ZeroDivisionError

    assert worker.run(until_empty=True) == Summary(completed=number)
    assert worker.events == {EventType.STARTED: number, EventType.COMPLETED: number}
    assert behind(feed) == (0, 0)


def test_a_message_whose_completion_was_rolled_back_can_fail(feed, make, db, waiting):
    feed.publish_many([("n", one) for one in range(3)])
    worker = make()

    @worker.handles("n", max_attempts=2)
    def handle(job):
        if job.payload == 1:
            with contextlib.suppress(ZeroDivisionError), db.queue(job.queue).transaction() as connection:
                assert job.complete(using=connection)
                raise ZeroDivisionError
            job.rolled_back()
            assert job.fail("no commit", retry_in=1000)

    assert worker.run(until_empty=True) == Summary(completed=2, failed=1)
    assert [(job.payload, job.attempts) for job in waiting()] == [(1, 1)]
    assert behind(feed) == (0, 0)


@pytest.mark.parametrize("verb", ["bury", "fail"])
@pytest.mark.parametrize("raises", [True, False])
def test_a_message_that_its_handler_lets_die_is_reported_once(feed, make, db, name, caplog, verb, raises):
    feed.publish("n")
    worker, reasons = make(), []
    worker.on(lambda event: reasons.append(event.reason) if event.type is EventType.DEAD else None)

    @worker.handles("n", max_attempts=1)
    def handle(job):
        assert getattr(job, verb)("no use")
        if raises:
            raise ValueError("afterwards")

    assert worker.run(until_empty=True) == Summary(dead=1)
    assert reasons == [DeathReason.REJECTED if verb == "bury" else DeathReason.FAILED]
    (record,) = [record for record in caplog.records if record.name == "queue_db.dead"]
    assert "no use" in record.message
    assert db.counters.dead == 1
    (dead,) = db.dead.list(name)
    assert (dead.last_error, dead.attempts, dead.max_attempts) == ("no use", 1, 1)


def test_a_stop_completes_what_is_done_and_releases_the_rest(feed, make, open_db, name, running):
    feed.publish_many([("n", number) for number in range(10)])
    worker, seen = make(), []

    @worker.handles("n")
    def handle(job):
        if job.payload == 3:
            worker.stop()
            assert worker._run.others[0].stopping.wait(PATIENCE)
        seen.append(job.payload)

    with running(worker) as thread:
        thread.join(PATIENCE)
    assert seen == [0, 1, 2, 3]
    assert worker.summary == Summary(completed=4)
    span = open_db().feed(name).shared(name).claim()
    assert [message.payload for message in span.messages] == [4, 5, 6, 7, 8, 9]
    assert span.attempts == 1, "the claim that was released is no attempt"


def test_a_stop_without_grace_releases_the_message_in_hand(feed, make, open_db, name, running, log):
    feed.publish_many([("n", number) for number in range(4)])
    worker, begun, go = make(), threading.Event(), threading.Event()

    @worker.handles("n")
    def handle(job):
        if job.payload == 1:
            begun.set()
            job.lost.wait(PATIENCE)
            go.wait(PATIENCE)

    with running(worker) as thread:
        begun.wait(PATIENCE)
        worker.stop(grace=0)
        thread.join(PATIENCE)
        span = open_db().feed(name).shared(name).claim()
        assert [message.payload for message in span.messages] == [1, 2, 3]
        go.set()
        log.wait("the result does not count")
    assert span.complete()
    assert worker.summary == Summary(completed=1, released=1)
    assert worker.events == {EventType.STARTED: 2, EventType.COMPLETED: 1, EventType.RELEASED: 1}


def test_a_lost_span_is_one_line_and_its_results_do_not_count(feed, make, open_db, name, running, log, quick_beats):
    feed.publish_many([("n", number) for number in range(5)])
    worker, begun = make(lease=600), threading.Event()
    rival = open_db().feed(name)

    @worker.handles("n")
    def handle(job):
        if job.payload == 2 and not begun.is_set():
            begun.set()
            job.lost.wait(PATIENCE)

    with running(worker):
        begun.wait(PATIENCE)
        rival.seek(name, "start")
        log.wait("is lost: another worker has it")
        wait_for(lambda: behind(feed) == (0, 0))
    assert log.count("is lost: another worker has it") == 1
    assert worker.summary == Summary(completed=5, lost=3)
    assert worker.events[EventType.LOST] == 3


def test_the_lease_is_extended_while_a_handler_runs(feed, make, open_db, name, running, quick_beats):
    feed.publish_many([("n", 0)])
    worker, begun, go = make(lease=600), threading.Event(), threading.Event()

    @worker.handles("n")
    def handle(job):
        begun.set()
        go.wait(PATIENCE)

    with running(worker):
        begun.wait(PATIENCE)
        (first,) = feed.spans(name)
        wait_for(lambda: feed.spans(name)[0].expires_at > first.expires_at)
        go.set()
        wait_for(lambda: behind(feed) == (0, 0))
    assert worker.summary == Summary(completed=1)


def test_what_is_done_is_reported_before_the_span_ends(feed, make, running, monkeypatch):
    monkeypatch.setattr("queue_db.feeds.worker.span_work.REPORT_EVERY", 0.0)
    feed.publish_many([("n", number) for number in range(3)])
    worker, begun, go = make(), threading.Event(), threading.Event()

    @worker.handles("n")
    def handle(job):
        if job.payload == 2:
            begun.set()
            go.wait(PATIENCE)

    with running(worker):
        begun.wait(PATIENCE)
        assert behind(feed) == (1, 1)
        go.set()
        wait_for(lambda: behind(feed) == (0, 0))
    assert worker.summary == Summary(completed=3)


def test_results_that_could_not_be_reported_come_back(feed, make, monkeypatch):
    """The report of the first message fails, those of the others do not: the span is not completed with it."""
    monkeypatch.setattr("queue_db.feeds.worker.span_work.REPORT_EVERY", 0.0)
    monkeypatch.setattr("queue_db.feeds.worker.span_work.REPORT_FOR", 0.0)
    feed.publish_many([("n", number) for number in range(3)])
    settle, reports = Span.settle, []

    def fail_once(span, seqs, failures=(), **options):
        reports.append(seqs)
        if len(reports) == 1:
            raise TransientStorageError("the server is away")
        return settle(span, seqs, failures, **options)

    monkeypatch.setattr(Span, "settle", fail_once)
    worker = make()

    @worker.handles("n")
    def handle(job):
        if job.payload == 0:
            raise ValueError("bad")

    assert worker.run(until_empty=True) == Summary(completed=2, lost=1)
    assert behind(feed) == (3, 1)
    (span,) = feed.spans(feed.name)
    assert (span.low, span.attempts, span.worker is None) == (1, 1, False)


def test_a_message_whose_completion_was_rolled_back_is_not_repeated(feed, make):
    feed.publish("n", 0)
    worker, calls = make(), []

    @worker.handles("n")
    def handle(job):
        calls.append(job.attempts)
        if len(calls) > 2:
            worker.stop()
        with contextlib.suppress(KeyError), job.transaction() as connection:
            job.complete(using=connection)
            raise KeyError("rolled back")

    worker.run(until_empty=True)
    assert calls == [1]
    assert behind(feed) == (0, 0)


def test_trimmed_messages_are_logged_and_the_span_is_released_if_it_cannot_be_read(feed, make, db, name, monkeypatch, log):
    db.feeds.set(name, keep_rows=2, keep_unread=0)
    feed.shared(name)
    feed.publish_many([("n", number) for number in range(5)])
    feed.rank()
    feed.trim()
    read, reads = SharedCursor._read, []

    def fail_once(*args, **options):
        reads.append(args)
        if len(reads) == 1:
            raise TransientStorageError("the server is away")
        return read(*args, **options)

    monkeypatch.setattr(SharedCursor, "_read", fail_once)
    worker = make()
    worker.handles("n")(lambda job: None)
    assert worker.run(until_empty=True) == Summary(completed=2)
    assert log.count("3 messages were trimmed before they were claimed") == 1
    assert behind(feed) == (0, 0)


def test_no_handler_is_called_if_the_lease_is_over_and_cannot_be_extended(feed, make, monkeypatch):
    feed.publish_many([("n", 0), ("n", 1)])
    worker, fences, refuse = make(), [], []
    extend = Span.extend_unlocked

    def fail_once(span, seconds):
        if refuse:
            refuse.pop()
            raise TransientStorageError("the server is away")
        return extend(span, seconds)

    monkeypatch.setattr(Span, "extend_unlocked", fail_once)

    @worker.handles("n")
    def handle(job):
        fences.append(job.version)
        if job.payload == 0:
            (slot,) = worker._run.others[0]._slots
            slot.work.valid_until = 0.0
            refuse.append(True)

    assert worker.run(until_empty=True) == Summary(completed=2)
    assert fences[1] > fences[0], "the second message was claimed again before its handler was called"
    assert behind(feed) == (0, 0)


def test_a_report_whose_outcome_is_unknown_is_no_lost_span(feed, make, monkeypatch, log):
    feed.publish_many([("n", number) for number in range(3)])
    settle, reports = Span.settle, []

    def commit_without_an_answer(span, *args, **options):
        reports.append(args)
        verdict = settle(span, *args, **options)
        if len(reports) == 1:
            raise TransientStorageError("the connection broke", outcome_unknown=True)
        return verdict

    monkeypatch.setattr(Span, "settle", commit_without_an_answer)
    worker = make()
    worker.handles("n")(lambda job: None)
    assert worker.run(until_empty=True) == Summary(lost=3)
    assert len(reports) == 2
    assert log.has("is unknown")
    assert not log.has("another worker has it")
    assert behind(feed) == (0, 0)


@SQLITE
def test_a_removed_cursor_is_not_created_again(feed, make, running, log):
    feed.publish("n")
    worker, done = make(poll=0.01), threading.Event()
    worker.handles("n")(lambda job: done.set())
    with running(worker):
        done.wait(PATIENCE)
        wait_for(lambda: behind(feed) == (0, 0))
        feed.remove_cursor(feed.name)
        log.wait("has no shared cursor")
    assert feed.cursors() == []


@SQLITE
@pytest.mark.parametrize(
    "wrong",
    [
        {"feeds": {"orders": 1}},
        {"feeds": {"orders:": 1}},
        {"feeds": {"orders:mailers": 0}},
        {"feeds": ["orders:mailers"]},
        {"feeds": {"orders:mailers": 1}, "mode": "at_most_once"},
        {"feeds": {"orders:mailers": 1}, "span": 0},
        {},
    ],
)
def test_what_is_refused(db, wrong):
    with pytest.raises(ArgumentError):
        Worker(db, **wrong)


@SQLITE
def test_its_queues_are_those_of_the_jobs(db):
    worker = Worker(db, feeds={"orders:mailers": 4, "prices:mailers": 1, "prices:audit": 2})
    assert list(worker.options.limits) == ["mailers", "audit"]
    assert worker.options.names == "'mailers', 'audit', 'orders:mailers', 'prices:mailers', 'prices:audit'"
    assert list(worker.changed(queues=["other"]).options.limits) == ["other"]
    assert worker.changed(concurrency=2).options.feeds == worker.options.feeds


@SQLITE
@pytest.mark.parametrize("within", [False, True])
def test_a_span_that_ended_with_its_last_message_is_not_lost(feed, make, monkeypatch, log, within):
    """The heartbeat comes between the handler's completion and its return."""
    works, extended = [], []
    begin = SpanWork.__init__

    def noted(work, *arguments):
        begin(work, *arguments)
        works.append(work)

    monkeypatch.setattr(SpanWork, "__init__", noted)
    feed.publish_many([("n", number) for number in range(3)])
    worker = make()

    @worker.handles("n")
    def handle(job):
        if within:
            with job.transaction():
                pass
        else:
            assert job.complete()
        extended.append(works[0].extend())

    assert worker.run(until_empty=True) == Summary(completed=3)
    assert extended == [True] * 3
    assert not works[0].calling
    assert log.count("is lost") == 0
    assert behind(feed) == (0, 0)
