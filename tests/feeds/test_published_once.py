"""Idempotency keys: of two publishes with one key the second waits for the first, which it repeats only if that one fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.errors import FeedError, TransientStorageError
from queue_db.feeds.store import publishes
from tests.races.interleaving import Loser


@pytest.mark.parametrize("commits", [True, False])
def test_a_publish_loses_to_an_open_one_with_its_key(
    kind: str, db: QueueDB, open_db: Callable[..., QueueDB], make_feed: Callable[[str], str], commits: bool
) -> None:
    name, theirs = make_feed("ranked"), open_db()
    feed = db.feed(name)
    feed.publish("n", 0)
    theirs.feed(name).publish("n", 1)
    with contextlib.suppress(ZeroDivisionError), db.database.begin() as connection:
        mine = feed.publish("n", 2, idempotency_key="x", using=connection)
        second = Loser(kind, theirs, lambda: theirs.feed(name).publish("n", 2, idempotency_key="x"))
        assert second.until_it_waits()
        if not commits:
            raise ZeroDivisionError
    assert (second.result() == mine) is commits
    assert [message.payload for message in feed.read().messages] == [0, 1, 2]


def test_a_key_is_not_used_by_a_publish_that_fails_in_a_transaction_that_goes_on(
    db: QueueDB, make_feed: Callable[[str], str]
) -> None:
    feed = db.feed(make_feed("ranked"))
    message = ("n", 1, {"delay": 5})
    with db.database.begin() as connection, pytest.raises(FeedError, match="made without claims"):
        feed.publish_many([message], idempotency_key="x", using=connection)
    db.feeds.delete(feed.name)
    db.feeds.set(feed.name, claims=True)
    found = feed.publish_many([message], idempotency_key="x")
    assert feed.publish_many([message], idempotency_key="x") == found


def test_a_publish_whose_keys_cannot_be_pruned_is_published(
    db: QueueDB, make_feed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feed = db.feed(make_feed("ranked"))

    def prune(*_: object, **__: object) -> int:
        raise TransientStorageError("the table is locked")

    monkeypatch.setattr(publishes, "prune", prune)
    monkeypatch.setattr(feed._publisher, "_forget_at", 0.0)
    assert feed.publish("n", 1, idempotency_key="x")
    assert any("old idempotency keys were not deleted" in text for text in caplog.messages)


def test_a_topic_does_what_it_does_once(kind: str, db: QueueDB, open_db: Callable[..., QueueDB], name: str) -> None:
    db.routes.set(f"{name}-jobs", enqueue=name)
    db.routes.subscribe(name, f"{name}-jobs", "exact")
    assert db.topic(name).publish("k", 1, idempotency_key="x") == 1
    assert open_db().topic(name).publish("k", 1, idempotency_key="x") == 1
    assert [job.payload for job in db.queue(name).claim(10)] == [1]
    db.routes.remove(f"{name}-jobs")


def test_a_message_that_another_process_numbers_is_waited_for(
    db: QueueDB, open_db: Callable[..., QueueDB], make_feed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_feed("ranked")
    feed, theirs = db.feed(name), open_db().feed(name)
    feed.publish("n", 0)
    with db.database.begin() as connection:
        found = feed.publish("n", 1, using=connection)  # not numbered by its publisher, however late it is
    ours, pauses = feed.rank, []
    monkeypatch.setattr(feed, "rank", lambda: 0)  # another process has locked the feed

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            theirs.rank()

    monkeypatch.setattr(db.database, "pause", pause)
    monkeypatch.setattr(feed, "rank_once", lambda row: 0)
    assert [message.payload for message in feed.get(found)] == [1]
    assert len(pauses) == 2
    assert ours() == 0


def test_an_id_is_found_behind_many_others(db: QueueDB, make_feed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    feed = db.feed(make_feed("ranked"))
    with db.database.begin() as connection:
        mine = feed.publish("n", "mine", using=connection)
        # The row of the feed that its id begins from was read before these.
        feed.row(fresh=True)
    monkeypatch.setattr("queue_db.feeds.numbering._AT_ONCE", 10)
    feed.publish_many([("n", number) for number in range(95)])
    last = feed.publish("n", "last")
    assert [message.payload for message in feed.get([last, mine])] == ["mine", "last"]
    first = feed.read(limit=50)
    db.feeds.set(feed.name, keep_rows=5)
    feed.trim()
    assert first.messages
    assert [message.payload for message in feed.get([last, mine])] == ["last"]
