"""Shared cursors: a span has one consumer and is fenced; each message is done once, or becomes a job once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, FeedError, LeaseLostError, NoSuchCursorError, TrimmedError
from queue_db.feeds import Feed, Span
from queue_db.model import Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestFailedMessages", "TestSharedCursors", "TestSpans"]


def numbers(span: Span | None) -> list[Any]:
    """The payloads of a span."""
    assert span is not None
    return [message.payload for message in span.messages]


def publish(feed: Feed, count: int, first: int = 0) -> None:
    """Publish numbers."""
    feed.publish_many([("n", number) for number in range(first, first + count)])


def behind(feed: Feed) -> int:
    """How many messages the only cursor of the feed is behind."""
    (info,) = feed.cursors()
    return info.behind


class TestSpans:
    """Claim, complete, extend, release."""

    def test_each_message_is_claimed_by_one_consumer(self, feed: Feed, rival: QueueDB) -> None:
        publish(feed, 25)
        mine, theirs = feed.shared("mailers"), rival.feed(feed.name).shared("mailers")
        claimed = [numbers(one.claim(10)) for one in (mine, theirs, mine)]
        assert claimed == [list(range(10)), list(range(10, 20)), list(range(20, 25))]
        assert theirs.claim(10) is None
        publish(feed, 1, 25)
        assert numbers(theirs.claim(10)) == [25]

    def test_a_completed_span_is_gone(self, feed: Feed, clock: SettableClock) -> None:
        publish(feed, 3)
        shared = feed.shared("mailers")
        span = shared.claim()
        assert span is not None
        assert span.complete() is Verdict.APPLIED
        assert span.complete() is Verdict.LOST
        clock.advance(1000)
        assert shared.claim() is None
        assert shared.spans() == []

    def test_an_expired_span_comes_first(self, feed: Feed, rival: QueueDB, clock: SettableClock) -> None:
        publish(feed, 6)
        shared, theirs = feed.shared("mailers"), rival.feed(feed.name).shared("mailers")
        first, second = shared.claim(2, lease=10), shared.claim(2, lease=30)
        assert first is not None
        clock.advance(9)
        assert numbers(theirs.claim(1)) == [4]
        clock.advance(2)
        taken = theirs.claim(1)
        assert taken is not None
        assert (numbers(taken), taken.id, taken.version, taken.attempts) == ([0, 1], first.id, first.version + 1, 2)
        assert numbers(theirs.claim(1)) == [5], "the other lease has not ended"
        assert second is not None
        assert second.complete()

    def test_a_late_consumer_changes_nothing(self, feed: Feed, rival: QueueDB, notes: Notes, clock: SettableClock) -> None:
        publish(feed, 3)
        late = feed.shared("mailers").claim(lease=10)
        assert late is not None
        clock.advance(11)
        current = rival.feed(feed.name).shared("mailers").claim(lease=10)
        assert current is not None
        (info,) = feed.spans("mailers")
        first = late.messages[0]
        assert late.complete() is Verdict.LOST
        assert late.complete(first) is Verdict.LOST
        assert late.fail(first, "late", retry_in=0) is Verdict.LOST
        assert late.extend(100) is Verdict.LOST
        assert late.release() is Verdict.LOST
        with notes.engine.connect() as connection:
            notes.write(connection, "late")
            with pytest.raises(LeaseLostError):
                late.complete(using=connection).require()
            connection.rollback()
        assert feed.spans("mailers") == [info]
        assert current.complete() is Verdict.APPLIED
        assert notes.read() == []

    def test_a_span_whose_lease_ended_is_completed_while_nobody_has_taken_it(self, feed: Feed, clock: SettableClock) -> None:
        publish(feed, 3)
        span = feed.shared("mailers").claim(lease=10)
        assert span is not None
        clock.advance(11)
        assert span.complete() is Verdict.APPLIED

    def test_an_extended_span_is_not_taken_over(self, feed: Feed, rival: QueueDB, clock: SettableClock) -> None:
        publish(feed, 3)
        span = feed.shared("mailers").claim(lease=10)
        assert span is not None
        clock.advance(9)
        assert span.extend(10) is Verdict.APPLIED
        clock.advance(9)
        assert rival.feed(feed.name).shared("mailers").claim() is None
        clock.advance(2)
        assert numbers(rival.feed(feed.name).shared("mailers").claim()) == [0, 1, 2]

    def test_a_released_span_is_free_at_once_and_was_no_attempt(self, feed: Feed, rival: QueueDB) -> None:
        publish(feed, 3)
        shared, theirs = feed.shared("mailers", max_attempts=1), rival.feed(feed.name).shared("mailers", max_attempts=1)
        for _ in range(3):
            span = shared.claim()
            assert span is not None
            assert span.release() is Verdict.APPLIED
            assert span.complete() is Verdict.LOST
            span = theirs.claim()
            assert span is not None
            assert (numbers(span), span.attempts) == ([0, 1, 2], 1)
            assert span.release()

    def test_messages_that_are_done_do_not_come_back_with_the_rest(self, feed: Feed, rival: QueueDB, clock: SettableClock) -> None:
        publish(feed, 5)
        span = feed.shared("mailers").claim(lease=10)
        assert span is not None
        zero, one, _, three, _ = span.messages
        assert span.complete([zero, three]) is Verdict.APPLIED
        assert span.complete(one) is Verdict.APPLIED
        assert span.complete([span.messages[4], one]) is Verdict.LOST, "it is done already"
        assert behind(feed) == 3
        clock.advance(11)
        taken = rival.feed(feed.name).shared("mailers").claim()
        assert taken is not None
        assert numbers(taken) == [2, 4]
        assert taken.complete(taken.messages) is Verdict.APPLIED
        assert feed.spans("mailers") == [], "all of them are done"
        assert behind(feed) == 0

    def test_a_completion_is_part_of_the_transaction(self, feed: Feed, notes: Notes) -> None:
        publish(feed, 2)
        span = feed.shared("mailers").claim()
        assert span is not None
        first, second = span.messages
        with notes.engine.connect() as connection:
            assert span.complete(first, using=connection)
            assert span.fail(second, "no", using=connection)
            notes.write(connection, "rolled back")
            connection.rollback()
        for message in span.messages:
            with notes.engine.begin() as connection:
                span.complete(message, using=connection).require()
                notes.write(connection, f"done {message.payload}")
        with notes.engine.connect() as connection:
            notes.write(connection, "again")
            with pytest.raises(LeaseLostError):
                span.complete(first, using=connection).require()
            connection.rollback()
        assert notes.read() == ["done 0", "done 1"]
        assert feed.spans("mailers") == []

    def test_what_is_refused(self, feed: Feed, db: QueueDB) -> None:
        publish(feed, 1)
        shared = feed.shared("mailers")
        for bad in (0, 10_001, 1.5):
            with pytest.raises(ArgumentError):
                shared.claim(bad)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError):
            shared.claim(lease=0)
        span = shared.claim()
        assert span is not None
        with pytest.raises(ArgumentError, match="is not a message"):
            span.complete([1])  # type: ignore[list-item]
        other = db.feed(f"{feed.name}-other")
        other.publish("n")
        with pytest.raises(ArgumentError, match="is a message of feed"):
            span.complete(other.read().messages)
        publish(feed, 1, 1)
        assert span.complete(feed.read().messages[1]) is Verdict.LOST, "a message of the feed, and of another span"


class TestSharedCursors:
    """What is seen of a shared cursor, what retention keeps for it, and how it is moved."""

    def test_its_position_is_before_the_lowest_open_span(self, feed: Feed, clock: SettableClock) -> None:
        publish(feed, 10)
        shared = feed.shared("mailers")
        first, second, third = (shared.claim(3) for _ in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        assert (behind(feed), feed.cursors()[0].spans) == (10, 3)
        assert second.complete()
        assert behind(feed) == 10
        assert first.complete()
        assert behind(feed) == 4
        assert third.complete()
        (info,) = feed.cursors()
        assert (info.behind, info.spans, info.shared, info.holder) == (1, 0, True, None)
        assert info.seen_at == clock.now()

    def test_only_a_shared_cursor_has_spans(self, feed: Feed) -> None:
        feed.shared("mailers")
        feed.cursor("billing").close()
        assert feed.spans("mailers") == []
        with pytest.raises(FeedError, match=r"cursor 'billing' of feed .* has one holder at a time, and no spans"):
            feed.spans("billing")
        with pytest.raises(FeedError, match="has no cursor 'typo'"):
            feed.spans("typo")

    def test_a_lost_span_is_not_called_a_job(self, feed: Feed) -> None:
        publish(feed, 1)
        span = feed.shared("mailers").claim()
        assert span is not None
        assert span.complete()
        with pytest.raises(LeaseLostError, match="another process has taken over, or what was leased is gone"):
            span.complete().require()

    def test_open_spans_are_listed(self, feed: Feed, clock: SettableClock) -> None:
        publish(feed, 5)
        shared = feed.shared("mailers")
        first, second = shared.claim(3, lease=20), shared.claim(3, lease=30)
        assert first is not None
        assert second is not None
        assert second.release()
        one, two = shared.spans()
        assert (one.feed, one.cursor, one.id, one.low, one.high) == (feed.name, "mailers", first.id, 1, 3)
        assert (one.worker, one.attempts, one.expires_at) == ("first", 1, clock.now() + timedelta(seconds=20))
        assert (two.low, two.high, two.worker, two.expires_at) == (4, 5, None, None)

    def test_retention_waits_for_the_slowest_span(self, feed: Feed, db: QueueDB) -> None:
        db.feeds.set(feed.name, keep_rows=2, keep_unread=8)
        shared = feed.shared("mailers")
        publish(feed, 6)
        first, second = shared.claim(3), shared.claim(3)
        assert first is not None
        assert second is not None
        assert second.complete()
        feed.trim()
        assert [message.payload for message in feed.read().messages] == [0, 1, 2, 3, 4, 5]
        assert first.complete()
        feed.trim()
        assert [message.payload for message in feed.read().messages] == [4, 5]

    def test_what_retention_has_trimmed_is_reported(self, feed: Feed, db: QueueDB, clock: SettableClock) -> None:
        db.feeds.set(feed.name, keep_rows=2, keep_unread=0)
        shared = feed.shared("mailers")
        publish(feed, 2)
        assert numbers(shared.claim(1, lease=10)) == [0]
        publish(feed, 5, 2)
        feed.rank()
        with pytest.raises(TrimmedError, match="were trimmed by its retention"):
            shared.claim()
        clock.advance(11)
        with pytest.raises(TrimmedError, match="were trimmed by its retention"):
            shared.claim()
        skipping = feed.shared("mailers", on_trimmed="skip")
        assert numbers(skipping.claim()) == [5, 6]
        assert skipping.skipped == 5
        assert skipping.claim() is None

    def test_a_claim_skips_to_the_end_where_all_were_trimmed(self, feed: Feed, db: QueueDB, clock: SettableClock) -> None:
        db.feeds.set(feed.name, keep_for=10, keep_unread=0)
        shared = feed.shared("mailers", on_trimmed="skip")
        publish(feed, 5)
        feed.rank()
        clock.advance(11)
        assert feed.trim() == 5
        assert shared.claim() is None
        publish(feed, 1, 5)
        assert numbers(shared.claim()) == [5]
        assert shared.skipped == 5

    def test_a_cursor_is_for_one_holder_or_shared(self, feed: Feed) -> None:
        publish(feed, 1)
        feed.shared("mailers")
        with pytest.raises(FeedError, match="is shared"):
            feed.cursor("mailers", take_over=True)
        with feed.cursor("billing"), pytest.raises(FeedError, match="has one holder at a time"):
            feed.shared("billing")
        assert [(info.name, info.shared) for info in feed.cursors()] == [("billing", False), ("mailers", True)]

    def test_a_new_one_begins_where_it_is_told_and_stays(self, feed: Feed) -> None:
        publish(feed, 2)
        late = feed.shared("late", start="end")
        publish(feed, 1, 2)
        assert numbers(late.claim()) == [2]
        assert feed.shared("late", start="start").claim() is None

    @pytest.mark.parametrize("event", ["purge", "restored", "seek", "remove", "delete"])
    def test_a_consumer_loses_its_spans_when_the_cursor_is_moved(self, feed: Feed, rival: QueueDB, event: str) -> None:
        publish(feed, 3)
        shared = feed.shared("mailers")
        span = shared.claim(2)
        assert span is not None
        theirs = rival.feed(feed.name)
        match event:
            case "purge":
                rival.feeds.purge(feed.name)
            case "restored":
                rival.feeds.restored()
            case "seek":
                theirs.seek("mailers", "start")
            case "remove":
                theirs.remove_cursor("mailers")
            case "delete":
                rival.feeds.delete(feed.name)
        theirs.publish("n", 3)
        assert span.complete() is Verdict.LOST
        assert span.fail(span.messages[0], "late", retry_in=0) is Verdict.LOST
        if event in {"remove", "delete"}:
            with pytest.raises(NoSuchCursorError, match="no shared cursor"):
                shared.claim()
            shared = theirs.shared("mailers")
        found = []
        while (next_one := shared.claim()) is not None:
            found += numbers(next_one)
            assert next_one.complete()
        assert found == {"purge": [3], "delete": [3]}.get(event, [0, 1, 2, 3])


class TestFailedMessages:
    """A message that could not be done becomes a job, once."""

    def test_it_becomes_a_job_with_what_it_had(self, feed: Feed, queue: Queue, clock: SettableClock) -> None:
        feed.publish("mail", {"to": "a"}, key="user-1", headers={"trace": "00-1"})
        publish(feed, 2)
        span = feed.shared("mailers", queue=queue.name).claim()
        assert span is not None
        (message, *_) = span.messages
        assert span.fail(message, ValueError("no such address"), retry_in=20) is Verdict.APPLIED
        assert span.fail(message, "again") is Verdict.LOST
        assert span.complete(message) is Verdict.LOST
        assert queue.claim() == []
        clock.advance(20)
        (job,) = queue.claim()
        assert (job.kind, job.payload, job.headers, job.group) == ("mail", {"to": "a"}, {"trace": "00-1"}, "user-1")
        assert (job.attempts, job.last_error) == (2, "ValueError: no such address")
        (failure,) = queue.db.errors(job.id)
        assert (failure.attempt, failure.error_class, failure.message) == (1, "ValueError", "no such address")
        assert job.complete()
        assert span.complete() is Verdict.APPLIED
        assert behind(feed) == 0

    def test_without_a_delay_it_waits_by_the_backoff(self, feed: Feed, queue: Queue, clock: SettableClock) -> None:
        publish(feed, 2)
        span = feed.shared("mailers", queue=queue.name).claim()
        assert span is not None
        assert span.fail(span.messages[0], "no")
        assert span.fail(span.messages[1], "no", retry_in=0)
        assert [job.payload for job in queue.claim(2)] == [1]
        clock.advance(10)
        assert [job.payload for job in queue.claim(2)] == [0]

    def test_messages_of_one_key_stay_in_order(self, feed: Feed, queue: Queue) -> None:
        feed.publish_many([("n", number, {"key": "order-7"}) for number in range(3)])
        span = feed.shared("mailers", queue=queue.name).claim()
        assert span is not None
        for message in span.messages:
            assert span.fail(message, "no", retry_in=0)
        for number in range(3):
            (job,) = queue.claim(3)
            assert job.payload == number
            assert job.complete()

    def test_a_span_that_no_consumer_completes_becomes_single_jobs(
        self, feed: Feed, queue: Queue, rival: QueueDB, clock: SettableClock
    ) -> None:
        publish(feed, 6)
        shared = feed.shared("mailers", queue=queue.name, max_attempts=2)
        theirs = rival.feed(feed.name).shared("mailers", queue=queue.name, max_attempts=2)
        span = shared.claim(5, lease=10)
        assert span is not None
        assert span.complete(span.messages[1])
        clock.advance(11)
        span = theirs.claim(5, lease=10)
        assert span is not None
        assert (numbers(span), span.attempts) == ([0, 2, 3, 4], 2)
        assert span.fail(span.messages[1], "no", retry_in=0)
        clock.advance(11)
        assert numbers(shared.claim(5)) == [5]
        assert span.complete() is Verdict.LOST
        jobs = queue.claim(10)
        assert sorted(job.payload for job in jobs) == [0, 2, 3, 4]
        (single, *_) = [job for job in jobs if job.payload == 0]
        assert single.attempts == 1
        assert single.last_error is not None
        assert "claimed 2 times" in single.last_error

    def test_a_transaction_that_fails_a_message_of_a_lost_span_goes_on(
        self, feed: Feed, queue: Queue, rival: QueueDB, notes: Notes, clock: SettableClock
    ) -> None:
        publish(feed, 1)
        span = feed.shared("mailers", queue=queue.name).claim(lease=10)
        clock.advance(11)
        assert span is not None
        assert rival.feed(feed.name).shared("mailers", queue=queue.name).claim() is not None
        with notes.engine.begin() as connection:
            assert span.fail(span.messages[0], "no", retry_in=0, using=connection) is Verdict.LOST
            notes.write(connection, "goes on")
        assert notes.read() == ["goes on"]
        assert queue.claim() == []
