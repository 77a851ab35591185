"""What a topic leads to: the topics that it is forwarded to, and what their routes do. Every way has an end.

A topic is looked at once, and a route acts once for a message, however many patterns and topics lead to it. So a message has at
most as many effects as there are routes, and a forward back to where a message has been is cut.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from queue_db.routes.conditions import ConditionError, counted_key, holds, options_of
from queue_db.routes.patterns import matches
from queue_db.routes.store import HOPS, WalkRow

#: Why a step does not act.
LOOP, HOP_LIMIT, PAUSED, AGAIN, CONDITION, ERROR = "loop", "hops", "paused", "again", "condition", "error"


@dataclass(frozen=True, slots=True)
class Step:
    """A route on the way of a message."""

    hops: int  #: forwards before it
    topic: str  #: that its patterns match
    route: str
    patterns: tuple[str, ...]  #: those that match
    definition: str  #: the SHA-256 of what it does
    version: int  #: of the route
    action: str  #: ``feed``, ``enqueue``, ``forward``, ``webhook``, ``count`` or ``drop``
    target: str
    kind: str | None
    #: Why it does nothing: ``loop`` (it leads back to where the message has been), ``hops`` (the limit is reached), ``paused``,
    #: ``again`` (the route has acted, or its topic was reached, on a shorter way), ``condition`` (its condition does not hold, or
    #: there is no key), ``error`` (its condition or key cannot be evaluated for this message). Empty: it acts.
    cut: str = ""
    counted: str | None = None  #: the key that it counts; None: it counts no keys


@dataclass(frozen=True, slots=True)
class Dry:
    """What a publish to a topic would do."""

    topic: str
    steps: list[Step]  #: by hops, topic and route

    @property
    def loops(self) -> list[Step]:
        """Those that lead back to where the message has been, or beyond the limit of hops."""
        return [step for step in self.steps if step.cut in {LOOP, HOP_LIMIT}]

    @property
    def actions(self) -> list[Step]:
        """Those that act, beside forwards."""
        return [step for step in self.steps if not step.cut and step.action != "forward"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The way of the messages of a topic."""

    steps: list[Step]
    rows: Mapping[str, WalkRow]  #: by route


def plan(
    topic: str,
    rows: Sequence[WalkRow],
    hops: int = 0,
    closed: Collection[str] = (),
    headers: Mapping[str, Any] | None = None,
    message: Mapping[str, Any] | None = None,
) -> Plan:
    """Follow the forwards from a topic. ``rows`` may hold subscriptions that do not match.

    :param hops: forwards behind the message.
    :param closed: the feeds from which a router brings the message: it must not get back to them.
    :param headers: of the message.
    :param message: its content, for conditions and keys; None: no route has one.
    """
    if hops > HOPS:
        return Plan([], {})
    matching = _matching(rows, headers)
    steps: list[Step] = []
    seen, leads, acted = {topic}, defaultdict[str, set[str]](set), set[str]()
    coming = deque([(topic, hops)])
    while coming:
        here, behind = coming.popleft()
        for route, (row, patterns) in sorted(matching.get(here, {}).items()):
            step = Step(behind, here, route, patterns, row.sha, row.version, row.action, row.target, row.kind)
            cut, counted = (PAUSED, None) if row.paused else _condition(row, here, message)
            if not cut and row.action == "forward":
                leads[here].add(row.target)
                cut = AGAIN if row.target in seen else HOP_LIMIT if behind >= HOPS else ""
                if not cut:
                    seen.add(row.target)
                    coming.append((row.target, behind + 1))
            elif not cut:
                cut = LOOP if row.action == "feed" and row.target in closed else AGAIN if route in acted else ""
                acted.add(route)
            steps.append(replace(step, cut=cut) if cut else replace(step, counted=counted))
    return Plan([_looping(step, leads) for step in steps], {row.route: row for row in rows})


def _condition(row: WalkRow, topic: str, message: Mapping[str, Any] | None) -> tuple[str, str | None]:
    """Why a route does not act for a message, by its condition, and the key that it counts; empty: it acts."""
    options = options_of(row.options)
    if options.where is None and options.by is None:
        return "", None
    seen = {**(message or {}), "topic": topic}
    try:
        if options.where is not None and not holds(options.where, seen):
            return CONDITION, None
        counted = None if options.by is None else counted_key(options.by, seen)
    except ConditionError:
        return ERROR, None
    return (CONDITION if options.by is not None and counted is None else ""), counted


def _matching(rows: Sequence[WalkRow], headers: Mapping[str, Any] | None) -> dict[str, dict[str, tuple[WalkRow, tuple[str, ...]]]]:
    """Topic → route → its row and the patterns that match."""
    found: dict[str, dict[str, tuple[WalkRow, tuple[str, ...]]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row.form, row.pattern)):
        if matches(row.form, row.pattern, row.topic, headers):
            _, patterns = found[row.topic].get(row.route, (row, ()))
            found[row.topic][row.route] = (row, (*patterns, row.pattern))
    return found


def _looping(step: Step, leads: Mapping[str, Collection[str]]) -> Step:
    """The step; if it is a forward that was cut because of a circle, it says so."""
    if step.action != "forward" or step.cut != AGAIN:
        return step
    reached, coming = {step.target}, [step.target]
    while coming:
        for target in leads.get(coming.pop(), ()):
            if target not in reached:
                reached.add(target)
                coming.append(target)
    return replace(step, cut=LOOP) if step.topic in reached else step
