"""Routing: read where messages go, and bring them there, in one transaction.

Locks are taken in one order, whatever the order of the messages: stripes of groups by number, feeds by id, counters by name, keys
of counters by name and key. So two transactions that route once each do not wait for each other in a circle.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from queue_db.codecs import JSONCodec
from queue_db.core import Core
from queue_db.errors import RouteError, TransientStorageError, UnsupportedError
from queue_db.feeds import Feed
from queue_db.feeds.building import MATCHED
from queue_db.feeds.forwarding import JobTemplate
from queue_db.feeds.notifications import wake_readers
from queue_db.feeds.settings import defaults, ordering_of
from queue_db.feeds.store import rows
from queue_db.feeds.store.messages import NewMessage, timed
from queue_db.feeds.store.rows import FeedRow
from queue_db.model import NewJob
from queue_db.routes import store as routes
from queue_db.routes.conditions import content_of, options_of
from queue_db.routes.definition import WEBHOOK, WEBHOOKS, group_of
from queue_db.routes.patterns import HEADERS
from queue_db.routes.plan import ERROR, HOP_LIMIT, LOOP, Plan, Step, plan
from queue_db.routes.store import WalkRow
from queue_db.store import Transaction, enqueue
from queue_db.store.enqueue import OnDuplicate
from queue_db.verbs.new_jobs import CHUNK

log = logging.getLogger("queue_db.routes")

_ENCODER = JSONCodec()

# Cuts that are logged and counted, and why.
_REPORTED = {
    LOOP: "leads back to where the message has been",
    HOP_LIMIT: f"is beyond {routes.HOPS} forwards",
    ERROR: "has a condition or a key that cannot be evaluated for the message",
}

# Seconds between two log lines about the cuts of one route.
_LOGGED_EVERY = 60.0

# Most feeds whose readers a publisher notifies, and whose messages it numbers after its commit; the readers of the others look.
_ATTENDED = 16


#: Gets how many jobs would be put into each queue.
Admit = Callable[[Mapping[str, int]], None]


class Item(NamedTuple):
    """A message to route."""

    topic: str
    message: NewMessage
    via: tuple[str, ...] = ()  #: the feeds from which routers brought it


@dataclass(slots=True)
class Done:
    """What a transaction has routed."""

    acted: int = 0  #: number of routes that acted, over all messages
    feeds: set[str] = field(default_factory=set)
    cuts: list[Step] = field(default_factory=list)  #: of each way, once
    loops: int = 0  #: cuts over all messages
    condition_errors: int = 0  #: the same, of conditions that cannot be evaluated


@dataclass(slots=True)
class _Effects:
    """What the routes of some messages do, before anything is written."""

    jobs: list[NewJob] = field(default_factory=list)
    feeds: dict[str, tuple[WalkRow, list[NewMessage]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    keyed: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


class Router:
    """Brings messages to where the routes of their topics lead."""

    def __init__(self, core: Core, feed: Callable[[str], Feed]) -> None:
        self.core = core
        self.feed = feed
        self._logged: dict[str, float] = {}

    def route(
        self,
        tx: Transaction,
        items: Sequence[Item],
        *,
        admit: Admit | None = None,
        only: str | None = None,
    ) -> Done:
        """Route ``items`` in their order, all or none with the rest of the transaction.

        :param admit: called before anything is written; what it raises is raised.
        :param only: this route has the messages, whatever their topic.
        :raises RouteError: there is no such route.
        """
        done, effects = Done(), _Effects()
        walks: dict[tuple[str, int], tuple[Sequence[WalkRow], bool, bool]] = {}
        plans: dict[tuple[str, tuple[str, ...], str | None], Plan] = {}
        for item in items:
            place = item.topic, len(item.via)
            if place not in walks:
                walks[place] = self._walk(tx, *place, only)
            walk, by_headers, by_content = walks[place]
            # Otherwise all messages of a topic go the same way.
            headers = item.message.headers if by_headers or by_content else None
            content = content_of(item.topic, item.message) if by_content else None
            way = None if by_content else plans.get((item.topic, item.via, headers))
            if way is None:
                way = plans[item.topic, item.via, headers] = _plan(item, walk, headers, content)
                done.cuts += [step for step in way.steps if step.cut in _REPORTED]
            for step in way.steps:
                done.loops += step.cut in {LOOP, HOP_LIMIT}
                done.condition_errors += step.cut == ERROR
                if not step.cut:
                    done.acted += step.action != "forward"
                    _collect(effects, step, way.rows[step.route], item.message)
        if admit is not None:
            admit(Counter(job.queue for job in effects.jobs))
        self._apply(tx, effects)
        tx.after_commit(partial(self.report, done))
        done.feeds = set(effects.feeds)
        if not tx.own:
            # Of our own after the commit: PostgreSQL commits transactions that notify one after the other.
            wake_readers(tx, *sorted(done.feeds)[:_ATTENDED])
        return done

    def _walk(self, tx: Transaction, topic: str, hops: int, only: str | None) -> tuple[Sequence[WalkRow], bool, bool]:
        """Where a topic leads; whether that depends on the headers of a message, and whether on all of its content."""
        found: Sequence[WalkRow] = ()
        if only is not None:
            first = routes.named(tx, only)
            if first is None:
                raise RouteError(f"there is no route {only!r}: `queue-db routes list` shows them")
            further = routes.walk(tx, first.target, hops + 1) if first.action == "forward" else []
            found = [first._replace(topic=topic, pattern=topic), *further]
        elif hops <= routes.HOPS:
            found = routes.walk(tx, topic, hops)
        options = [options_of(row.options) for row in found]
        by_content = any(one.where is not None or one.by not in {None, "topic"} for one in options)
        return found, any(row.form == HEADERS for row in found), by_content

    def report(self, done: Done) -> None:
        """Count and log what was cut. A transaction of our own does it after its commit."""
        if not done.cuts:
            return
        counters = self.core.database.counters
        with self.core.database.counting:
            counters.loops += done.loops
            counters.condition_errors += done.condition_errors
        now = time.monotonic()
        for step in done.cuts:
            if now - self._logged.get(step.route, -_LOGGED_EVERY) >= _LOGGED_EVERY:
                self._logged[step.route] = now
                why = _REPORTED[step.cut]
                log.warning("route %r: %s %r from topic %r %s: cut", step.route, step.action, step.target, step.topic, why)

    def after_commit(self, done: Done) -> None:
        """Number the messages of feeds, and wake their readers."""
        for name in sorted(done.feeds)[:_ATTENDED]:
            self.feed(name).after_publish()

    def _apply(self, tx: Transaction, effects: _Effects) -> None:
        # A transaction that inserts several chunks locks all stripes with the first one.
        several = len(effects.jobs) > CHUNK
        for first in range(0, len(effects.jobs), CHUNK):
            enqueue.insert_jobs(tx, effects.jobs[first : first + CHUNK], OnDuplicate.RAISE, more=several)
        tx.wake(*(job.queue for job in effects.jobs))
        found: list[tuple[FeedRow, list[NewMessage]]] = []
        for name, (row, messages) in sorted(effects.feeds.items()):
            feed = row.feed or rows.create(tx, name, defaults(self.core))
            found.append((feed, messages))
        for feed, messages in sorted(found, key=lambda one: one[0].id):
            self._append(tx, feed, messages)
        for name in sorted(effects.counts):
            routes.count(tx, name, effects.counts[name])
        for name in sorted(effects.keyed):
            routes.count_keys(tx, name, effects.keyed[name])

    def _append(self, tx: Transaction, feed: FeedRow, messages: Sequence[NewMessage]) -> None:
        for _ in range(2):
            try:
                ordering_of(feed).append(tx, feed, timed(feed, messages))
            except LookupError:
                # It was deleted meanwhile: the name stands for a new feed now.
                feed = rows.create(tx, feed.name, defaults(self.core))
            else:
                return
        raise TransientStorageError(f"feed {feed.name!r} was deleted while messages were routed to it: publish them again")


def _plan(item: Item, walk: Sequence[WalkRow], headers: str | None, content: Mapping[str, Any] | None) -> Plan:
    hops = len(item.via)
    if hops > routes.HOPS:
        cut = Step(hops, item.topic, "", (), "", 0, "forward", item.topic, None, HOP_LIMIT)
        return Plan([cut], {})
    return plan(item.topic, walk, hops, item.via, None if headers is None else json.loads(headers), content)


def _collect(effects: _Effects, step: Step, row: WalkRow, message: NewMessage) -> None:
    if options_of(row.options).matched:
        headers = json.loads(message.headers) if message.headers else {}
        message = message._replace(headers=_ENCODER.encode({**headers, MATCHED: list(step.patterns)}))
    if step.action == "enqueue":
        effects.jobs.append(JobTemplate(row.target, row.kind, group_of(row.options)).job(message))
    elif step.action == "webhook":
        effects.jobs.append(_delivery(step, message))
    elif step.action == "feed":
        effects.feeds.setdefault(row.target, (row, []))[1].append(message)
    elif step.action == "count":
        if step.counted is None:
            effects.counts[row.target] += 1
        else:
            effects.keyed[row.target][step.counted] += 1
    elif step.action not in {"forward", "drop"}:
        raise UnsupportedError(f"route {step.route!r} has the action {step.action!r}, which this version does not know: upgrade it")


def _delivery(step: Step, message: NewMessage) -> NewJob:
    """The job that sends a message to an address. Its header ``webhook`` says where to, and what else is sent."""
    headers = json.loads(message.headers) if message.headers else {}
    sent = {"url": step.target, "route": step.route, "topic": step.topic, "kind": message.kind, "key": message.message_key}
    job = JobTemplate(WEBHOOKS, WEBHOOK).job(message)
    return job._replace(headers=_ENCODER.encode({**headers, "webhook": sent}))
