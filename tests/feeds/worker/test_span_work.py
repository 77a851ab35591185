"""The work on a span: who takes its results, and what becomes of those that come later."""

import math
import threading
from contextlib import nullcontext

import pytest

from queue_db.errors import TransientStorageError
from queue_db.feeds import Span
from queue_db.feeds.worker.span_work import SpanWork
from queue_db.worker import Summary, Worker
from tests.patience import PATIENCE, wait_for

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@SQLITE
def test_a_result_that_comes_after_the_report_has_begun_is_not_taken_for_reported(db, name, open_db, running, monkeypatch):
    """The end of the run takes the results while the slot, past its check, finds no handler for the last message."""
    feed = db.feed(name)
    feed.publish_many([("known", 1), ("other", 2)])
    worker, taken, put = Worker(db, feeds={f"{name}:{name}": 1}), threading.Event(), threading.Event()
    worker.handles("known")(lambda job: None)
    handler_of, unreported = worker.handlers.of, SpanWork._unreported

    class Results(dict):
        def setdefault(self, *item):
            found = super().setdefault(*item)
            if taken.is_set():
                put.set()
            return found

    def find_late(job):
        if job.kind == "other":
            (slot,) = worker._run.others[0]._slots
            slot.work.results = Results(slot.work.results)
            worker.stop(grace=0)
            taken.wait(PATIENCE)
        return handler_of(job)

    def take(work):
        found = unreported(work)
        if not taken.is_set():
            taken.set()
            put.wait(PATIENCE)
        return found

    monkeypatch.setattr(worker.handlers, "of", find_late)
    monkeypatch.setattr(SpanWork, "_unreported", take)
    with running(worker) as thread:
        thread.join(PATIENCE)
    assert put.is_set()
    assert worker.summary == Summary(completed=1)
    span = open_db().feed(name).shared(name).claim()
    assert [message.kind for message in span.messages] == ["other"]


def test_a_message_in_hand_of_a_lost_span_is_not_released(db, name, open_db, running, log):
    feed = db.feed(name)
    feed.publish_many([("n", number) for number in range(3)])
    worker, begun, go = Worker(db, feeds={f"{name}:{name}": 1}), threading.Event(), threading.Event()

    @worker.handles("n")
    def handle(job):
        if job.payload == 1:
            begun.set()
            go.wait(PATIENCE)

    with running(worker) as thread:
        begun.wait(PATIENCE)
        open_db().feed(name).seek(name, "start")
        worker.stop(grace=0)
        thread.join(PATIENCE)
        go.set()
        log.wait("the result does not count")
    assert worker.summary == Summary(lost=2)
    log.wait("the results of 1 messages do not count")


@SQLITE
def test_a_message_in_hand_is_not_counted_as_released_if_the_report_fails(db, name, running, monkeypatch, log):
    feed = db.feed(name)
    feed.publish_many([("n", number) for number in range(3)])
    worker, begun, go = Worker(db, feeds={f"{name}:{name}": 1}), threading.Event(), threading.Event()

    @worker.handles("n")
    def handle(job):
        begun.set()
        go.wait(PATIENCE)

    def fail(*_, **__):
        raise TransientStorageError("the server is away")

    with running(worker) as thread:
        begun.wait(PATIENCE)
        monkeypatch.setattr(Span, "settle", fail)
        worker.stop(grace=0)
        thread.join(PATIENCE)
        go.set()
        log.wait("the result does not count")
    assert worker.summary == Summary(lost=1)


@pytest.fixture
def two_that_hang(db, name, monkeypatch):
    """A worker whose handlers hang until ``go`` is set: "first" calls ``first(job)`` before, and has no time left after it."""
    monkeypatch.setattr("queue_db.worker.run.STUCK_AFTER", 0.0)
    worker = Worker(db, feeds={f"{name}:{name}": 2}, span=1)
    go, first = threading.Event(), []

    @worker.handles("first", timeout=3600)
    def hang_first(job):
        with db.database.begin("effect") if first else nullcontext() as connection:
            for act in first:
                act(job, connection)
            (work,) = [one for one in worker._run.others[0]._work() if one._call[0] is job]
            work._call = (*work._call[:2], -math.inf)
            go.wait(PATIENCE)

    @worker.handles("second", timeout=0.05, max_attempts=1)
    def hang(job):
        go.wait(PATIENCE)

    return worker, go, first


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_a_timeout_whose_report_waits_for_its_handlers_transaction_holds_up_no_other(db, name, running, two_that_hang):
    feed, (worker, go, first) = db.feed(name), two_that_hang
    first.append(lambda job, connection: job.complete(using=connection).require(job))
    feed.publish("first")
    with running(worker):
        wait_for(lambda: worker.stuck == 1)
        feed.publish("second")
        wait_for(lambda: worker.stuck == 2)
        wait_for(lambda: worker.summary.dead == 1)
        go.set()
        wait_for(lambda: worker.summary.completed == 1)
    assert worker.summary == Summary(completed=1, dead=1)


@SQLITE
def test_a_timeout_whose_report_gets_no_answer_holds_up_no_other(db, name, running, two_that_hang, monkeypatch):
    feed, (worker, go, _) = db.feed(name), two_that_hang
    settle, answer = Span.settle, threading.Event()

    def wait_for_the_answer(*args, **options):
        answer.wait(PATIENCE)
        return settle(*args, **options)

    monkeypatch.setattr(Span, "settle", wait_for_the_answer)
    feed.publish("first")
    with running(worker):
        wait_for(lambda: worker.stuck == 1)
        feed.publish("second")
        wait_for(lambda: worker.stuck == 2)
        answer.set()
        wait_for(lambda: worker.summary == Summary(failed=1, dead=1))
        go.set()
    assert worker.summary == Summary(failed=1, dead=1)
