"""A publish has at most as many effects as there are routes; a matcher that forgets where it has been is noticed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from itertools import pairwise

import pytest

from queue_db import QueueDB
from queue_db.routes import router
from queue_db.routes.patterns import matches
from queue_db.routes.plan import Plan, Step
from queue_db.routes.store import HOPS, WalkRow


def _copies(db: QueueDB, routed: str) -> int:
    """Messages of one publish into a circle of two topics, with a second way back, whose routes are three and a feed."""
    for name, source, target in (("there", "a", "b"), ("back", "b", "a"), ("again", "b", "a")):
        db.routes.set(f"{routed}-{name}", forward=f"{routed}.{target}")
        db.routes.subscribe(f"{routed}.{source}", f"{routed}-{name}")
    db.routes.set(routed, feed=routed)
    db.routes.subscribe(f"{routed}.?", routed)
    db.topic(f"{routed}.a").publish("n")
    return len(db.feed(routed).read(limit=1000).messages)


def test_a_circle_has_one_copy_for_each_route(db: QueueDB, routed: str) -> None:
    assert _copies(db, routed) == 1


def test_two_forwards_from_each_topic_are_two_copies_for_each_topic(db: QueueDB, routed: str) -> None:
    """Eight forwards, two from each topic: 256 ways lead to the last two topics."""
    for level in range(HOPS):
        for source in "ab":
            for target in "ab":
                route = f"{routed}-{level}{source}{target}"
                db.routes.set(route, forward=f"{routed}.{level + 1}{target}")
                db.routes.subscribe(f"{routed}.{level}{source}", route)
    for level in range(HOPS + 1):
        for place in "ab":
            db.routes.set(f"{routed}-at-{level}{place}", feed=routed)
            db.routes.subscribe(f"{routed}.{level}{place}", f"{routed}-at-{level}{place}")
    assert db.topic(f"{routed}.0a").publish("n") == 1 + 2 * HOPS
    assert len(db.feed(routed).read(limit=1000).messages) == 1 + 2 * HOPS
    assert db.counters.loops == 0


# --- from feed to feed, by routers ----------------------------------------------------------------------------------


def _lead(db: QueueDB, routed: str, source: str, target: str) -> None:
    """A router of the feed ``source`` brings its messages to the feed ``target``."""
    db.routes.set(f"{routed}-{source}-{target}", feed=f"{routed}-{target}")
    db.routes.subscribe(f"{routed}.{source}", f"{routed}-{source}-{target}", form="exact")


def _follow(db: QueueDB, routed: str, feeds: Collection[str]) -> int:
    """Let the router of each feed run until there is nothing to route; how many messages that were."""
    some, routers = 0, [(f"{routed}-{feed}", f"{routed}.{feed}") for feed in feeds]
    while more := sum(db.routes.relay(feed, "router", topic=topic) for feed, topic in routers):
        some += more
        assert some < 1000, "it grows without end"
    return some


def test_routers_that_lead_everywhere_come_to_an_end(db: QueueDB, routed: str) -> None:
    """Each of three feeds leads to all: a message comes to a feed on each way on which no feed comes twice."""
    for source in "abc":
        for target in "abc":
            _lead(db, routed, source, target)
    db.feed(f"{routed}-a").publish("n")
    assert _follow(db, routed, "abc") == 5
    ways = [[message.headers.get("via", []) for message in db.feed(f"{routed}-{feed}").read().messages] for feed in "abc"]
    a, b, c = (f"{routed}-{feed}" for feed in "abc")
    assert ways == [[[]], [[a], [a, c]], [[a], [a, b]]]
    assert db.counters.loops == 1 + 2 + 2 + 3 + 3, "each way back was cut and counted"


def test_a_message_comes_through_nine_feeds_at_most(db: QueueDB, routed: str, caplog: pytest.LogCaptureFixture) -> None:
    feeds = [f"{number}" for number in range(12)]
    for source, target in pairwise(feeds):
        _lead(db, routed, source, target)
    db.feed(f"{routed}-0").publish("n")
    with caplog.at_level(logging.WARNING, logger="queue_db.routes"):
        assert _follow(db, routed, feeds) == HOPS + 1
    there = [len(db.feed(f"{routed}-{feed}").read().messages) for feed in feeds]
    assert there == [1] * (HOPS + 1) + [0] * 3
    assert db.counters.loops == 1
    assert any("is beyond 8 forwards" in record.message for record in caplog.records)


def _forgetful(topic: str, rows: Sequence[WalkRow], hops: int = 0, closed: Collection[str] = (), *_: object) -> Plan:
    """The negative control: each forward is followed, wherever it leads."""
    steps: list[Step] = []
    for row in rows:
        if row.topic == topic and matches(row.form, row.pattern, topic):
            steps.append(Step(hops, topic, row.route, (row.pattern,), row.sha, row.version, row.action, row.target, row.kind))
            if row.action == "forward" and hops < HOPS:
                steps += _forgetful(row.target, rows, hops + 1, closed).steps
    return Plan(steps, {row.route: row for row in rows})


def test_a_walk_that_forgets_its_way_is_noticed(db: QueueDB, routed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "plan", _forgetful)
    assert _copies(db, routed) == 1 + 1 + 2 + 2 + 4 + 4 + 8 + 8 + 16, "the check does not notice it"
