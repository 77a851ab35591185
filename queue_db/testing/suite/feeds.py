"""Feeds: messages in order, positions that stay true, and retention."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

from queue_db.db import QueueDB
from queue_db.errors import (
    ArgumentError,
    FeedError,
    IdempotencyKeyError,
    NoSuchFeedError,
    PayloadError,
    PositionError,
    TrimmedError,
)
from queue_db.feeds import Feed, Page
from queue_db.feeds.settings import FeedOrdering
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestFeeds", "TestPositions", "TestRetention", "feed", "ordering"]


@pytest.fixture(params=["counter", "ranked"])
def ordering(request: pytest.FixtureRequest) -> FeedOrdering:
    """How the feed of the test numbers its messages."""
    return cast("FeedOrdering", request.param)


@pytest.fixture
def feed(db: QueueDB, name: str, ordering: FeedOrdering) -> Iterator[Feed]:
    """An empty feed."""
    db.feeds.set(name, ordering=ordering)
    yield db.feed(name)
    for info in db.feeds.list():
        if info.name.startswith(name):
            db.feeds.delete(info.name)


def payloads(page: Page) -> list[Any]:
    """The payloads of a page."""
    return [message.payload for message in page.messages]


class TestFeeds:
    """Publish and read."""

    def test_a_message_is_read_as_it_was_published(self, feed: Feed, clock: SettableClock) -> None:
        feed.publish("paid", {"order": 7}, key="order-7", headers={"trace": "00-1"}, client="shop")
        (message,) = feed.read().messages
        assert (message.kind, message.payload, message.key, message.client) == ("paid", {"order": 7}, "order-7", "shop")
        assert (message.headers, message.published_at, message.feed) == ({"trace": "00-1"}, clock.now(), feed.name)
        assert message.payload_text == '{"order":7}'

    def test_the_id_of_a_publish_names_the_message(self, feed: Feed, rival: QueueDB) -> None:
        first = feed.publish("n", 0)
        second, third = feed.publish_many([("n", 1), ("n", 2)])
        theirs = rival.feed(feed.name)
        assert [message.payload for message in theirs.get([third, first, third])] == [0, 2]
        (message,) = theirs.get(second)
        assert [same.position for same in theirs.get(message.position)] == [message.position]
        assert [later.payload for later in theirs.read(message.position).messages] == [2]

    def test_a_publish_with_an_idempotency_key_is_made_once(
        self, feed: Feed, rival: QueueDB, db: QueueDB, clock: SettableClock
    ) -> None:
        content = [("n", 0, {"key": "a"}), ("n", 1)]
        ids = feed.publish_many(content, client="me", idempotency_key="x")
        theirs = rival.feed(feed.name)
        assert theirs.publish_many(content, client="me", idempotency_key="x") == ids
        assert payloads(feed.read()) == [0, 1]
        with pytest.raises(IdempotencyKeyError, match="a new publish needs a new key"):
            theirs.publish("n", 1, idempotency_key="x")
        theirs.publish("n", 2, idempotency_key="y")
        rival.feed(f"{feed.name}-other").publish("n", 3, idempotency_key="x")  # each feed has its own keys
        clock.advance(86_401)
        db.prune()
        theirs.publish("n", 4, idempotency_key="x")
        assert payloads(feed.read()) == [0, 1, 2, 4]

    def test_an_idempotency_key_is_used_when_its_transaction_commits(self, feed: Feed, db: QueueDB) -> None:
        with contextlib.suppress(ZeroDivisionError), db.database.begin() as connection:
            feed.publish("n", 0, idempotency_key="x", using=connection)
            raise ZeroDivisionError
        with db.database.begin() as connection:
            mine = feed.publish("n", 0, idempotency_key="x", using=connection)
        assert feed.publish("n", 0, idempotency_key="x") == mine
        assert payloads(feed.read()) == [0]

    def test_every_reader_reads_every_message_in_order(self, feed: Feed, rival: QueueDB) -> None:
        for first in range(0, 30, 3):
            feed.publish_many([("n", number) for number in range(first, first + 3)])
        for reader in (feed, rival.feed(feed.name)):
            page, seen = reader.read(limit=7), []
            while page.messages:
                seen += payloads(page)
                page = reader.read(page.position, limit=7)
            assert seen == list(range(30))
            assert page.behind == 0

    def test_a_page_tells_how_much_follows(self, feed: Feed) -> None:
        feed.publish_many([("n", number) for number in range(10)])
        feed.rank()
        page = feed.read(limit=4)
        assert (payloads(page), page.behind) == ([0, 1, 2, 3], 6)
        assert feed.read(page.messages[1].position, limit=4).messages[0].payload == 2

    def test_a_position_is_returned_where_the_number_is_known(self, feed: Feed, ordering: FeedOrdering) -> None:
        position = feed.publish("n", 1)
        (message,) = feed.get(position)
        assert (position == message.position) is (ordering == "counter")
        if ordering != "counter":
            with pytest.raises(ArgumentError, match="the id of a message that had no number yet"):
                feed.read(position)

    def test_a_filtered_page_passes_what_it_leaves_out(self, feed: Feed) -> None:
        feed.publish_many([("a", number) for number in range(5)], client="me")
        feed.publish_many([("b", number) for number in range(5)])
        page = feed.read(limit=3, kinds=["b"])
        assert payloads(page) == [0, 1, 2]
        assert payloads(feed.read(page.position, limit=3, kinds=["b"])) == [3, 4]
        assert feed.read(feed.end(), kinds=["b"]).messages == []
        mine_left_out = feed.read(client="me", echo=False)
        assert {message.kind for message in mine_left_out.messages} == {"b"}
        assert mine_left_out.position == feed.end()

    def test_a_message_of_a_transaction_is_published_by_its_commit(self, feed: Feed, notes: Notes) -> None:
        with notes.engine.connect() as connection:
            feed.publish("n", "rolled back", using=connection)
            notes.write(connection, "no")
            connection.rollback()
        assert feed.read().messages == []
        with notes.engine.connect() as connection:
            feed.publish("n", "committed", using=connection)
            notes.write(connection, "yes")
            connection.commit()
        assert payloads(feed.read()) == ["committed"]
        assert notes.read() == ["yes"]

    def test_a_transaction_that_has_written_can_create_a_feed(self, feed: Feed, db: QueueDB, notes: Notes) -> None:
        other = db.feed(f"{feed.name}-other")
        with notes.engine.connect() as connection:
            notes.write(connection, "no")
            other.publish("n", "rolled back", using=connection)
            connection.rollback()
        assert other.name not in [info.name for info in db.feeds.list()]
        with notes.engine.begin() as connection:
            notes.write(connection, "yes")
            other.publish("n", "committed", using=connection)
        assert payloads(other.read()) == ["committed"]

    def test_what_is_refused_is_called_by_its_name(self, feed: Feed) -> None:
        for name, options in (("payload", {"payload": object()}), ("headers", {"headers": {"a": object()}})):
            with pytest.raises(PayloadError, match=f"{name} of message kind 'n': cannot be encoded"):
                feed.publish("n", **options)
        with pytest.raises(ArgumentError, match=r"^the header 'via' is reserved"):
            feed.publish("n", headers={"via": "x"})
        with pytest.raises(ArgumentError, match=r"^message 1: the header 'via' is reserved"):
            feed.publish_many([("n", 0), ("n", 1, {"headers": {"via": "x"}})])

    def test_messages_are_published_all_or_none(self, feed: Feed) -> None:
        with pytest.raises(PayloadError):
            feed.publish_many([("n", 1), ("n", object())])
        with pytest.raises(ArgumentError, match="message 1: its options may be key, headers, delay and expires_in"):
            feed.publish_many([("n", 1), ("n", 2, {"keys": "k"})])
        assert feed.publish_many([]) == []
        assert feed.read().messages == []

    def test_a_publisher_that_knows_a_deleted_feed_publishes_to_a_new_one(
        self, name: str, ordering: FeedOrdering, db: QueueDB, rival: QueueDB, notes: Notes
    ) -> None:
        for suffix in ("-own", "-using"):
            db.feeds.set(name + suffix, ordering=ordering)
            feed, theirs = db.feed(name + suffix), rival.feed(name + suffix)
            feed.publish("n", "old")
            rival.feeds.delete(feed.name)
            with notes.engine.begin() as connection:
                feed.publish("n", "new", using=connection if suffix == "-using" else None)
            assert payloads(theirs.read()) == ["new"]
            db.feeds.delete(feed.name)

    def test_feeds_are_apart(self, feed: Feed, db: QueueDB) -> None:
        other = db.feed(f"{feed.name}-other")
        feed.publish("n", "here")
        other.publish("n", "there")
        assert payloads(feed.read()) == ["here"]
        assert payloads(other.read()) == ["there"]

    def test_a_program_that_deletes_a_feed_publishes_to_a_new_one(
        self, feed: Feed, db: QueueDB, notes: Notes, rival: QueueDB
    ) -> None:
        feed.publish("n", "old")
        db.feeds.delete(feed.name)
        with notes.engine.begin() as connection:
            feed.publish("n", "new", using=connection)
        assert payloads(rival.feed(feed.name).read()) == ["new"]
        db.feeds.delete(feed.name)
        feed.publish("n", "newer")
        assert payloads(db.feed(feed.name).read()) == ["newer"]

    def test_a_deleted_feed_begins_anew(self, feed: Feed, rival: QueueDB) -> None:
        feed.publish("n", 1)
        position = feed.read().position
        assert rival.feeds.delete(feed.name)
        assert not rival.feeds.delete(feed.name)
        # Which error comes depends on whether this reader has looked for the feed again, as it does after a second.
        with pytest.raises((NoSuchFeedError, PositionError), match=r"was deleted|another feed or another database"):
            feed.read(position)
        rival.feed(feed.name).publish("n", 2)
        assert payloads(rival.feed(feed.name).read()) == [2]
        with pytest.raises(PositionError, match="another feed or another database"):
            rival.feed(feed.name).read(position)


class TestPositions:
    """A position is true for good, or it is refused."""

    def test_a_position_of_another_feed_is_refused(self, feed: Feed, db: QueueDB) -> None:
        other = db.feed(f"{feed.name}-other")
        for one in (feed, other):
            one.publish("n")
        with pytest.raises(PositionError, match="another feed or another database"):
            feed.read(other.read().position)

    @pytest.mark.parametrize("garbage", ["", "1", "a.b.c", "x.1", "x.1.-1", "x.1.1.1.1", "x.1.٣", "x.1." + "9" * 30, 7, None])
    def test_garbage_is_refused(self, feed: Feed, garbage: Any) -> None:
        if garbage is not None:
            with pytest.raises(ArgumentError, match="must be a position"):
                feed.read(garbage)
        with pytest.raises(ArgumentError, match="must be a position"):
            feed.seek("cursor", garbage)

    def test_a_position_ahead_of_the_feed_is_refused(self, feed: Feed) -> None:
        feed.publish("n")
        token, epoch, seq = feed.read().position.split(".")
        with pytest.raises(PositionError, match=r"ahead of .* restored from a backup"):
            feed.read(f"{token}.{epoch}.{int(seq) + 1}")

    def test_a_purge_and_a_restore_end_all_positions(self, feed: Feed, db: QueueDB) -> None:
        feed.publish_many([("n", number) for number in range(3)])
        before = feed.read().position
        assert db.feeds.purge(feed.name) == 3
        with pytest.raises(PositionError, match="is of epoch 1"):
            feed.read(before)
        feed.publish("n", "after")
        page = feed.read()
        assert payloads(page) == ["after"]
        assert db.feeds.restored() >= 1
        with pytest.raises(PositionError, match="is of epoch 2"):
            feed.read(page.position)
        with pytest.raises(FeedError, match="there is no feed"):
            db.feeds.purge(f"{feed.name}-other")

    def test_a_publisher_returns_positions_of_the_new_epoch(self, name: str, db: QueueDB, rival: QueueDB) -> None:
        db.feeds.set(name, ordering="counter")
        feed = db.feed(name)
        feed.publish("n", 1)
        rival.feeds.purge(name)
        position = feed.publish("n", 2)
        assert position == rival.feed(name).end()
        db.feeds.delete(name)

    def test_the_end_is_after_all_that_was_published(self, feed: Feed) -> None:
        assert feed.read(feed.end()).messages == []
        feed.publish("n", 1)
        end = feed.end()
        feed.publish("n", 2)
        assert payloads(feed.read(end)) == [2]
        assert payloads(feed.read(feed.start())) == [1, 2]


class TestRetention:
    """What is trimmed, and what readers learn of it."""

    def test_only_the_last_rows_are_kept(self, feed: Feed, db: QueueDB) -> None:
        db.feeds.set(feed.name, keep_rows=3)
        start = feed.start()
        for number in range(10):
            feed.publish("n", number)
            assert len(feed.read().messages) <= 3
        assert payloads(feed.read()) == [7, 8, 9]
        with pytest.raises(TrimmedError, match="7 messages") as trimmed:
            feed.read(start)
        assert payloads(feed.read(trimmed.value.first)) == [7, 8, 9]
        page = feed.read(start, on_trimmed="skip")
        assert (payloads(page), page.skipped) == ([7, 8, 9], 7)

    def test_old_messages_are_trimmed(self, feed: Feed, db: QueueDB, clock: SettableClock) -> None:
        db.feeds.set(feed.name, keep_for=60)
        feed.publish_many([("n", number) for number in range(3)])
        clock.advance(40)
        feed.publish("n", 3)
        feed.rank()
        assert feed.trim() == 0
        clock.advance(30)
        assert feed.trim() == 3
        assert payloads(feed.read()) == [3]
        clock.advance(90)
        assert feed.trim() == 1
        assert feed.read().messages == []
        feed.publish("n", 4)
        assert payloads(feed.read()) == [4]

    def test_a_slow_cursor_keeps_its_messages_up_to_a_limit(self, feed: Feed, db: QueueDB) -> None:
        db.feeds.set(feed.name, keep_rows=2, keep_unread=5)
        with feed.cursor("slow") as cursor:
            for number in range(4):
                feed.publish("n", number)
            assert [message.payload for message in cursor.read()] == [0, 1, 2, 3]
            for number in range(4, 10):
                feed.publish("n", number)
                feed.rank()
        assert payloads(feed.read()) == [5, 6, 7, 8, 9]
        (info,) = feed.cursors()
        assert (info.behind, info.trimmed) == (10, 5)
        with feed.cursor("slow") as cursor, pytest.raises(TrimmedError):
            cursor.read()
        with feed.cursor("slow", on_trimmed="skip") as cursor:
            assert [message.payload for message in cursor.read()] == [5, 6, 7, 8, 9]
            assert cursor.skipped == 5
        feed.remove_cursor("slow")
        assert feed.trim() == 3

    def test_a_lowered_limit_is_reached_in_bounded_steps(self, feed: Feed, db: QueueDB) -> None:
        feed.publish_many([("n", number) for number in range(2500)])
        while feed.rank():
            pass
        db.feeds.set(feed.name, keep_rows=10, keep_unread=0)
        there = []
        for number in range(4):
            feed.publish_many([("n", number)] * 5)
            feed.rank()
            (info,) = [info for info in db.feeds.list() if info.name == feed.name]
            there.append(info.messages)
        assert there == [1500, 500, 10, 10]

    @pytest.mark.parametrize("bad", [{"keep_for": -1}, {"keep_rows": 1.5}, {"keep_unread": -1}, {"ordering": "naive"}])
    def test_impossible_settings_are_refused(self, feed: Feed, db: QueueDB, bad: dict[str, Any]) -> None:
        (before,) = [info for info in db.feeds.list() if info.name == feed.name]
        with pytest.raises(ArgumentError):
            db.feeds.set(feed.name, **bad)
        assert before in db.feeds.list()

    def test_feeds_and_their_cursors_are_listed_by_name(self, db: QueueDB, name: str, ordering: FeedOrdering) -> None:
        names = [f"{name}-{letter}" for letter in "abc"]
        for one in names:
            db.feeds.set(one, ordering=ordering, claims=one.endswith("b"))
            db.feed(one).publish_many([("n", 1), ("n", 2)])
            db.feed(one).cursor("reader", start="start").close()
        assert [info.name for info in db.feeds.list(after=names[0], limit=2)][:2] == names[1:]
        assert [info.name for info in db.feeds.list([*names[::-1], f"{name}-d"])] == names
        assert [info.name for info in db.feeds.list(names, after=names[0], limit=1)] == names[1:2]
        assert [info for info in db.feeds.list() if info.name in names] == db.feeds.list(names)
        assert {info.messages + info.waiting for info in db.feeds.list(names)} == {2}
        found = db.feeds.cursors(feeds=names[:2])
        assert [(one.feed, one.name, one.behind) for one in found] == [(one, "reader", 2) for one in names[:2]]
        assert (db.feeds.list([]), db.feeds.cursors(feeds=[])) == ([], [])
        for wrong in ({"limit": 0}, {"after": ""}, {"feeds": name}):
            with pytest.raises(ArgumentError):
                db.feeds.list(**wrong)
        for one in names:
            db.feeds.delete(one)

    def test_the_ordering_of_a_feed_stays(self, feed: Feed, db: QueueDB, ordering: FeedOrdering) -> None:
        with pytest.raises(FeedError, match="cannot be changed"):
            db.feeds.set(feed.name, ordering="counter" if ordering != "counter" else "ranked")
