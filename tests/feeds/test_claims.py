"""Claimers of a feed race: no message has two claims, and a claim that has ended changes nothing, whoever is late."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Row, Select

from queue_db import QueueDB
from queue_db.errors import ClaimError
from queue_db.feeds import Feed, MessageClaim
from queue_db.feeds.store import claim_rows, claims
from queue_db.feeds.store.claims import Claimed, Terms
from queue_db.feeds.store.message_jobs import MessageJob
from queue_db.model import Capability
from queue_db.notifications.deaths import Death
from queue_db.store.base import Transaction
from queue_db.testing import SettableClock
from tests.feeds.conftest import ORDERINGS
from tests.patience import HOURS

OpenDB = Callable[..., QueueDB]
FREE = claims._free


def publish(db: QueueDB, name: str, count: int, ordering: str = "counter") -> Feed:
    """A feed with claims and numbers in it."""
    db.feeds.set(name, ordering=ordering, claims=True)
    feed = db.feed(name)
    feed.publish_many([("n", number) for number in range(count)])
    feed.rank()
    return feed


def never(row: Any, attempts: int) -> MessageJob:
    raise AssertionError(row, attempts)


def at_the_same_time(open_db: OpenDB, name: str, meet: bool) -> list[list[int]]:
    """Two transactions claim four of six messages each; ``meet``: neither commits before both have claimed."""
    barrier = threading.Barrier(2)
    dbs = [open_db(), open_db()]

    def claim(number: int) -> list[int]:
        db = dbs[number]
        row = db.feed(name).row()
        barrier.wait()
        with db.database.begin() as connection:
            claimed: Claimed = claims.claim(Transaction(connection, db.store), row, Terms(f"{number}" * 32, 4, 10**9, 0), never)
            if meet:
                barrier.wait()
        return [one.seq for one in claimed.found]

    with ThreadPoolExecutor(2) as pool:
        return [one.result() for one in [pool.submit(claim, number) for number in range(2)]]


def test_two_claimers_never_have_the_same_message(open_db: OpenDB, name: str) -> None:
    publish(open_db(), name, 6)
    together = Capability.SKIP_LOCKED in open_db().store.capabilities
    one, other = at_the_same_time(open_db, name, together)
    assert sorted(one + other) == [1, 2, 3, 4, 5, 6]
    # With SKIP LOCKED each may step over what the other has just locked, row by row: 3 and 3.
    assert together or {len(one), len(other)} == {4, 2}


def test_a_claim_without_a_lock_is_detected(
    open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch, differs: Callable[[str], None]
) -> None:
    """The negative control of the test above."""
    differs("one writer")
    publish(open_db(), name, 6)
    barrier = threading.Barrier(2)

    def without_lock(tx: Any, feed: int, limit: int) -> Select[Any]:
        query = FREE(tx, feed, limit)
        query._for_update_arg = None
        return query

    lease = claims._lease

    def after_both_have_looked(*args: Any) -> None:
        barrier.wait()
        lease(*args)

    monkeypatch.setattr(claims, "_free", without_lock)
    monkeypatch.setattr(claims, "_lease", after_both_have_looked)
    one, other = at_the_same_time(open_db, name, meet=False)
    assert set(one) & set(other), "the check does not notice a message with two claims"


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_many_claimers_delete_each_message_once(open_db: OpenDB, name: str, ordering: str) -> None:
    feed = publish(open_db(), name, 120, ordering)
    copy = f"{name}-copy"
    open_db().feeds.set(copy, ordering="counter")
    ready = threading.Barrier(4)

    def work(who: int) -> None:
        db = open_db()
        mine, into = db.feed(name), db.feed(copy)
        ready.wait()
        while mine.stats().total:
            if who == 0 and (popped := mine.pop(2)):
                into.publish_many([("n", one.payload) for one in popped])
                continue
            claim = mine.claim(1 + who * 3, lease=HOURS)
            if claim is None:
                continue
            for message in claim.messages[:-1] or claim.messages:
                with db.database.begin() as connection:
                    claim.delete(message, using=connection)
                    into.publish("n", message.payload, using=connection)
            if len(claim.messages) > 1:
                claim.release()

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(work, who) for who in range(4)]:
            one.result()
    done = [message.payload for message in open_db().feed(copy).read(limit=1000).messages]
    assert sorted(done) == list(range(120))
    assert feed.read(on_trimmed="skip").messages == []


def late_and_current(open_db: OpenDB, name: str) -> tuple[SettableClock, MessageClaim, MessageClaim]:
    """A claim that has ended, and the one that has its messages."""
    clock = SettableClock()
    publish(open_db(clock=clock), name, 2)
    late = open_db(clock=clock).feed(name).claim(lease=10)
    clock.advance(11)
    current = open_db(clock=clock).feed(name).claim(lease=10)
    assert late is not None
    assert current is not None
    return clock, late, current


def effects(open_db: OpenDB, name: str) -> list[str]:
    """Who deletes two messages: the late one tries before the current one."""
    _, late, current = late_and_current(open_db, name)
    done = []
    for who, claim in (("late", late), ("current", current)):
        try:
            claim.delete(claim.messages)
        except ClaimError:
            continue
        done.append(who)
    return done


def test_a_late_deletion_is_refused(open_db: OpenDB, name: str) -> None:
    assert effects(open_db, name) == ["current"]


def test_a_claim_without_the_fence_is_detected(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above."""

    def somebodys(row: Row[Any], token: str) -> bool:
        return row.token is not None

    monkeypatch.setattr(claims, "_is_held", somebodys)
    assert effects(open_db, name) == ["late"], "the check does not notice that a late one deletes"


def test_a_deletion_waits_for_the_claim_that_takes_over_and_is_refused(open_db: OpenDB, name: str) -> None:
    clock, _, claim = late_and_current(open_db, name)
    clock.advance(11)
    rival = open_db(clock=clock)
    row = rival.feed(name).row()
    errors: list[ClaimError] = []

    def delete() -> None:
        try:
            claim.delete()
        except ClaimError as error:
            errors.append(error)

    thread = threading.Thread(target=delete)
    with rival.database.begin() as connection:
        taken = claims.claim(Transaction(connection, rival.store), row, Terms("r" * 32, 10, 10**9, 0), never)
        assert len(taken.found) == 2
        thread.start()
    thread.join()
    assert len(errors) == 1
    assert rival.feed(name).delete(claim.messages, claim="r" * 32) == 2


def test_a_claim_that_comes_after_a_deletion_gets_nothing(open_db: OpenDB, name: str) -> None:
    clock, _, claim = late_and_current(open_db, name)
    clock.advance(9)
    rival = open_db(clock=clock)
    found: list[MessageClaim | None] = []
    thread = threading.Thread(target=lambda: found.append(rival.feed(name).claim()))
    with open_db(clock=clock).database.begin() as connection:
        assert claim.delete(using=connection) == 2
        clock.advance(2)
        thread.start()
    thread.join()
    assert found == [None]


def test_each_message_that_dies_is_logged_and_counted(open_db: OpenDB, name: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = SettableClock()
    db = open_db(clock=clock)
    feed = publish(db, name, 2)
    db.feeds.set(name, max_attempts=1)
    died: list[Death] = []
    db.deaths.add(died.append)
    assert feed.claim(2, lease=10)
    clock.advance(11)
    before = db.counters.dead
    with caplog.at_level(logging.WARNING, "queue_db.dead"):
        assert feed.claim(2) is None
    dead = {job.id: job.last_error for job in db.dead.list(name)}
    assert {death.job.id: death.error for death in died} == dead
    assert (len(dead), db.counters.dead - before, db.core.queue_counters.take()) == (2, 2, {name: {"died": 2}})
    assert [record.getMessage() for record in caplog.records if record.name == "queue_db.dead"] == [
        f"job {job_id} 'n' in {name!r} is dead after attempt 1/1 (exhausted): {error}" for job_id, error in sorted(dead.items())
    ]


def test_a_trim_and_a_deletion_do_not_deadlock(open_db: OpenDB, name: str) -> None:
    clock = SettableClock()
    db, rival = open_db(clock=clock), open_db(clock=clock)
    feed = publish(db, name, 50)
    db.feeds.set(name, keep_rows=1, keep_unread=0)
    claim = feed.claim(50, lease=10)
    assert claim is not None
    barrier = threading.Barrier(2)

    def trim() -> int:
        other = rival.feed(name)
        other.row()
        barrier.wait()
        return other.trim()

    def delete() -> int:
        barrier.wait()
        try:
            return claim.delete(claim.messages)
        except ClaimError:
            return 0

    with ThreadPoolExecutor(2) as pool:
        trimmed, deleted = [one.result() for one in (pool.submit(trim), pool.submit(delete))]
    assert (trimmed, deleted) in {(0, 50), (49, 0)}


def test_a_trim_does_not_delete_what_is_claimed_after_its_look(
    open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch, differs: Callable[[str], None]
) -> None:
    differs("one writer")
    feed = publish(open_db(), name, 4)
    rival = open_db().feed(name)
    open_db().feeds.set(name, keep_rows=1)
    slowest = claim_rows.slowest
    taken: list[MessageClaim | None] = []

    def then_a_claim(*args: Any) -> int | None:
        found = slowest(*args)
        if not taken:
            taken.append(rival.claim(2))
        return found

    monkeypatch.setattr(claim_rows, "slowest", then_a_claim)
    assert feed.trim() == 0
    (claim,) = taken
    assert claim is not None
    assert claim.delete(claim.messages) == 2
    assert feed.trim() == 1


@pytest.mark.parametrize("unread", [0, 1000])
def test_a_trim_does_not_wait_for_who_settles_a_claim(
    open_db: OpenDB, name: str, unread: int, differs: Callable[[str], None]
) -> None:
    """An open transaction deletes the third message: the trim deletes what is in front of it, however many are to be kept."""
    differs("one writer")
    feed, rival = publish(open_db(), name, 6), open_db()
    one, two, three = feed.claim(1), feed.claim(1), feed.claim(1)
    assert one
    assert two
    assert three
    one.release()
    two.release()
    rival.feeds.set(name, keep_rows=1, keep_unread=unread)
    with open_db().database.begin() as connection:
        assert three.delete(using=connection) == 1
        assert rival.feed(name).trim() == 2
        assert rival.feed(name).trim() == 0
        rival.feed(name).publish("n", 6)
    assert [message.payload for message in rival.feed(name).read(on_trimmed="skip").messages][-1] == 6
    rival.feed(name).trim()
    assert [message.payload for message in rival.feed(name).read(on_trimmed="skip").messages] == [6]


def test_a_trim_does_not_wait_for_who_settles_a_claim_right_behind_its_range(
    open_db: OpenDB, name: str, differs: Callable[[str], None]
) -> None:
    """InnoDB would look at the first row behind a range, and wait for its lock."""
    differs("one writer")
    clock = SettableClock()
    db, rival = open_db(clock=clock), open_db(clock=clock)
    feed = publish(db, name, 3)
    clock.advance(100)
    feed.publish_many([("n", 3), ("n", 4)])
    feed.rank()
    db.feeds.set(name, keep_for=50)
    with open_db(clock=clock).database.begin() as connection:
        assert feed.delete(feed.read().messages[3], using=connection) == 1
        assert rival.feed(name).trim() == 3
        clock.advance(100)
        assert rival.feed(name).trim() == 0
    assert rival.feed(name).trim() == 1


def test_a_trim_does_not_wait_for_who_settles_a_message_that_has_expired(
    open_db: OpenDB, name: str, differs: Callable[[str], None]
) -> None:
    differs("one writer")
    clock = SettableClock()
    db, rival = open_db(clock=clock), open_db(clock=clock)
    db.feeds.set(name, ordering="counter", claims=True, expires_in=10)
    feed = db.feed(name)
    feed.publish_many([("n", number) for number in range(3)])
    message = feed.read().messages[1]
    clock.advance(11)
    with open_db(clock=clock).database.begin() as connection:
        assert feed.delete(message, using=connection) == 1
        assert rival.feed(name).trim() == 2
    assert feed.read(feed.start()).messages == []
