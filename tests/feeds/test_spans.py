"""Consumers of a shared cursor race: each message is done once, or becomes a job once, whoever is late."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Delete, Table, bindparam, delete, update

from queue_db import QueueDB, Verdict
from queue_db.feeds import Span
from queue_db.feeds.store import span_claims, spans
from queue_db.feeds.tables import feed_tables
from queue_db.store.base import Transaction
from queue_db.testing import SettableClock
from tests.feeds.accounts import everything
from tests.feeds.conftest import ORDERINGS
from tests.feeds.test_feed_kills import live_and_die

OpenDB = Callable[..., QueueDB]
Make = Callable[[str], str]


def drain(db: QueueDB, name: str, who: int) -> None:
    """Consume all messages of a feed: copy, fail, release, or abandon them."""
    rng = random.Random(who)
    shared, copy = db.feed(name).shared("mailers", queue=name, max_attempts=1000), db.feed(f"{name}-copy")
    while db.feed(name).cursors()[0].behind:
        span = shared.claim(rng.randint(1, 20), lease=0.05)
        if span is None:
            continue
        for message in span.messages:
            fate = rng.random()
            if fate < 0.05:
                span.fail(message, "no", retry_in=0)
            elif fate < 0.1:
                span.release()
            elif fate < 0.15:
                break  # another consumer gets the rest
            else:
                with db.database.begin() as connection:
                    if span.complete(message, using=connection):
                        copy.publish("n", message.payload, using=connection)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_each_message_takes_effect_or_becomes_a_job_once(ordering: str, make_feed: Make, open_db: OpenDB) -> None:
    name, consumers = make_feed(ordering), 4
    feed = open_db().feed(name)
    feed.publish_many([("n", number) for number in range(150)])
    feed.shared("mailers")
    with ThreadPoolExecutor(consumers) as pool:
        running = [pool.submit(drain, open_db(), name, who) for who in range(consumers)]
        for number in range(150, 200):
            feed.publish("n", number)
        for one in running:
            one.result()
    drain(open_db(), name, consumers)  # what was published while the others ended
    done = [int(payload) for _, payload in everything(open_db().feed(f"{name}-copy"))]
    queue = open_db().queue(name)
    while jobs := queue.claim(100):
        done += [job.payload for job in jobs]
        queue.complete_many(jobs)
    assert sorted(done) == list(range(200))
    assert feed.spans("mailers") == []


def late_and_current(open_db: OpenDB, name: str) -> tuple[SettableClock, Span, Span]:
    """A consumer whose lease has ended, and the one that has claimed its span."""
    clock = SettableClock()
    late, current = (open_db(clock=clock).feed(name).shared("mailers", queue=name) for _ in range(2))
    late.feed.publish_many([("n", number) for number in range(2)])
    span = late.claim(lease=10)
    clock.advance(11)
    taken = current.claim(lease=10)
    assert span is not None
    assert taken is not None
    return clock, span, taken


def effects(open_db: OpenDB, name: str) -> list[object]:
    """What became of two messages: a late consumer completes them, after the current one has failed the first."""
    clock, late, current = late_and_current(open_db, name)
    done: list[object] = []
    assert current.fail(current.messages[0], "no", retry_in=0)
    if late.complete():
        done += [message.payload for message in late.messages]
    if current.complete(current.messages[1]):
        done.append(1)
    return done + [job.payload for job in open_db(clock=clock).queue(name).claim(9)]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_claim_of_one_message_numbers_it(ordering: str, make_feed: Make, open_db: OpenDB) -> None:
    db = open_db()
    feed = db.feed(make_feed(ordering))
    shared = feed.shared("mailers")
    with db.database.begin() as connection:
        feed.publish("n", "waits for its number", using=connection)
    span = shared.claim(1)
    assert span is not None
    assert [message.payload for message in span.messages] == ["waits for its number"]


def test_a_late_completion_loses(open_db: OpenDB, make_feed: Make) -> None:
    assert effects(open_db, make_feed("counter")) == [1, 0]


def test_a_completion_without_the_version_is_detected(open_db: OpenDB, make_feed: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above."""

    def without_version(table: Table) -> Delete:
        return delete(table).where(table.c.id == bindparam("span"), table.c.version >= bindparam("held"))

    monkeypatch.setattr(spans, "_delete", without_version)
    assert effects(open_db, make_feed("counter")) == [0, 1, 0], "the check does not notice a message that is done twice"


def test_a_take_over_during_the_completion_loses(open_db: OpenDB, make_feed: Make) -> None:
    clock, _, span = late_and_current(open_db, make_feed("counter"))
    clock.advance(11)
    rival = open_db(clock=clock).feed(span.cursor.feed.name).shared("mailers")
    found: list[Span | None] = []
    thread = threading.Thread(target=lambda: found.append(rival.claim()))
    with open_db(clock=clock).database.begin() as connection:
        assert span.complete(using=connection)
        thread.start()
    thread.join()
    assert found == [None]


@pytest.mark.parametrize("attempts", [3, 1])
def test_a_transaction_that_settles_a_message_holds_up_no_claim(
    open_db: OpenDB, make_feed: Make, attempts: int, differs: Callable[[str], None]
) -> None:
    """The span's lease has ended; with ``attempts`` 1 it would become jobs."""
    clock = SettableClock()
    differs("one writer")
    name = make_feed("counter")
    feed = open_db(clock=clock).feed(name)
    feed.publish_many([("n", number) for number in range(3)])
    late, rival = (one.shared("mailers", queue=name, max_attempts=attempts) for one in (feed, open_db(clock=clock).feed(name)))
    span = late.claim(2, lease=10)
    assert span is not None
    clock.advance(11)
    with open_db(clock=clock).database.begin() as connection:
        assert span.complete(span.messages[0], using=connection)
        other = rival.claim(2, lease=10)
        assert rival.claim(2) is None
    assert other is not None
    assert [message.payload for message in other.messages] == [2]
    if attempts > 1:
        rest = rival.claim(2)
        assert rest is not None
        assert [message.payload for message in rest.messages] == [1]


@pytest.mark.parametrize("attempts", [3, 1])
def test_a_claim_passes_over_the_expired_span_that_a_transaction_settles(
    open_db: OpenDB, make_feed: Make, attempts: int, differs: Callable[[str], None]
) -> None:
    """The first span to expire is locked; with ``attempts`` 1 the next one becomes jobs."""
    differs("one writer")
    clock, name = SettableClock(), make_feed("counter")
    feed = open_db(clock=clock).feed(name)
    feed.publish_many([("n", number) for number in range(3)])
    late, rival = (one.shared("mailers", queue=name, max_attempts=attempts) for one in (feed, open_db(clock=clock).feed(name)))
    first, second = late.claim(1, lease=10), late.claim(1, lease=11)
    assert first is not None
    assert second is not None
    clock.advance(12)
    claimed = []
    with open_db(clock=clock).database.begin() as connection:
        assert first.complete(using=connection)
        while (span := rival.claim(1, lease=10)) is not None:
            claimed += [message.payload for message in span.messages]
    jobs = [job.payload for job in open_db(clock=clock).queue(name).claim(9)]
    assert (claimed, jobs) == (([1, 2], []) if attempts > 1 else ([2], [1]))


def test_a_claim_that_a_crashed_server_has_lost_is_lost_to_its_holder(open_db: OpenDB, make_feed: Make) -> None:
    """No commit that waits for the disk has followed the claim; the server gives its id again."""
    db = open_db()
    shared = db.feed(make_feed("counter")).shared("mailers")
    shared.feed.publish_many([("n", number) for number in range(3)])
    late = shared.claim(1)
    assert late is not None
    tables = feed_tables(db.store.tables)
    with db.database.begin() as connection:
        connection.execute(delete(tables.spans).where(tables.spans.c.id == late.id))
        connection.execute(update(tables.cursors).where(tables.cursors.c.feed == shared.feed_id).values(handed=0))
    again = shared.claim(3)
    assert again is not None
    with db.database.begin() as connection:
        connection.execute(update(tables.spans).where(tables.spans.c.id == again.id).values(id=late.id))
    again.id = late.id
    assert late.complete() is Verdict.LOST
    assert late.extend(60) is Verdict.LOST
    assert again.complete()


def test_a_message_that_is_completed_before_the_take_over_is_not_claimed_again(
    open_db: OpenDB, make_feed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, _, span = late_and_current(open_db, make_feed("counter"))
    clock.advance(11)
    rival = open_db(clock=clock).feed(span.cursor.feed.name).shared("mailers")
    claim = span_claims.claim

    def then_complete(*args: Any) -> Any:
        found = claim(*args)
        if span.messages:
            span.complete(span.messages.pop(0))
        return found

    monkeypatch.setattr(span_claims, "claim", then_complete)
    span.messages.pop()
    taken = rival.claim()
    assert taken is not None
    assert [message.payload for message in taken.messages] == [1]
    assert taken.complete(taken.messages)
    assert rival.spans() == []


def test_a_completion_after_the_take_over_loses(open_db: OpenDB, make_feed: Make) -> None:
    clock, _, span = late_and_current(open_db, make_feed("counter"))
    clock.advance(11)
    rival = open_db(clock=clock)
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(span.complete()))
    with rival.database.begin() as connection:
        assert span_claims.take_over(Transaction(connection, rival.store), span.cursor.feed_id, "mailers", "rival", 10, 3)
        thread.start()
    thread.join()
    assert verdicts == [Verdict.LOST]


@pytest.mark.parametrize("program", ["share", "work"])
@pytest.mark.rest("take-overs are raced above; test_feed_kills.py kills a worker")
def test_killed_consumers_lose_nothing_and_repeat_nothing(url: str, name: str, open_db: OpenDB, program: str) -> None:
    db, rng = open_db(), random.Random(name)
    feed = db.feed(name)
    feed.publish_many([("n", f"{number}") for number in range(60)])
    feed.shared("consumers", max_attempts=1000)

    def consumers(who: int) -> list[str]:
        return [step for _ in range(3) for step in live_and_die(program, url, name, f"{who}", rng.randint(1, 6))]

    with ThreadPoolExecutor(2) as pool:
        reported = [step for each in [pool.submit(consumers, who) for who in range(2)] for step in each.result()]
    shared, copy = feed.shared("consumers", max_attempts=1000), db.feed(f"{name}-copy")
    rest = []
    while feed.cursors()[0].behind:
        # The killed ones hold spans until their leases end.
        span = shared.claim(5)
        if span is None:
            db.database.pause(0.02)
            continue
        for message in span.messages:
            with db.database.begin() as connection:
                span.complete(message, using=connection).require()
                copy.publish("n", message.payload, using=connection)
            rest.append(message.payload)
    copied = [payload for _, payload in everything(copy)]
    assert sorted(copied, key=int) == [f"{number}" for number in range(60)], "a message took effect twice, or not at all"
    assert not set(reported) & set(rest), "a completed message was claimed again"
