"""Topics and routes: what is published goes where patterns lead, all of it or nothing, and every way has an end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, CursorHeldError, PayloadError, RouteError
from queue_db.feeds import Page
from queue_db.routes import Step
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestConditions", "TestKeyedCounts", "TestLoops", "TestRoutes", "TestTopics", "routed"]


@pytest.fixture
def routed(db: QueueDB, name: str) -> Iterator[str]:
    """A prefix for topics, routes, feeds and queues; what begins with it is deleted after the test."""
    yield name
    for route in db.routes.list():
        if route.name.startswith(name):
            db.routes.remove(route.name)
    for info in db.feeds.list():
        if info.name.startswith(name):
            db.feeds.delete(info.name)


def payloads(page: Page) -> list[Any]:
    """The payloads of a page."""
    return [message.payload for message in page.messages]


def acting(steps: list[Step], prefix: str) -> list[tuple[int, str, str]]:
    """Hops, route and cut of each step, without the prefix."""
    return [(step.hops, step.route.removeprefix(prefix), step.cut) for step in steps if step.route.startswith(prefix)]


class TestTopics:
    """Publish to a topic."""

    def test_a_message_goes_where_its_topic_leads(self, db: QueueDB, routed: str) -> None:
        archive, alarms, seen = f"{routed}-archive", f"{routed}-alarms", f"{routed}-seen"
        db.routes.set(archive, feed=archive)
        db.routes.set(alarms, enqueue=(alarms, "check"))
        db.routes.set(seen, count=seen)
        for route in (archive, alarms, seen):
            assert db.routes.subscribe(f"{routed}.sensor.*", route)
        topic = db.topic(f"{routed}.sensor.7")
        assert topic.publish("reading", {"celsius": 21}, key="7", headers={"trace": "00-1"}, client="probe") == 3
        assert db.topic(f"{routed}.door.1").publish("opened") == 0
        (message,) = db.feed(archive).read().messages
        assert (message.kind, message.payload, message.key, message.client) == ("reading", {"celsius": 21}, "7", "probe")
        assert message.headers == {"trace": "00-1", "topic": topic.name}
        (job,) = db.queue(alarms).claim(limit=9)
        assert (job.kind, job.payload, job.headers, job.group) == ("check", {"celsius": 21}, message.headers, None)
        assert [info.messages for info in db.routes.list() if info.name == seen] == [1]

    def test_messages_keep_their_order(self, db: QueueDB, routed: str) -> None:
        db.routes.set(routed, feed=routed)
        db.routes.set(f"{routed}-jobs", enqueue=routed, group=True)
        db.routes.subscribe(routed, routed, form="exact")
        db.routes.subscribe(routed, f"{routed}-jobs", form="exact")
        topic = db.topic(routed)
        assert topic.publish_many([("n", number, {"key": f"k{number % 2}"}) for number in range(6)]) == 12
        assert topic.publish_many([]) == 0
        assert payloads(db.feed(routed).read()) == list(range(6))
        claimed = db.queue(routed).claim(limit=9)
        assert [(job.payload, job.group) for job in claimed] == [(0, "k0"), (1, "k1")]

    def test_what_routes_do_is_part_of_the_transaction(self, db: QueueDB, routed: str, notes: Notes) -> None:
        db.routes.set(f"{routed}-feed", feed=routed)
        db.routes.set(f"{routed}-jobs", enqueue=routed)
        db.routes.set(f"{routed}-count", count=routed)
        for route in ("feed", "jobs", "count"):
            db.routes.subscribe(routed, f"{routed}-{route}")
        with notes.engine.connect() as connection:
            assert db.topic(routed).publish("n", "rolled back", using=connection) == 3
            notes.write(connection, "no")
            connection.rollback()
        assert (db.feed(routed).read().messages, db.queue(routed).stats().available) == ([], 0)
        assert [info.messages for info in db.routes.list() if info.name == f"{routed}-count"] == [0]
        with notes.engine.begin() as connection:
            db.topic(routed).publish("n", "committed", using=connection)
            notes.write(connection, "yes")
        assert payloads(db.feed(routed).read()) == ["committed"]
        assert [job.payload for job in db.queue(routed).claim(limit=9)] == ["committed"]
        assert [info.messages for info in db.routes.list() if info.name == f"{routed}-count"] == [1]
        assert notes.read() == ["yes"]

    def test_messages_are_published_all_or_none(self, db: QueueDB, routed: str) -> None:
        db.routes.set(routed, feed=routed)
        db.routes.subscribe(routed, routed)
        with pytest.raises(PayloadError):
            db.topic(routed).publish_many([("n", 1), ("n", object())])
        with pytest.raises(ArgumentError):
            db.topic("").publish("n")
        assert db.feed(routed).read().messages == []

    @pytest.mark.parametrize("header", ["topic", "via"])
    def test_headers_of_routers_are_refused(self, db: QueueDB, routed: str, header: str) -> None:
        db.routes.set(routed, feed=routed)
        db.routes.subscribe(routed, routed)
        for publish in (db.topic(routed).publish_many, db.feed(routed).publish_many):
            with pytest.raises(ArgumentError, match="reserved"):
                publish([("n", 1), ("n", 2, {"headers": {header: routed}})])
        assert db.feed(routed).read().messages == []

    def test_a_deleted_feed_is_created_again(self, db: QueueDB, routed: str, notes: Notes) -> None:
        db.routes.set(routed, feed=routed)
        db.routes.subscribe(routed, routed)
        db.feeds.delete(routed)
        with notes.engine.begin() as connection:
            notes.write(connection, "before")
            db.topic(routed).publish("n", 1, using=connection)
        db.topic(routed).publish("n", 2)
        assert payloads(db.feed(routed).read()) == [1, 2]


class TestRoutes:
    """Names that stand for definitions."""

    def test_a_route_is_pointed_at_another_definition(self, db: QueueDB, routed: str, rival: QueueDB) -> None:
        old = db.routes.set(routed, feed=f"{routed}-old")
        new = db.routes.define(feed=f"{routed}-new")
        db.routes.subscribe(routed, routed)
        rival.topic(routed).publish("n", 1)
        db.routes.assign(routed, new[:12])
        rival.topic(routed).publish("n", 2)
        rival.routes.assign(routed, old)
        db.topic(routed).publish("n", 3)
        assert payloads(db.feed(f"{routed}-old").read()) == [1, 3]
        assert payloads(db.feed(f"{routed}-new").read()) == [2]
        (info,) = [info for info in db.routes.list() if info.name == routed]
        assert (info.definition, info.version, info.patterns) == (old, 3, [("glob", routed)])
        with pytest.raises(RouteError, match="there is no route"):
            db.routes.assign(f"{routed}-other", old)
        with pytest.raises(RouteError, match="no definition begins"):
            db.routes.assign(routed, "0" * 64)
        with pytest.raises(ArgumentError, match="SHA-256"):
            db.routes.assign(routed, "latest")

    def test_definitions_are_named_by_their_content(self, db: QueueDB, routed: str, clock: SettableClock) -> None:
        first = db.routes.define(enqueue=(routed, "kind"), group=True)
        assert first == db.routes.define(enqueue=(routed, "kind"), group=True)
        others = [
            db.routes.define(enqueue=routed, group=True),
            db.routes.define(enqueue=(routed, "kind")),
            db.routes.define(enqueue=(routed, "kind"), group="True"),
            db.routes.define(feed=routed),
            db.routes.define(forward=routed),
            db.routes.define(count=routed),
            db.routes.define(drop=True),
        ]
        assert len({first, *others}) == 8
        (found,) = [one for one in db.routes.definitions() if one.sha == first]
        assert (found.action, found.target, found.kind, found.group) == ("enqueue", routed, "kind", True)
        assert found.created_at == clock.now()

    def test_a_webhook_is_a_job_with_an_address(self, db: QueueDB, routed: str) -> None:
        url = f"https://shop.example/{routed}?of=orders"
        db.routes.set(routed, webhook=url)
        db.routes.subscribe(routed, routed)
        assert db.topic(routed).publish("paid", {"order": 7}, key="order-7", headers={"shop": "north"}) == 1
        (found,) = [job for job in db.queue("webhooks").jobs("available", limit=1000).jobs if job.headers["topic"] == routed]
        try:
            assert (found.kind, found.payload, found.headers["shop"]) == ("webhook", {"order": 7}, "north")
            assert found.headers["webhook"] == {"url": url, "route": routed, "topic": routed, "kind": "paid", "key": "order-7"}
        finally:
            db.cancel(found.id)
        bad = [
            "ftp://a/b",
            "https://",
            "shop.example",
            "https://user:word@shop.example",
            "http://a b",
            "http://[::1",
            "http://a:b",
            "",
        ]
        for one in bad:
            with pytest.raises(ArgumentError, match="webhook"):
                db.routes.set(routed, webhook=one)

    def test_a_paused_route_does_nothing(self, db: QueueDB, routed: str) -> None:
        db.routes.set(routed, feed=routed)
        db.routes.subscribe(routed, routed)
        db.routes.pause(routed)
        assert db.topic(routed).publish("n", "paused") == 0
        assert acting(db.routes.test(routed).steps, routed) == [(0, "", "paused")]
        db.routes.resume(routed)
        assert db.topic(routed).publish("n", "resumed") == 1
        assert payloads(db.feed(routed).read()) == ["resumed"]
        for verb in (db.routes.pause, db.routes.resume):
            with pytest.raises(RouteError):
                verb(f"{routed}-other")

    def test_a_removed_route_leaves_nothing(self, db: QueueDB, routed: str) -> None:
        sha = db.routes.set(routed, feed=routed)
        db.routes.subscribe(routed, routed)
        assert db.routes.remove(routed)
        assert not db.routes.remove(routed)
        db.routes.set(routed, feed=routed)
        assert db.topic(routed).publish("n") == 0, "a new route of the name has no patterns"
        assert sha in [one.sha for one in db.routes.definitions()]

    def test_a_subscription_is_made_once_and_taken_back(self, db: QueueDB, routed: str) -> None:
        db.routes.set(routed, feed=routed)
        assert db.routes.subscribe(f"{routed}.*", routed)
        assert not db.routes.subscribe(f"{routed}.*", routed)
        assert db.routes.subscribe(f"{routed}.*", routed, form="amqp")
        assert db.topic(f"{routed}.a").publish("n") == 1, "a route acts once, whatever number of patterns match"
        assert db.routes.test(f"{routed}.a").steps[0].patterns == (f"{routed}.*", f"{routed}.*")
        assert db.routes.unsubscribe(f"{routed}.*", routed)
        assert not db.routes.unsubscribe(f"{routed}.*", routed)
        assert db.topic(f"{routed}.a").publish("n") == 1
        assert db.routes.unsubscribe(f"{routed}.*", routed, form="amqp")
        assert db.topic(f"{routed}.a").publish("n") == 0
        with pytest.raises(RouteError):
            db.routes.subscribe(routed, f"{routed}-other")

    @pytest.mark.parametrize(
        "bad",
        [
            {},
            {"feed": "f", "count": "c"},
            {"feed": ""},
            {"enqueue": 7},
            {"enqueue": ("q", "")},
            {"feed": "f", "group": True},
            {"drop": False},
            {"drop": "no"},
        ],
    )
    def test_impossible_definitions_are_refused(self, db: QueueDB, routed: str, bad: dict[str, Any]) -> None:
        with pytest.raises(ArgumentError):
            db.routes.set(routed, **bad)
        assert routed not in [info.name for info in db.routes.list()]

    def test_a_router_routes_each_message_of_a_feed_once(self, db: QueueDB, routed: str, rival: QueueDB) -> None:
        source, target = f"{routed}-source", f"{routed}-target"
        db.routes.set(routed, feed=target)
        db.routes.subscribe(f"{source}.paid", routed)
        db.feed(source).publish_many([("paid", 1), ("shipped", 2), ("paid", 3)])
        assert db.routes.relay(source, "router", limit=2) == 3
        assert rival.routes.relay(source, "router") == 0
        db.feed(source).publish("paid", 4)
        with db.feed(source).cursor("router"), pytest.raises(CursorHeldError):
            rival.routes.relay(source, "router")
        assert rival.routes.relay(source, "router") == 1
        page = db.feed(target).read()
        assert payloads(page) == [1, 3, 4]
        assert page.messages[0].headers == {"topic": f"{source}.paid", "via": [source]}

    def test_a_router_knows_the_topic_of_a_message(self, db: QueueDB, routed: str) -> None:
        inlet = f"{routed}-inlet"
        db.routes.set(inlet, feed=inlet)
        db.routes.subscribe(f"{routed}.in.*", inlet)
        db.topic(f"{routed}.in.7").publish("n", 7)
        db.routes.set(routed, enqueue=routed)
        db.routes.subscribe(f"{routed}.in.7", routed)
        assert db.routes.relay(inlet, "by header") == 1
        assert db.routes.relay(inlet, "by name", topic=f"{routed}.other") == 1
        (job,) = db.queue(routed).claim(limit=9)
        assert job.headers == {"topic": f"{routed}.in.7", "via": [inlet]}


class TestLoops:
    """A message never goes round in circles."""

    @pytest.mark.parametrize("length", [1, 2, 3])
    def test_a_circle_is_cut_where_it_closes(self, db: QueueDB, routed: str, length: int, caplog: pytest.LogCaptureFixture) -> None:
        topics = [f"{routed}.{number}" for number in range(length)]
        for number, topic in enumerate(topics):
            db.routes.set(f"{routed}-on-{number}", forward=topics[(number + 1) % length])
            db.routes.subscribe(topic, f"{routed}-on-{number}", form="exact")
        db.routes.set(f"{routed}-all", feed=routed)
        db.routes.subscribe(f"{routed}.*", f"{routed}-all")
        with caplog.at_level(logging.WARNING, logger="queue_db.routes"):
            assert db.topic(topics[0]).publish("n", 1) == 1
        assert payloads(db.feed(routed).read()) == [1]
        assert db.counters.loops == 1
        assert sum("leads back" in record.message for record in caplog.records) == 1
        dry = db.routes.test(topics[0])
        assert [(step.hops, step.topic) for step in dry.loops] == [(length - 1, topics[-1])]
        assert db.counters.loops == 1, "a test does nothing"

    def test_each_message_that_is_cut_is_counted(self, db: QueueDB, routed: str, caplog: pytest.LogCaptureFixture) -> None:
        db.routes.set(f"{routed}-on", forward=routed)
        db.routes.subscribe(f"{routed}*", f"{routed}-on")
        with caplog.at_level(logging.WARNING, logger="queue_db.routes"):
            db.topic(routed).publish_many([("n", number) for number in range(5)])
            assert db.counters.loops == 5
            db.topic(routed).publish("n")
            db.topic(f"{routed}.other").publish("n")
        assert db.counters.loops == 7
        assert sum("leads back" in record.message for record in caplog.records) == 1, "once a minute for each route"

    def test_a_pattern_that_matches_its_own_target_is_a_circle(self, db: QueueDB, routed: str) -> None:
        db.routes.set(f"{routed}-on", forward=f"{routed}.all")
        db.routes.subscribe(f"{routed}.*", f"{routed}-on")
        db.routes.set(f"{routed}-all", count=routed)
        db.routes.subscribe(f"{routed}.*", f"{routed}-all")
        assert db.topic(f"{routed}.a").publish("n") == 1
        assert acting(db.routes.test(f"{routed}.a").steps, f"{routed}-") == [
            (0, "all", ""),
            (0, "on", ""),
            (1, "all", "again"),
            (1, "on", "loop"),
        ]

    def test_two_ways_to_one_topic_are_no_circle(self, db: QueueDB, routed: str) -> None:
        for source, target in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")):
            db.routes.set(f"{routed}-{source}{target}", forward=f"{routed}.{target}")
            db.routes.subscribe(f"{routed}.{source}", f"{routed}-{source}{target}")
        db.routes.set(f"{routed}-end", feed=routed)
        db.routes.subscribe(f"{routed}.d", f"{routed}-end")
        assert db.topic(f"{routed}.a").publish("n") == 1
        assert len(db.feed(routed).read().messages) == 1
        dry = db.routes.test(f"{routed}.a")
        assert dry.loops == []
        assert acting(dry.actions, f"{routed}-") == [(2, "end", "")]
        assert db.counters.loops == 0

    def test_a_chain_ends_after_eight_forwards(self, db: QueueDB, routed: str) -> None:
        for number in range(12):
            db.routes.set(f"{routed}-{number}", forward=f"{routed}.{number + 1}")
            db.routes.subscribe(f"{routed}.{number}", f"{routed}-{number}")
        db.routes.set(f"{routed}-all", feed=routed)
        for last in ("8", "9"):
            db.routes.set(f"{routed}-at-{last}", feed=f"{routed}-{last}")
            db.routes.subscribe(f"{routed}.{last}", f"{routed}-at-{last}")
        assert db.topic(f"{routed}.0").publish("n") == 1
        assert [len(db.feed(f"{routed}-{last}").read().messages) for last in ("8", "9")] == [1, 0]
        (cut,) = db.routes.test(f"{routed}.0").loops
        assert (cut.hops, cut.topic, cut.cut) == (8, f"{routed}.8", "hops")

    def test_growth_is_bounded_by_the_number_of_routes(self, db: QueueDB, routed: str) -> None:
        names = ["a", "b", "c", "d"]
        for source in names:
            for target in names:
                db.routes.set(f"{routed}-{source}{target}", forward=f"{routed}.{target}")
                db.routes.subscribe(f"{routed}.{source}", f"{routed}-{source}{target}")
            db.routes.set(f"{routed}-at-{source}", feed=routed)
            db.routes.subscribe(f"{routed}.{source}", f"{routed}-at-{source}")
        assert db.topic(f"{routed}.a").publish("n") == 4
        assert len(db.feed(routed).read().messages) == 4

    def test_routers_do_not_pass_a_message_round(self, db: QueueDB, routed: str) -> None:
        first, second = f"{routed}-first", f"{routed}-second"
        for route, source, target in (("there", first, second), ("back", second, first), ("self", first, first)):
            db.routes.set(f"{routed}-{route}", feed=target)
            db.routes.subscribe(f"{routed}.{source}", f"{routed}-{route}")
        db.feed(first).publish("n", 1)
        for _ in range(3):
            db.routes.relay(first, "router", topic=f"{routed}.{first}")
            db.routes.relay(second, "router", topic=f"{routed}.{second}")
        assert [len(db.feed(name).read().messages) for name in (first, second)] == [1, 1]
        assert db.counters.loops == 2


class TestConditions:
    """Routes that look at the message, and routes that are run by name."""

    @pytest.mark.parametrize(
        ("where", "holds"),
        [
            ("payload.celsius > `70`", [71, 70.5]),
            ("payload.celsius == `71`", [71]),
            ("payload.celsius != `null` && !(payload.celsius > `70`)", [70, True, 0]),
            ("headers.site == 'north' && payload.celsius", [71, 70.5, 70, True, "71", 0]),
            (
                "kind == 'reading' && key == 'k' && client == 'probe' && contains(topic, 'sensor')",
                [71, 70.5, 70, True, "71", None, 0],
            ),
            ("payload.tags[?@ == 'hot']", []),
        ],
    )
    def test_a_route_acts_where_its_condition_holds(self, db: QueueDB, routed: str, where: str, holds: list[Any]) -> None:
        db.routes.set(f"{routed}-hot", feed=f"{routed}-hot", where=where)
        db.routes.subscribe(f"{routed}.sensor", f"{routed}-hot", "exact")
        given = [71, 70.5, 70, True, "71", None, 0]
        topic = db.topic(f"{routed}.sensor")
        messages = [("reading", {"celsius": one}, {"key": "k", "headers": {"site": "north"}}) for one in given]
        assert topic.publish_many(messages, client="probe") == len(holds)
        assert [one["celsius"] for one in payloads(db.feed(f"{routed}-hot").read())] == holds
        (step,) = db.routes.test(topic.name, kind="reading", payload={"celsius": 71}, headers={"site": "north"}, key="k").steps
        assert step.cut == ("" if db.routes.test(topic.name, payload={"celsius": 71}).actions else step.cut)

    def test_a_condition_of_a_forward_holds_for_what_comes_after_it(self, db: QueueDB, routed: str) -> None:
        db.routes.set(f"{routed}-big", forward=f"{routed}.big", where="payload > `10`")
        db.routes.set(f"{routed}-all", feed=f"{routed}-all", where=f"topic == '{routed}.big'")
        db.routes.subscribe(f"{routed}.in", f"{routed}-big", "exact")
        db.routes.subscribe(f"{routed}.*", f"{routed}-all")
        assert db.topic(f"{routed}.in").publish_many([("n", 1), ("n", 11), ("n", 12)]) == 2
        assert payloads(db.feed(f"{routed}-all").read()) == [11, 12]
        cuts = [(step.route.removeprefix(routed), step.cut) for step in db.routes.test(f"{routed}.in", payload=1).steps]
        assert cuts == [("-all", "condition"), ("-big", "condition")]

    def test_a_condition_is_part_of_the_definition(self, db: QueueDB, routed: str) -> None:
        route = f"{routed}-r"
        plain = db.routes.set(route, enqueue=routed)
        where = db.routes.set(route, enqueue=routed, where="payload")
        assert plain != where
        (info,) = [one for one in db.routes.list() if one.name == route]
        assert (info.action, info.where, info.matched) == ("enqueue", "payload", False)
        db.routes.set(route, webhook="https://example.com/x", where="payload", matched=True)
        (info,) = [one for one in db.routes.list() if one.name == route]
        assert (info.action, info.target, info.group, info.where) == ("webhook", "https://example.com/x", False, "payload")
        assert info.matched
        with pytest.raises(ArgumentError, match="is no JMESPath expression"):
            db.routes.set(route, drop=True, where="payload >")

    def test_a_condition_that_cannot_be_evaluated_is_counted_and_logged(
        self, db: QueueDB, routed: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        db.routes.set(f"{routed}-r", count=f"{routed}-r", where="contains(payload.tags, 'hot')")
        db.routes.subscribe(routed, f"{routed}-r", "exact")
        before = db.counters.condition_errors
        with caplog.at_level(logging.WARNING, "queue_db.routes"):
            assert db.topic(routed).publish_many([("n", {"tags": ["hot"]}), ("n", {}), ("n", {"tags": []})]) == 1
        assert db.counters.condition_errors - before == 1
        assert [record for record in caplog.messages if "cannot be evaluated" in record and f"{routed}-r" in record]

    def test_what_a_route_makes_has_the_patterns_that_matched(self, db: QueueDB, routed: str) -> None:
        db.routes.set(f"{routed}-f", feed=f"{routed}-f", matched=True)
        db.routes.set(f"{routed}-j", enqueue=f"{routed}-j", matched=True)
        for pattern in (f"{routed}.*", f"{routed}.sensor.?"):
            db.routes.subscribe(pattern, f"{routed}-f")
        db.routes.subscribe(f"{routed}.sensor.#", f"{routed}-j", "amqp")
        assert db.topic(f"{routed}.sensor.7").publish("n", 1, headers={"trace": "t"}) == 2
        (message,) = db.feed(f"{routed}-f").read().messages
        patterns = [f"{routed}.*", f"{routed}.sensor.?"]
        assert message.headers == {"trace": "t", "topic": f"{routed}.sensor.7", "matched": patterns}
        (job,) = db.queue(f"{routed}-j").claim()
        assert job.headers["matched"] == [f"{routed}.sensor.#"]
        with pytest.raises(ArgumentError, match="'matched' is reserved"):
            db.topic(f"{routed}.sensor.7").publish("n", headers={"matched": []})

    def test_a_route_is_run_by_its_name(self, db: QueueDB, routed: str) -> None:
        db.routes.set(f"{routed}-job", enqueue=(f"{routed}-job", "check"), where="payload")
        db.routes.set(f"{routed}-on", forward=f"{routed}.next")
        db.routes.set(f"{routed}-next", feed=f"{routed}-next")
        db.routes.subscribe(f"{routed}.*", f"{routed}-next")
        assert db.routes.run(f"{routed}-job", "n", 7, key="k") == 1
        assert db.routes.run(f"{routed}-job", "n", 0) == 1  # JMESPath: a number holds
        assert db.routes.run(f"{routed}-job", "n", []) == 0
        assert [(job.kind, job.payload) for job in db.queue(f"{routed}-job").claim(9)] == [("check", 7), ("check", 0)]
        assert db.routes.run(f"{routed}-on", "n", 8) == 1
        assert payloads(db.feed(f"{routed}-next").read()) == [8]
        with pytest.raises(RouteError, match="there is no route"):
            db.routes.run(f"{routed}-none", "n")
        db.routes.pause(f"{routed}-job")
        assert db.routes.run(f"{routed}-job", "n", 9) == 0


class TestKeyedCounts:
    """Counts for each key."""

    def test_messages_are_counted_by_topic(self, db: QueueDB, routed: str) -> None:
        db.routes.set(routed, count=routed, by="topic")
        db.routes.subscribe(f"{routed}.*", routed)
        topics = [f"{routed}.{name}" for name in "aab"]
        for topic in topics:
            assert db.topic(topic).publish("n") == 1
        assert db.topic(topics[0]).publish_many([("n", 1), ("n", 2)]) == 2
        assert db.routes.top(routed) == [(topics[0], 4), (topics[2], 1)]
        assert db.routes.top(routed, limit=1) == [(topics[0], 4)]
        (info,) = [one for one in db.routes.list() if one.name == routed]
        assert (info.action, info.target, info.by, info.messages) == ("count", routed, "topic", 5)
        (step,) = [one for one in db.routes.test(topics[2]).steps if one.route == routed]
        assert (step.cut, step.counted) == ("", topics[2])
        assert (db.routes.reset(routed, key=topics[0]), db.routes.reset(routed, key=topics[0])) == (True, False)
        assert db.routes.top(routed) == [(topics[2], 1)]
        assert (db.routes.reset(routed), db.routes.reset(routed), db.routes.top(routed)) == (True, False, [])

    def test_messages_are_counted_by_what_they_contain(self, db: QueueDB, routed: str, caplog: pytest.LogCaptureFixture) -> None:
        db.routes.set(routed, count=routed, by="payload.customer", where="kind != 'test'")
        db.routes.subscribe(routed, routed, "exact")
        given = ["eu", "eu", "EU", "e\N{LATIN SMALL LETTER U WITH DIAERESIS}", 7, 7, 7, True, None, "é" * 255]
        wrong = [{"a": 1}, [], "", "eu ", "x" * 256, "a\0b"]
        before = db.counters.condition_errors
        with caplog.at_level(logging.WARNING, "queue_db.routes"):
            acted = db.topic(routed).publish_many(("n", {"customer": one}) for one in [*given, *wrong])
        assert acted == len(given) - 1
        assert db.topic(routed).publish_many([("test", {"customer": "eu"}), ("n", None)]) == 0
        counted = db.routes.top(routed)
        assert counted[:2] == [("7", 3), ("eu", 2)]
        assert set(counted[2:]) == {("EU", 1), ("eü", 1), ("true", 1), ("é" * 255, 1)}
        assert db.counters.condition_errors - before == len(wrong)
        assert [message for message in caplog.messages if "cannot be evaluated" in message]
        cuts = [step.cut for step in db.routes.test(routed, payload={}).steps if step.route == routed]
        assert cuts == ["condition"]

    def test_a_count_is_part_of_the_transaction(self, db: QueueDB, routed: str, notes: Notes) -> None:
        db.routes.set(routed, count=routed, by="key")
        db.routes.subscribe(routed, routed, "exact")
        with notes.engine.connect() as connection:
            assert db.topic(routed).publish("n", key="a", using=connection) == 1
            notes.write(connection, "no")
            connection.rollback()
        assert db.routes.top(routed) == []
        with notes.engine.begin() as connection:
            db.topic(routed).publish("n", key="a", using=connection)
            notes.write(connection, "yes")
        assert (db.routes.top(routed), notes.read()) == ([("a", 1)], ["yes"])

    def test_what_a_counter_counts_by_is_checked(self, db: QueueDB, routed: str) -> None:
        with pytest.raises(ArgumentError, match="is no JMESPath expression"):
            db.routes.define(count=routed, by="payload.")
        with pytest.raises(ArgumentError, match="give it with count="):
            db.routes.define(feed=routed, by="topic")
        assert db.routes.define(count=routed) != db.routes.define(count=routed, by="topic")
        for call in (lambda: db.routes.top(""), lambda: db.routes.top(routed, limit=0), lambda: db.routes.reset(routed, key="")):
            with pytest.raises(ArgumentError):
                call()
