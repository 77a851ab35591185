"""Claims on messages: they hide messages, end, and are refused when they have ended. The acceptance list of Zaqar's queues."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import (
    ArgumentError,
    ClaimExpiredError,
    FeedError,
    MessageClaimedError,
    MessageNotClaimedError,
    PositionError,
    UnknownClaimError,
)
from queue_db.feeds import Feed, Message, MessageClaim
from queue_db.feeds.settings import FeedOrdering
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestClaimsThatEnd", "TestMessageClaims", "claimable"]


@pytest.fixture
def claimable(db: QueueDB, name: str, ordering: FeedOrdering) -> Iterator[Feed]:
    """An empty feed with claims."""
    db.feeds.set(name, ordering=ordering, claims=True)
    yield db.feed(name)
    for info in db.feeds.list():
        if info.name.startswith(name):
            db.feeds.delete(info.name)
    db.dead.purge(name, keep=0)


def publish(feed: Feed, count: int, first: int = 0, **options: Any) -> list[Message]:
    """Publish numbers; return the messages."""
    end = feed.end()
    feed.publish_many([("n", number, options) for number in range(first, first + count)])
    return feed.read(end, count).messages


def numbers(messages: list[Message]) -> list[Any]:
    """The payloads of messages."""
    return [message.payload for message in messages]


def claimed(feed: Feed, limit: int = 10, *, lease: float = 100.0, grace: float = 0.0) -> MessageClaim:
    """Claim messages; there are some."""
    claim = feed.claim(limit, lease=lease, grace=grace)
    assert claim is not None
    return claim


class TestMessageClaims:
    """Claim, find, extend, release, delete under the claim, pop; counts and bulk reads."""

    def test_the_life_of_a_claim(self, claimable: Feed, rival: QueueDB, clock: SettableClock) -> None:
        publish(claimable, 5)
        theirs = rival.feed(claimable.name)
        claim = claimed(claimable, 3)
        assert numbers(claim.messages) == [0, 1, 2]
        assert (claim.attempts, claim.expires_at) == ([1, 1, 1], clock.now() + timedelta(seconds=100))
        other = claimed(theirs)
        assert numbers(other.messages) == [3, 4]
        assert {one.id: one.messages for one in theirs.claims()} == {claim.id: 3, other.id: 2}
        assert theirs.claim() is None
        assert claim.delete(claim.messages[1]) == 1
        found = theirs.find_claim(claim.id)
        assert (numbers(found.messages), found.attempts, found.expires_at) == ([0, 2], [1, 1], claim.expires_at)
        assert found.release() == 2
        again = claimed(theirs)
        assert (numbers(again.messages), again.attempts) == ([0, 2], [1, 1]), "a claim that was released does not count"
        assert again.delete() == 2
        assert [(one.feed, one.id, one.messages, one.expires_at) for one in claimable.claims()] == [
            (claimable.name, other.id, 2, other.expires_at)
        ]
        assert other.delete() == 2
        assert claimable.claims() == []
        assert claimable.read().messages == []

    def test_messages_stay_until_they_are_deleted_for_readers(self, claimable: Feed) -> None:
        publish(claimable, 3)
        claim = claimed(claimable, 1)
        assert numbers(claimable.read().messages) == [0, 1, 2]
        claim.delete()
        page = claimable.read(claimable.start())
        assert (numbers(page.messages), page.behind) == ([1, 2], 0)

    def test_a_deletion_is_part_of_the_transaction(self, claimable: Feed, notes: Notes, clock: SettableClock) -> None:
        publish(claimable, 2)
        claim = claimed(claimable)
        with notes.engine.connect() as connection:
            assert claim.delete(using=connection) == 2
            notes.write(connection, "rolled back")
            connection.rollback()
        for message in claim.messages:
            with notes.engine.begin() as connection:
                claim.delete(message, using=connection)
                notes.write(connection, f"done {message.payload}")
        with notes.engine.connect() as connection:
            notes.write(connection, "again")
            with pytest.raises(UnknownClaimError):
                claim.delete(using=connection)
            connection.rollback()
        assert notes.read() == ["done 0", "done 1"]

    def test_a_claim_deletes_what_is_left_of_it(self, claimable: Feed, notes: Notes, clock: SettableClock) -> None:
        publish(claimable, 4)
        claim = claimed(claimable, 3)
        claim.delete(claim.messages[0])
        with notes.engine.connect() as connection:
            assert claim.delete(using=connection) == 2
            connection.rollback()
        assert claim.delete() == 2
        assert numbers(claimable.read().messages) == [3]
        with pytest.raises(UnknownClaimError):
            claim.delete()

    def test_a_message_that_was_claimed_too_often_becomes_a_dead_job(
        self, claimable: Feed, db: QueueDB, clock: SettableClock
    ) -> None:
        db.feeds.set(claimable.name, max_attempts=2)
        claimable.publish("n", "poison", headers={"trace": "1"})
        publish(claimable, 1)
        for attempt in (1, 2):
            claim = claimed(claimable, lease=10)
            assert claim.attempts == [attempt] * len(claim.messages)
            claim.delete(claim.messages[1:])
            clock.advance(11)
        publish(claimable, 1, 7)
        assert numbers(claimed(claimable, 1).messages) == [7], "the claim goes on behind the dead one"
        (dead,) = db.dead.list(claimable.name)
        assert (dead.kind, dead.payload, dead.headers) == ("n", "poison", {"trace": "1"})
        assert (dead.attempts, dead.max_attempts) == (2, 2)
        assert "was claimed 2 times" in str(dead.last_error)
        assert numbers(claimable.read().messages) == [7]

    def test_pop_claims_and_deletes_in_one(self, claimable: Feed, rival: QueueDB) -> None:
        publish(claimable, 4)
        held = claimed(claimable, 1)
        assert numbers(claimable.pop()) == [1]
        assert numbers(rival.feed(claimable.name).pop(5)) == [2, 3]
        assert claimable.pop(5) == []
        assert numbers(claimable.read().messages) == [0]
        held.release()
        assert numbers(claimable.pop()) == [0]

    def test_a_pop_is_part_of_the_transaction(self, claimable: Feed, rival: QueueDB, notes: Notes) -> None:
        publish(claimable, 3)
        with notes.engine.connect() as connection:
            notes.write(connection, "rolled back")
            assert numbers(claimable.pop(2, using=connection)) == [0, 1]
            connection.rollback()
        with notes.engine.begin() as connection:
            for message in claimable.pop(2, using=connection):
                notes.write(connection, f"done {message.payload}")
            assert numbers(claimable.pop(2, using=connection)) == [2]
            assert claimable.pop(using=connection) == []
        assert notes.read() == ["done 0", "done 1"]
        assert rival.feed(claimable.name).stats().total == 0

    def test_a_pop_in_a_transaction_sees_what_waits_for_a_number(self, claimable: Feed, rival: QueueDB, notes: Notes) -> None:
        claimable.end()
        rival.feed(claimable.name).publish_many([("n", 0, {"expires_in": 0}), ("n", 1)])
        with notes.engine.begin() as connection:
            notes.write(connection, "done")
            assert numbers(claimable.pop(5, using=connection)) == [0, 1]
        assert claimable.pop() == []

    def test_bulk_get_and_delete(self, claimable: Feed) -> None:
        zero, one, two, three = publish(claimable, 4)
        wanted: list[Message | str] = [two.position, zero, f"{one.position}9"]
        assert numbers(claimable.get(wanted)) == [0, 2], "what is not there is passed over"
        assert numbers(claimable.get(three.position)) == [3]
        assert claimable.delete([zero, two.position]) == 2
        assert claimable.delete([zero, one]) == 1
        assert numbers(claimable.get([zero, one, two, three])) == [3]

    def test_the_counts(self, claimable: Feed, clock: SettableClock) -> None:
        empty = claimable.stats()
        assert (empty.total, empty.free, empty.claimed, empty.delayed, empty.oldest, empty.newest) == (0, 0, 0, 0, None, None)
        publish(claimable, 4)
        publish(claimable, 2, 4, delay=50)
        publish(claimable, 1, 6, expires_in=10)
        claimed(claimable, 3, lease=20)
        stats = claimable.stats()
        assert (stats.total, stats.free, stats.claimed, stats.delayed) == (7, 2, 3, 2)
        clock.advance(21)
        stats = claimable.stats()
        assert (stats.total, stats.free, stats.claimed, stats.delayed) == (6, 4, 0, 2)
        assert stats.oldest is not None
        assert stats.newest is not None
        assert (stats.oldest.payload, stats.newest.payload) == (0, 5)

    def test_pages_without_what_is_hidden_or_the_readers_own(self, claimable: Feed) -> None:
        for number in range(12):
            claimable.publish("n", number, client="me" if number % 2 else "you", delay=9 if number == 4 else 0)
        claimed(claimable, 3)
        seen: list[int] = []
        page = claimable.read(limit=2, client="me", echo=False, hidden=False)
        while page.messages:
            seen += numbers(page.messages)
            page = claimable.read(page.position, limit=2, client="me", echo=False, hidden=False)
        assert seen == [6, 8, 10]
        assert page.behind == 0
        assert numbers(claimable.read(hidden=False).messages) == [3, 5, 6, 7, 8, 9, 10, 11]
        assert numbers(claimable.read().messages) == list(range(12))

    def test_bad_ids_and_arguments(self, claimable: Feed, db: QueueDB) -> None:
        (message,) = publish(claimable, 1)
        other = db.feed(f"{claimable.name}-other")
        other.publish("n")
        (foreign,) = other.read().messages
        for bad in ("", "x", "1.2", 7, f"{message.position}.1.1"):
            with pytest.raises(ArgumentError):
                claimable.get([bad])  # type: ignore[list-item]
            with pytest.raises(ArgumentError):
                claimable.delete([bad])  # type: ignore[list-item]
        for call in (claimable.get, claimable.delete):
            with pytest.raises(PositionError, match="another feed"):
                call(foreign)
            with pytest.raises(ArgumentError, match="10,001 messages: at most 10,000"):
                call([message] * 10_001)
        for limit in (0, 1001, 1.5):
            with pytest.raises(ArgumentError):
                claimable.claim(limit)  # type: ignore[arg-type]
            with pytest.raises(ArgumentError):
                claimable.pop(limit)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError):
            claimable.claim(lease=0)
        for bad in ("", "x" * 37, 7):
            with pytest.raises(ArgumentError):
                claimable.find_claim(bad)  # type: ignore[arg-type]
        for options in ({"delay": -1}, {"expires_in": -1}, {"ttl": 1}, {"delay": 5, "expires_in": 5}):
            with pytest.raises(ArgumentError):
                claimable.publish_many([("n", 1, options)])
        assert numbers(claimed(claimable).messages) == [0]

    def test_a_number_that_no_message_can_have_is_no_position(self, claimable: Feed) -> None:
        token, epoch, _ = claimable.start().split(".")
        highest = (1 << 63) - 1
        for bad in (f"{token}.{epoch}.{highest + 1}", f"{token}.{highest + 1}.1", f"{token}.{epoch}.{'9' * 19}"):
            for call in (claimable.read, claimable.get, claimable.delete):
                with pytest.raises(ArgumentError, match="must be a position"):
                    call(bad)
        ahead = f"{token}.{epoch}.{highest}"
        with pytest.raises(PositionError, match="ahead"):
            claimable.read(ahead)
        assert claimable.get(ahead) == []

    def test_a_claim_does_not_create_the_feed(self, claimable: Feed, db: QueueDB) -> None:
        missing = db.feed(f"{claimable.name}-missing")
        position = claimable.start()
        for call in (missing.claim, missing.pop, missing.stats, lambda: missing.find_claim("c"), lambda: missing.delete(position)):
            with pytest.raises(FeedError, match=f"there is no feed {missing.name!r}: make it with claims=True"):
                call()
        for settings in ({"max_attempts": 3}, {"delay": 1}, {"expires_in": 1}):
            with pytest.raises(FeedError, match=f"there is no feed {missing.name!r}: {next(iter(settings))} need"):
                db.feeds.set(missing.name, **settings)  # type: ignore[arg-type]
        db.feeds.set(missing.name, claims=True)
        publish(missing, 1)
        assert claimed(missing).delete() == 1

    def test_only_a_feed_made_with_claims_has_them(self, claimable: Feed, db: QueueDB) -> None:
        plain = db.feed(f"{claimable.name}-plain")
        plain.publish("n")
        for call in (plain.claim, plain.claims, plain.pop, plain.stats):
            with pytest.raises(FeedError, match="without claims"):
                call()
        with pytest.raises(FeedError, match="without claims"):
            plain.publish("n", delay=1)
        for settings in ({"claims": True}, {"max_attempts": 3}, {"delay": 1}, {"expires_in": 1}):
            with pytest.raises(FeedError, match="without claims"):
                db.feeds.set(plain.name, **settings)
        with pytest.raises(FeedError, match="with claims"):
            db.feeds.set(claimable.name, claims=False)
        with pytest.raises(FeedError, match="with claims"):
            claimable.shared("mailers")
        assert len(plain.read().messages) == 1

    def test_a_purge_takes_claimed_messages_away(self, claimable: Feed, db: QueueDB) -> None:
        publish(claimable, 3)
        claim = claimed(claimable, 2)
        assert db.feeds.purge(claimable.name) == 3
        for late in (claim.delete, lambda: claim.extend(10), lambda: claimable.find_claim(claim.id)):
            with pytest.raises(UnknownClaimError):
                late()
        assert claimable.claim() is None
        publish(claimable, 1, 5)
        again = claimed(claimable)
        assert numbers(again.messages) == [5]
        assert again.delete() == 1


class TestClaimsThatEnd:
    """A claim that has ended changes nothing; each refusal has its error."""

    def test_an_extended_claim_goes_on(self, claimable: Feed, rival: QueueDB, clock: SettableClock) -> None:
        publish(claimable, 2)
        claim = claimed(claimable, lease=10)
        clock.advance(9)
        claim.extend(10)
        assert claim.expires_at == clock.now() + timedelta(seconds=10)
        clock.advance(9)
        assert rival.feed(claimable.name).claim() is None
        assert claim.delete() == 2

    def test_a_claim_that_is_not_extended_ends(self, claimable: Feed, rival: QueueDB, clock: SettableClock) -> None:
        publish(claimable, 2)
        claim = claimed(claimable, lease=10)
        clock.advance(10)
        assert claimable.claims() == []
        again = claimed(rival.feed(claimable.name), lease=10)
        assert (numbers(again.messages), again.attempts) == ([0, 1], [2, 2])
        for late in (claim.delete, claim.release, lambda: claim.extend(10), lambda: claimable.find_claim(claim.id)):
            with pytest.raises(UnknownClaimError):
                late()
        assert again.delete() == 2

    def test_nothing_is_deleted_under_a_claim_that_has_ended(self, claimable: Feed, notes: Notes, clock: SettableClock) -> None:
        publish(claimable, 2)
        claim = claimed(claimable, lease=10)
        clock.advance(10)
        for late in (claim.delete, claim.release, lambda: claim.extend(10), lambda: claimable.find_claim(claim.id)):
            with pytest.raises(ClaimExpiredError):
                late()
        with notes.engine.connect() as connection:
            notes.write(connection, "late")
            with pytest.raises(ClaimExpiredError):
                claim.delete(claim.messages[0], using=connection)
            connection.rollback()
        assert notes.read() == []
        assert numbers(claimed(claimable).messages) == [0, 1]

    def test_each_refusal_has_its_error(self, claimable: Feed, rival: QueueDB, clock: SettableClock) -> None:
        messages = publish(claimable, 4)
        claim, other = claimed(claimable, 1, lease=10), claimed(rival.feed(claimable.name), 1)
        with pytest.raises(MessageClaimedError, match="is claimed"):
            claimable.delete(messages[0])
        with pytest.raises(MessageClaimedError, match="is claimed"):
            claimable.delete([messages[3], messages[1]])
        for not_its in (messages[1], messages[2], [claim.messages[0], messages[1]]):
            with pytest.raises(MessageNotClaimedError, match="does not have message"):
                claimable.delete(not_its, claim=claim.id)
        with pytest.raises(UnknownClaimError):
            claimable.delete(messages[0], claim="0" * 32)
        assert claimable.delete(messages[3]) == 1
        with pytest.raises(MessageNotClaimedError, match="does not have message 4"):
            claimable.delete(messages[3], claim=other.id)
        clock.advance(10)
        with pytest.raises(ClaimExpiredError):
            claimable.delete(messages[0], claim=claim.id)
        assert claimable.delete(messages[0]) == 1, "nobody has claimed it any more"
        with pytest.raises(UnknownClaimError):
            claimable.delete(messages[0], claim=claim.id)
        assert numbers(claimable.read().messages) == [1, 2]

    def test_one_that_has_ended_in_front_of_a_live_one_takes_nothing_from_it(
        self, claimable: Feed, rival: QueueDB, clock: SettableClock
    ) -> None:
        publish(claimable, 6)
        theirs = rival.feed(claimable.name)
        first, second = claimed(claimable, 2, lease=10), claimed(claimable, 2, lease=100)
        clock.advance(11)
        again = claimed(theirs)
        assert numbers(again.messages) == [0, 1, 4, 5]
        assert numbers(theirs.find_claim(second.id).messages) == [2, 3]
        assert first.messages[0].position == again.messages[0].position
        assert second.delete() == 2

    def test_a_message_lives_on_after_its_claim(self, claimable: Feed, clock: SettableClock) -> None:
        publish(claimable, 2, expires_in=10)
        claim = claimed(claimable, 1, lease=20, grace=5)
        clock.advance(20)
        with pytest.raises(ClaimExpiredError):
            claim.delete()
        again = claimed(claimable, lease=2)
        assert numbers(again.messages) == [0], "the other one has expired"
        again.extend(10, grace=5)
        clock.advance(14)
        assert numbers(claimable.read(hidden=False).messages) == [0]
        clock.advance(1)
        assert claimable.claim() is None
        assert claimable.read().messages == []
