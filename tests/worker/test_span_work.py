"""The work on a span: who takes its results, and what becomes of those that come later."""

import threading

import pytest

from queue_db.errors import TransientStorageError
from queue_db.feeds import Span
from queue_db.worker import Summary, Worker
from queue_db.worker.span_work import SpanWork
from tests.patience import PATIENCE

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
            (slot,) = worker._run._feeds._slots
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
