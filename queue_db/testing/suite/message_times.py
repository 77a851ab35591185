"""Delays and lifetimes of messages, their own or those of the feed, and retention where messages can be claimed."""

from __future__ import annotations

from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.feeds import Feed
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes
from queue_db.testing.suite.message_claims import claimed, numbers, publish

__all__ = ["TestHiddenMessages", "TestRetentionWithClaims", "TestTimesOfTheFeed"]


class TestHiddenMessages:
    """Delays: when a message can be claimed."""

    def test_a_delayed_message_is_claimed_after_its_delay(self, claimable: Feed, clock: SettableClock) -> None:
        publish(claimable, 1, delay=10)
        assert claimable.claim() is None
        assert claimable.pop() == []
        clock.advance(9)
        assert claimable.claim() is None
        clock.advance(1)
        assert numbers(claimed(claimable).messages) == [0]

    def test_one_behind_a_free_one_is_not_taken(self, claimable: Feed, clock: SettableClock) -> None:
        claimable.publish_many([("n", 0), ("n", 1, {"delay": 10}), ("n", 2), ("n", 3, {"delay": 20})])
        assert numbers(claimed(claimable).messages) == [0, 2]
        clock.advance(10)
        assert numbers(claimed(claimable).messages) == [1]
        clock.advance(10)
        assert numbers(claimed(claimable).messages) == [3]

    def test_one_in_front_of_free_ones_holds_nothing_up(self, claimable: Feed, clock: SettableClock) -> None:
        claimable.publish("n", 0, delay=10)
        publish(claimable, 2, 1)
        assert numbers(claimable.read().messages) == [0, 1, 2], "readers need not wait"
        assert numbers(claimable.read(hidden=False).messages) == [1, 2]
        assert numbers(claimable.pop(1)) == [1]
        clock.advance(10)
        assert numbers(claimed(claimable).messages) == [0, 2]

    def test_a_delay_and_a_lifetime_count_from_the_publish(self, claimable: Feed, notes: Notes, clock: SettableClock) -> None:
        claimable.publish("n", 0, delay=10, expires_in=15)
        claimable.publish("n", 1, expires_in=5)
        clock.advance(10)
        assert numbers(claimed(claimable, lease=1).messages) == [0]
        clock.advance(5)
        assert claimable.claim() is None

    def test_a_claim_does_not_shorten_a_lifetime(self, claimable: Feed, clock: SettableClock) -> None:
        publish(claimable, 2, expires_in=100)
        claimed(claimable, 1, lease=10, grace=5).extend(20, grace=5)
        clock.advance(99)
        assert numbers(claimable.read(hidden=False).messages) == [0, 1]
        clock.advance(1)
        assert claimable.claim() is None
        assert claimable.read().messages == []


class TestTimesOfTheFeed:
    """The delay and the lifetime of messages that are published without them."""

    def test_a_message_without_a_delay_has_the_one_of_the_feed(
        self, claimable: Feed, db: QueueDB, rival: QueueDB, clock: SettableClock
    ) -> None:
        db.feeds.set(claimable.name, delay=10)
        claimable.publish("n", 0)
        rival.feed(claimable.name).publish_many([("n", 1, {"delay": 5}), ("n", 2, {"delay": 0}), ("n", 3)])
        assert numbers(claimed(claimable).messages) == [2]
        clock.advance(5)
        assert numbers(claimed(claimable).messages) == [1]
        clock.advance(5)
        assert numbers(claimed(claimable).messages) == [0, 3]

    def test_a_message_without_a_lifetime_has_the_one_of_the_feed(self, claimable: Feed, db: QueueDB, clock: SettableClock) -> None:
        db.feeds.set(claimable.name, expires_in=10)
        claimable.publish_many([("n", 0), ("n", 1, {"expires_in": 20}), ("n", 2, {"expires_in": 0})])
        assert claimable.stats().total == 3
        clock.advance(10)
        assert numbers(claimable.read(hidden=False).messages) == [1, 2]
        clock.advance(10)
        assert numbers(claimable.pop(5)) == [2]

    def test_they_are_part_of_a_transaction(self, claimable: Feed, db: QueueDB, notes: Notes, clock: SettableClock) -> None:
        db.feeds.set(claimable.name, delay=10, expires_in=20)
        with notes.engine.begin() as connection:
            notes.write(connection, "published")
            claimable.publish("n", 0, using=connection)
        assert claimable.claim() is None
        clock.advance(10)
        assert numbers(claimed(claimable, lease=1).messages) == [0]
        clock.advance(10)
        assert claimable.claim() is None

    def test_routes_bring_messages_that_have_them(self, claimable: Feed, db: QueueDB, clock: SettableClock) -> None:
        db.feeds.set(claimable.name, delay=10)
        db.routes.set(claimable.name, feed=claimable.name)
        db.routes.subscribe(claimable.name, claimable.name)
        assert db.topic(claimable.name).publish("n", 0) == 1
        db.routes.unsubscribe(claimable.name, claimable.name)
        db.routes.remove(claimable.name)
        assert claimable.claim() is None
        clock.advance(10)
        assert numbers(claimed(claimable).messages) == [0]

    def test_settings_are_listed_changed_and_removed(self, claimable: Feed, db: QueueDB) -> None:
        def settings() -> tuple[Any, ...]:
            (info,) = [one for one in db.feeds.list() if one.name == claimable.name]
            return info.delay, info.expires_in, info.max_attempts

        assert settings() == (0, None, None)
        db.feeds.set(claimable.name, delay=1.5, expires_in=60, max_attempts=3)
        assert settings() == (1.5, 60, 3)
        db.feeds.set(claimable.name, delay=2)
        assert settings() == (2, 60, 3)
        db.feeds.set(claimable.name, delay=0, expires_in=0)
        assert settings() == (0, None, 3)
        publish(claimable, 1)
        assert numbers(claimed(claimable).messages) == [0]

    def test_what_would_expire_before_its_delay_is_over_is_refused(self, claimable: Feed, db: QueueDB) -> None:
        db.feeds.set(claimable.name, delay=10)
        for options in ({"expires_in": 10}, {"expires_in": 5}):
            with pytest.raises(ArgumentError, match=r"message 1: .* before its delay is over"):
                claimable.publish_many([("n", 0), ("n", 1, options)])
        for settings in ({"expires_in": 10}, {"delay": 6, "expires_in": 5}, {"delay": -1}, {"expires_in": -1}):
            with pytest.raises(ArgumentError):
                db.feeds.set(claimable.name, **settings)  # type: ignore[arg-type]
        name = f"{claimable.name}-other"
        with pytest.raises(ArgumentError, match="before their delay is over"):
            db.feeds.set(name, claims=True, delay=5, expires_in=5)
        assert claimable.read().messages == []
        assert [one.name for one in db.feeds.list() if one.name == name] == []
        claimable.publish("n", 0, expires_in=5, delay=0)
        assert numbers(claimed(claimable).messages) == [0]


class TestRetentionWithClaims:
    """Retention spares what is claimed or delayed, and deletes what has expired."""

    def test_retention_waits_for_delays(self, claimable: Feed, db: QueueDB, clock: SettableClock) -> None:
        db.feeds.set(claimable.name, keep_for=100)
        publish(claimable, 1)
        publish(claimable, 1, 1, delay=500)
        clock.advance(499)
        assert claimable.trim() == 1
        db.feeds.set(claimable.name, keep_rows=1)
        claimable.publish_many([("n", 2), ("n", 3)])
        # Numbered while the delay lasts: afterwards message 1 is one of three that are free, and one is kept.
        claimable.rank()
        assert claimable.trim() == 0
        clock.advance(1)
        assert numbers(claimed(claimable).messages) == [1, 2, 3]

    def test_retention_waits_for_claims_and_deletes_what_has_expired(
        self, claimable: Feed, db: QueueDB, clock: SettableClock
    ) -> None:
        publish(claimable, 4)
        publish(claimable, 2, 4, expires_in=10)
        first, claim = claimed(claimable, 1), claimed(claimable, 1)
        first.delete()
        db.feeds.set(claimable.name, keep_for=5)
        clock.advance(11)
        assert claimable.trim() == 2
        assert numbers(claimable.read(claimable.start()).messages) == [1, 2, 3]
        claim.delete()
        assert claimable.trim() == 2
        assert claimable.stats().total == 0
        assert claimable.claim() is None

    def test_gaps_do_not_stop_retention_by_number(self, claimable: Feed, db: QueueDB) -> None:
        db.feeds.set(claimable.name, keep_rows=3)
        for first in range(0, 12, 2):
            publish(claimable, 2, first)
            if first < 6:
                claimable.pop(2)
        assert numbers(claimable.read(on_trimmed="skip").messages) == [9, 10, 11]
        assert claimable.stats().total == 3
