"""Routing while others re-point routes and publish: nothing is lost or doubled, nobody waits in a circle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import func, select

from queue_db import QueueDB
from queue_db.errors import TransientStorageError
from queue_db.routes import store as routes
from queue_db.routes.router import Done, Item, Router
from queue_db.routes.tables import route_tables
from queue_db.store import Transaction

OpenDB = Callable[..., QueueDB]


@pytest.fixture
def two_feeds(db: QueueDB, routed: str) -> tuple[str, str]:
    """Two definitions of a route that has the topic of the test."""
    sides = db.routes.define(feed=f"{routed}-old"), db.routes.define(feed=f"{routed}-new")
    db.routes.set(routed, feed=f"{routed}-old")
    db.routes.subscribe(routed, routed)
    return sides


def numbers(db: QueueDB, feed: str) -> list[int]:
    """The payloads of all messages of a feed."""
    found: list[int] = []
    page = db.feed(feed).read(limit=1000)
    while page.messages:
        found += [message.payload for message in page.messages]
        page = db.feed(feed).read(page.position, limit=1000)
    return found


def test_an_open_publish_does_not_hold_up_who_points(
    two_feeds: tuple[str, str], routed: str, open_db: OpenDB, differs: Callable[[str], None]
) -> None:
    differs("one writer")
    publisher, pointer = open_db(), open_db()
    with publisher.database.begin() as connection:
        publisher.topic(routed).publish("n", 1, using=connection)
        pointer.routes.assign(routed, two_feeds[1])
        publisher.topic(routed).publish("n", 2, using=connection)
    assert (numbers(pointer, f"{routed}-old"), numbers(pointer, f"{routed}-new")) == ([1], [2])


def test_each_message_is_treated_by_one_definition(two_feeds: tuple[str, str], routed: str, open_db: OpenDB) -> None:
    pointer, publishers, each = open_db(), [open_db() for _ in range(2)], 100
    begin, done = threading.Barrier(3), threading.Event()

    def point() -> int:
        begin.wait()
        turns = 0
        while not done.is_set():
            pointer.routes.assign(routed, two_feeds[turns % 2])
            turns += 1
        return turns

    def publish(db: QueueDB, first: int) -> None:
        begin.wait()
        for number in range(first, first + each):
            assert db.topic(routed).publish("n", number) == 1

    with ThreadPoolExecutor(3) as threads:
        pointing = threads.submit(point)
        publishing = [threads.submit(publish, db, number * each) for number, db in enumerate(publishers)]
        try:
            for one in publishing:
                one.result()
        finally:
            done.set()
        turns = pointing.result()
    assert sorted(numbers(pointer, f"{routed}-old") + numbers(pointer, f"{routed}-new")) == list(range(2 * each))
    (info,) = [info for info in pointer.routes.list() if info.name == routed]
    assert info.version == 1 + turns


def test_two_feeds_and_two_groups_in_opposite_orders(db: QueueDB, routed: str, open_db: OpenDB) -> None:
    """Two topics lead to the same feeds, groups and counters, by routes whose names are in opposite orders."""
    each = 50
    for number, place in enumerate(("a", "b")):
        db.feeds.set(f"{routed}-{place}", ordering="counter")
        for topic, order in (("up", number), ("down", 1 - number)):
            for action, target in (
                ("feed", {"feed": f"{routed}-{place}"}),
                ("jobs", {"enqueue": f"{routed}-{place}", "group": place}),
                ("count", {"count": f"{routed}-{place}"}),
            ):
                route = f"{routed}-{topic}-{order}-{action}"
                db.routes.set(route, **target)  # type: ignore[arg-type]
                db.routes.subscribe(f"{routed}.{topic}", route)
    opened = [open_db() for _ in range(4)]
    begin = threading.Barrier(len(opened))

    def publish(number: int) -> None:
        begin.wait()
        topic = opened[number].topic(f"{routed}.{('up', 'down')[number % 2]}")
        for turn in range(each):
            assert topic.publish_many([("n", number * each + turn), ("n", -1)]) == 12

    with ThreadPoolExecutor(len(opened)) as threads:
        for one in [threads.submit(publish, number) for number in range(len(opened))]:
            one.result()
    for place in ("a", "b"):
        found = numbers(db, f"{routed}-{place}")
        assert sorted(number for number in found if number >= 0) == list(range(4 * each))
        assert len(found) == 8 * each
        stats = db.queue(f"{routed}-{place}").stats()
        assert stats.available + stats.blocked == 8 * each
    counted = {info.target: info.messages for info in db.routes.list() if info.action == "count" and info.name.startswith(routed)}
    assert counted == {f"{routed}-a": 8 * each, f"{routed}-b": 8 * each}
    assert sum(one.counters.deadlocks for one in opened) == 0


def test_a_first_count_that_an_old_snapshot_hides_is_not_lost(
    db: QueueDB, routed: str, open_db: OpenDB, monkeypatch: pytest.MonkeyPatch, differs: Callable[[str], None]
) -> None:
    differs("one snapshot")
    monkeypatch.setattr(routes, "_SLOTS", 1)
    db.routes.set(routed, count=routed)
    db.routes.subscribe(routed, routed)
    counted, late = 1, open_db()
    with late.database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(select(func.count()).select_from(route_tables(late.store.tables).counts))
        db.topic(routed).publish("n", 1)
        try:
            late.topic(routed).publish("n", 2, using=connection)
            connection.commit()
        except TransientStorageError:
            connection.rollback()
        else:
            counted += 1
    assert [info.messages for info in db.routes.list() if info.name == routed] == [counted]


def test_two_publishers_count_the_same_new_keys(db: QueueDB, routed: str, open_db: OpenDB) -> None:
    """In opposite orders, from the first message of each key on: none is lost, and neither waits for the other in a circle."""
    each, keys = 40, [f"k{number}" for number in range(20)]
    db.routes.set(routed, count=routed, by="payload")
    db.routes.subscribe(routed, routed, "exact")
    opened = [open_db() for _ in range(2)]
    begin = threading.Barrier(len(opened))

    def publish(number: int) -> None:
        begin.wait()
        order = keys if number else keys[::-1]
        for turn in range(each):
            some = order[turn % 18 : turn % 18 + 3]
            assert opened[number].topic(routed).publish_many(("n", key) for key in [*some, "hot"]) == 4

    with ThreadPoolExecutor(len(opened)) as threads:
        for one in [threads.submit(publish, number) for number in range(len(opened))]:
            one.result()
    counted = dict(db.routes.top(routed, limit=100))
    assert counted.pop("hot") == 2 * each
    assert sum(counted.values()) == 2 * each * 3
    assert set(counted) == set(keys)


@pytest.mark.parametrize("by", [None, "key"])
def test_the_counts_of_open_transactions_hide_nothing(db: QueueDB, routed: str, open_db: OpenDB, by: str | None) -> None:
    """A counter that is reset while others count begins at 0: what commits later is there."""
    db.routes.set(routed, count=routed, by=by)
    db.routes.subscribe(routed, routed, "exact")
    db.topic(routed).publish("n", key="a")
    assert open_db().routes.reset(routed)
    db.topic(routed).publish_many([("n", 1, {"key": "a"}), ("n", 2, {"key": "a"})])
    assert [info.messages for info in db.routes.list() if info.name == routed] == [2]


# --- the publisher's transaction ------------------------------------------------------------------------------------


def _left_by_a_rollback(db: QueueDB, routed: str) -> int:
    """Messages in a feed after a transaction that published to its topic was rolled back."""
    with suppress(ZeroDivisionError), db.database.begin() as connection:
        db.topic(routed).publish("n", 1, using=connection)
        raise ZeroDivisionError
    return len(db.feed(f"{routed}-old").read().messages)


def test_a_rollback_leaves_nothing(two_feeds: tuple[str, str], routed: str, db: QueueDB) -> None:
    assert two_feeds
    assert _left_by_a_rollback(db, routed) == 0


@pytest.fixture
def routing_apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The negative control: routes act in a transaction of their own."""
    route = Router.route

    def apart(router: Router, tx: Transaction, items: list[Item], **_: object) -> Done:
        if tx.own:
            return route(router, tx, items)
        return router.core.write("test", route.__get__(router), items)

    monkeypatch.setattr(Router, "route", apart)
    return


@pytest.mark.usefixtures("routing_apart")
def test_routing_in_another_transaction_is_noticed(
    two_feeds: tuple[str, str], routed: str, db: QueueDB, differs: Callable[[str], None]
) -> None:
    differs("one writer")
    assert two_feeds
    assert _left_by_a_rollback(db, routed) == 1, "the check does not notice it"
