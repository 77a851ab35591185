"""Publishes of threads of one process that come while a publish is under way go together in the next transaction."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine

from queue_db import FeedError, QueueDB
from queue_db.feeds import Feed
from tests.feeds.conftest import ORDERINGS
from tests.patience import PATIENCE

OpenDB = Callable[..., QueueDB]


class Gate:
    """Holds the first transaction of a feed's publishers up, and lists how many publishes each has."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.batches: list[int] = []
        self._run = feed._publisher._batcher._run
        self._began, self._open = threading.Event(), threading.Event()
        feed._publisher._batcher._run = self._gated
        self._pool = ThreadPoolExecutor(32)

    def _gated(self, parts: list[Any]) -> Sequence[Any]:
        self.batches.append(len(parts))
        if len(self.batches) == 1:
            self._began.set()
            assert self._open.wait(PATIENCE)
        return self._run(parts)

    def publish(self, *messages: tuple[Any, ...]) -> list[Future[list[str]]]:
        """A thread for each message, one after the other: the first publishes, the others wait in this order."""
        futures = []
        for number, message in enumerate(messages):
            futures.append(self._pool.submit(self.feed.publish_many, [message]))
            assert self._began.wait(PATIENCE)
            while len(self.feed._publisher._batcher._queue) < number:
                assert not futures[-1].done()
        return futures

    def open(self) -> None:
        self._open.set()


def test_on_an_engine_of_the_application_no_thread_publishes_for_another(url: str, db: QueueDB, name: str) -> None:
    """Its listeners may set something of the current thread for the transaction."""
    engine = create_engine(url)
    try:
        with QueueDB(engine, schema=db.store.tables.jobs.schema) as own:
            gate = Gate(own.feed(name))
            gate.open()
            own.feed(name).publish("mail")
            assert gate.batches == []
    finally:
        engine.dispose()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_publishes_go_together_and_each_gets_its_own_position(db: QueueDB, make_feed: Callable[[str], str], ordering: str) -> None:
    feed = db.feed(make_feed(ordering))
    gate = Gate(feed)
    futures = gate.publish(*[("n", number) for number in range(12)])
    gate.open()
    positions = [future.result(PATIENCE)[0] for future in futures]
    assert gate.batches == [1, 11]
    page = feed.read()
    assert [message.payload for message in page.messages] == list(range(12))
    if ordering == "counter":
        assert positions == [message.position for message in page.messages]
    else:
        assert [feed.get(one)[0].payload for one in positions] == list(range(12))


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_message_that_is_refused_harms_no_other(db: QueueDB, make_feed: Callable[[str], str], ordering: str) -> None:
    feed = db.feed(make_feed(ordering))
    gate = Gate(feed)
    futures = gate.publish(("n", 0), ("n", 1), ("n", "bad", {"delay": 5}), ("n", 3))
    gate.open()
    assert isinstance(futures.pop(2).exception(PATIENCE), FeedError)
    assert [len(future.result(PATIENCE)) for future in futures] == [1, 1, 1]
    assert [message.payload for message in feed.read().messages] == [0, 1, 3]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_feed_that_is_deleted_meanwhile_gets_a_successor(
    db: QueueDB, open_db: OpenDB, make_feed: Callable[[str], str], ordering: str
) -> None:
    feed = db.feed(make_feed(ordering))
    gate = Gate(feed)
    futures = gate.publish(*[("n", number) for number in range(4)])
    open_db().feeds.delete(feed.name)
    gate.open()
    for future in futures:
        future.result(PATIENCE)
    assert [message.payload for message in open_db().feed(feed.name).read().messages] == [0, 1, 2, 3]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_publish_in_a_transaction_of_the_caller_stays_in_it(db: QueueDB, make_feed: Callable[[str], str], ordering: str) -> None:
    feed = db.feed(make_feed(ordering))
    gate = Gate(feed)
    futures = gate.publish(("n", "first"))
    with contextlib.suppress(ZeroDivisionError), db.database.begin() as connection:
        feed.publish("n", "mine", using=connection)
        raise ZeroDivisionError
    gate.open()
    futures[0].result(PATIENCE)
    assert gate.batches == [1]
    assert [message.payload for message in feed.read().messages] == ["first"]
