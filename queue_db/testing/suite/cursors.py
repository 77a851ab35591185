"""Cursors of feeds: one holder at a time, fenced, from a durable position."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, CursorHeldError, FeedError, LeaseLostError, PositionError
from queue_db.feeds import Feed
from queue_db.model import Verdict
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestCursors"]


class TestCursors:
    """One holder at a time, from a durable position."""

    def test_a_cursor_goes_on_where_it_acknowledged(self, feed: Feed) -> None:
        feed.publish_many([("n", number) for number in range(6)])
        with feed.cursor("billing") as cursor:
            first, second, *_ = cursor.read()
            assert cursor.ack(second) is Verdict.APPLIED
            assert cursor.ack(first) is Verdict.APPLIED, "it never moves back"
            assert cursor.seq == second.seq
        with feed.cursor("billing") as cursor:
            assert [message.payload for message in cursor.read(limit=2)] == [2, 3]
            assert [message.payload for message in cursor.read(limit=9)] == [4, 5]
            assert cursor.read() == []
        with feed.cursor("audit") as cursor:
            assert cursor.seq == 0
            assert [message.payload for message in cursor.follow(limit=4, idle=0)] == list(range(6))

    def test_what_to_do_with_trimmed_messages_is_checked_when_it_is_opened(self, feed: Feed) -> None:
        for call in (feed.cursor, feed.shared, lambda name, **options: feed.forward(name, "queue", **options)):
            with pytest.raises(ArgumentError, match="on_trimmed='ignore': must be raise or skip"):
                call("billing", on_trimmed="ignore")  # type: ignore[arg-type]
        assert feed.cursors() == []

    def test_a_new_cursor_may_begin_at_the_end(self, feed: Feed) -> None:
        feed.publish("n", "before")
        with feed.cursor("late", start="end") as cursor:
            feed.publish("n", "after")
            assert [message.payload for message in cursor.read()] == ["after"]

    def test_a_held_cursor_is_not_opened_until_its_lease_ends(self, feed: Feed, rival: QueueDB, clock: SettableClock) -> None:
        feed.publish_many([("n", number) for number in range(3)])
        cursor = feed.cursor("billing", lease=30)
        (first, *_) = cursor.read()
        with pytest.raises(CursorHeldError, match="is held by first"):
            rival.feed(feed.name).cursor("billing")
        clock.advance(20)
        assert cursor.ack(first)
        clock.advance(20)
        with pytest.raises(CursorHeldError):
            rival.feed(feed.name).cursor("billing")
        clock.advance(20)
        with rival.feed(feed.name).cursor("billing") as theirs:
            assert [message.payload for message in theirs.read()] == [1, 2]
            assert cursor.ack(first) is Verdict.LOST
            with pytest.raises(LeaseLostError, match="was lost"):
                cursor.extend()
        assert feed.cursors()[0].holder is None

    def test_a_cursor_is_taken_over(self, feed: Feed, rival: QueueDB) -> None:
        feed.publish("n")
        ours = feed.cursor("billing")
        (message,) = ours.read()
        theirs = rival.feed(feed.name).cursor("billing", take_over=True)
        assert ours.ack(message) is Verdict.LOST
        ours.close()
        assert feed.cursors()[0].holder == "rival", "a lost holder does not end the hold of another"
        assert theirs.ack(message) is Verdict.APPLIED

    def test_an_open_cursor_is_resumed_by_its_hold(self, feed: Feed, rival: QueueDB) -> None:
        feed.publish_many([("n", number) for number in range(3)])
        opened = feed.cursor("billing")
        assert opened.ack(opened.read(1)[0])
        elsewhere = rival.feed(feed.name)
        resumed = elsewhere.resume("billing", opened.generation)
        assert (resumed.position, resumed.seq) == (opened.position, opened.seq)
        assert [message.payload for message in resumed.read(1)] == [1]
        assert resumed.ack(feed.end())
        assert feed.cursors()[0].behind == 0
        opened.close()
        for hold in (opened.generation, opened.generation + 1, 0):
            with pytest.raises(LeaseLostError):
                elsewhere.resume("billing", hold)
        with pytest.raises(LeaseLostError):
            elsewhere.resume("another", opened.generation)
        with pytest.raises(ArgumentError, match="generation"):
            feed.resume("billing", -1)

    @pytest.mark.parametrize("joined", [False, True], ids=["alone", "in a transaction"])
    def test_a_lost_acknowledgement_ends_the_messages_that_were_read(
        self, feed: Feed, rival: QueueDB, notes: Notes, joined: bool
    ) -> None:
        feed.publish_many([("n", number) for number in range(5)])
        old, handled = feed.cursor("billing"), []
        following = old.follow(idle=0)
        assert old.ack(next(following))
        rival.feed(feed.name).cursor("billing", take_over=True)

        def handle() -> None:
            for message in following:
                handled.append(message.payload)
                if joined:
                    with notes.engine.begin() as connection:
                        old.ack(message, using=connection)
                else:
                    old.ack(message)

        with pytest.raises(LeaseLostError):
            handle()
        assert handled == [1]
        with pytest.raises(LeaseLostError):
            old.read()

    def test_an_acknowledgement_is_part_of_the_transaction(self, feed: Feed, notes: Notes, rival: QueueDB) -> None:
        feed.publish_many([("n", 1), ("n", 2)])
        with feed.cursor("billing") as cursor:
            first, second = cursor.read()
            with notes.engine.connect() as connection:
                assert cursor.ack(first, using=connection)
                notes.write(connection, "rolled back")
                connection.rollback()
            assert feed.cursors()[0].behind == 2
            with notes.engine.begin() as connection:
                cursor.ack(first, using=connection).require()
                notes.write(connection, "one")
            assert feed.cursors()[0].behind == 1
            rival.feed(feed.name).cursor("billing", take_over=True)
            with notes.engine.connect() as connection:
                notes.write(connection, "lost")
                with pytest.raises(LeaseLostError):
                    cursor.ack(second, using=connection).require()
                connection.rollback()
        assert notes.read() == ["one"]

    def test_a_cursor_is_moved(self, feed: Feed) -> None:
        feed.publish_many([("n", number) for number in range(4)])
        with feed.cursor("billing") as cursor:
            (*_, last) = cursor.read()
            cursor.ack(last)
            feed.seek("billing", "start")
            assert cursor.ack(last) is Verdict.LOST
        with feed.cursor("billing") as cursor:
            assert len(cursor.read()) == 4
        feed.seek("billing", last.position)
        assert feed.cursors()[0].position == last.position
        with pytest.raises(FeedError, match="has no cursor 'other'"):
            feed.seek("other", "end")
        assert feed.remove_cursor("billing")
        assert not feed.remove_cursor("billing")

    @pytest.mark.parametrize("event", ["purge", "restored", "delete"])
    def test_the_holder_of_a_cursor_does_not_read_other_messages_as_its_own(self, feed: Feed, rival: QueueDB, event: str) -> None:
        feed.publish_many([("n", number) for number in range(3)])
        with feed.cursor("billing") as cursor:
            (*_, last) = cursor.read()
            if event == "purge":
                rival.feeds.purge(feed.name)
            elif event == "delete":
                rival.feeds.delete(feed.name)
            else:
                rival.feeds.restored()
            rival.feed(feed.name).publish_many([("n", number) for number in range(3, 8)])
            feed.row(fresh=True)  # as a second later
            assert cursor.ack(last) is Verdict.LOST
            with pytest.raises(LeaseLostError):
                cursor.read()
        expected = {"purge": range(3, 8), "restored": range(8), "delete": range(3, 8)}[event]
        with feed.cursor("billing") as cursor:
            assert [message.payload for message in cursor.follow(idle=0)] == list(expected)

    def test_what_is_seen_of_it(self, feed: Feed, db: QueueDB, clock: SettableClock) -> None:
        feed.publish("n")
        began = clock.now()
        with feed.cursor("billing") as cursor:
            clock.advance(5)
            (message,) = cursor.read()
            cursor.ack(message)
            (info,) = feed.cursors()
            assert (info.feed, info.name, info.holder, info.behind) == (feed.name, "billing", "first", 0)
            assert (info.created_at, info.seen_at) == (began, began + timedelta(seconds=5))
        assert [one.name for one in db.feeds.cursors() if one.feed == feed.name] == ["billing"]

    def test_messages_without_a_number_count_as_unread(self, feed: Feed, db: QueueDB, notes: Notes) -> None:
        with feed.cursor("billing"), notes.engine.begin() as connection:
            feed.publish_many([("n", number) for number in range(3)], using=connection)
        for numbered in (False, True):
            if numbered:
                feed.rank()
            (one,) = feed.cursors()
            assert one in db.feeds.cursors()
            assert one.behind == 3

    def test_a_position_ahead_of_the_feed_is_not_acknowledged(self, feed: Feed, notes: Notes) -> None:
        feed.publish_many([("n", number) for number in range(3)])
        feed.rank()
        with feed.cursor("billing") as cursor:
            token, epoch, last = feed.end().split(".")
            forged = f"{token}.{epoch}.{int(last) + 1}"
            with pytest.raises(PositionError, match="is ahead of"):
                cursor.ack(forged)
            with notes.engine.begin() as connection, pytest.raises(PositionError, match="is ahead of"):
                cursor.ack(forged, using=connection)
            feed.publish("n", 3)
            feed.rank()
            assert cursor.ack(forged)
            with notes.engine.connect() as connection:
                position = feed.publish("n", "never committed", using=connection)
                if feed.row().ordering == "counter":  # otherwise it has no position yet
                    assert cursor.ack(position, using=connection)
                connection.rollback()
            with pytest.raises(PositionError, match="is ahead of"):
                cursor.ack(f"{token}.{epoch}.{int(last) + 2}")
        assert feed.cursors()[0].position == forged

    def test_a_message_of_another_feed_is_not_acknowledged(self, feed: Feed, db: QueueDB) -> None:
        other = db.feed(f"{feed.name}-other")
        other.publish("n")
        with feed.cursor("billing") as cursor, pytest.raises(ArgumentError, match="is a message of feed"):
            cursor.ack(other.read().messages[0])
        with feed.cursor("billing") as cursor, pytest.raises(PositionError, match="another feed"):
            cursor.ack(other.end())
