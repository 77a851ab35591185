"""What publishers and workers do for a feed beside its messages: an error of it, or of another feed, stops nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from queue_db import QueueDB
from queue_db.errors import TransientStorageError
from queue_db.feeds.notifications import notifications_of
from queue_db.feeds.retention import trim_all
from queue_db.feeds.store import messages, rows
from queue_db.feeds.waiting import Waiting
from queue_db.store.base import Transaction
from queue_db.testing import SettableClock

OpenDB = Callable[..., QueueDB]


@pytest.fixture
def two(open_db: OpenDB, name: str) -> tuple[QueueDB, str, str]:
    """Two feeds of three messages that are too old."""
    clock = SettableClock()
    db, first, second = open_db(clock=clock), f"{name}-1", f"{name}-2"
    for feed in (first, second):
        db.feeds.set(feed, keep_for=10, keep_unread=0, ordering="counter")
        db.feed(feed).publish_many([("n", number) for number in range(3)])
    clock.advance(11)
    return db, first, second


def test_a_feed_that_is_locked_holds_up_no_trim(
    two: tuple[QueueDB, str, str], open_db: OpenDB, differs: Callable[[str], None]
) -> None:
    db, first, second = two
    differs("one writer")
    other = open_db()
    with other.database.begin() as connection:
        assert rows.locked(Transaction(connection, other.store), db.feed(first).row().id)
        trimmed, _ = trim_all(db.core)
    assert (trimmed.get(first), trimmed.get(second)) == (None, 3)


def test_a_feed_that_cannot_be_trimmed_does_not_stop_the_others(
    two: tuple[QueueDB, str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db, first, second = two
    trim = messages.trim

    def refuse(tx: Transaction, row: Any, **options: Any) -> int:
        if row.name == first:
            raise TransientStorageError("lock timeout")
        return trim(tx, row, **options)

    monkeypatch.setattr(messages, "trim", refuse)
    with caplog.at_level(logging.WARNING, "queue_db.feeds"):
        trimmed, _ = trim_all(db.core)
    assert (trimmed.get(first), trimmed.get(second)) == (None, 3)
    assert f"feed '{first}' is not trimmed now: lock timeout" in caplog.text


def test_publishers_trim_on_while_there_is_more(two: tuple[QueueDB, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    db, first, _ = two
    monkeypatch.setattr(messages, "TRIMMED_AT_ONCE", 2)
    feed = db.feed(first)
    feed._publisher._trim_at = 0.0
    feed.publish("n", 3)
    assert [message.payload for message in feed.read().messages] == [2, 3]
    feed.publish("n", 4)
    assert [message.payload for message in feed.read().messages] == [3, 4]


def test_a_listener_that_fails_does_not_fail_a_publish(db: QueueDB, name: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(feed: str) -> None:
        raise ValueError("bad listener")

    notifications_of(db.store).add(fail)
    db.feed(name).publish("n")
    assert "not all readers in this process were notified" in caplog.text


def test_a_publisher_notifies_a_reader_that_closes(db: QueueDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the connection that waits is the last before the reader closes it."""
    with Waiting(db.core, name) as waiting:
        waiting.wait(0)
        wakeup = waiting._wakeup
        assert wakeup is not None
        left = [wakeup]
        monkeypatch.setattr(Waiting, "_wakeup", property(lambda self: left.pop() if left else None), raising=False)
        waiting._published(name)
        assert left == []
        monkeypatch.undo()
