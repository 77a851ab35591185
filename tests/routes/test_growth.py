"""A publish has at most as many effects as there are routes; a matcher that forgets where it has been is noticed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from queue_db import QueueDB
from queue_db.routes import router
from queue_db.routes.patterns import matches
from queue_db.routes.plan import Plan, Step
from queue_db.store.routes import HOPS, WalkRow


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


def _forgetful(topic: str, rows: Sequence[WalkRow], hops: int = 0, closed: Collection[str] = ()) -> Plan:
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
