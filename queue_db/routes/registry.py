"""``db.routes``: definitions, the names that stand for them, and the patterns that lead to them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from queue_db import arguments
from queue_db.codecs import JSONCodec
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError, RouteError
from queue_db.feeds import Feed, Message
from queue_db.feeds.building import MOST
from queue_db.feeds.settings import OnTrimmed, defaults
from queue_db.feeds.store.messages import NewMessage
from queue_db.model import from_micros
from queue_db.routes import patterns
from queue_db.routes import store as routes
from queue_db.routes.conditions import content, options_of
from queue_db.routes.definition import Definition, group_of, new
from queue_db.routes.patterns import PatternForm
from queue_db.routes.plan import Dry, plan
from queue_db.routes.router import Item, Router
from queue_db.routes.store import DefinitionRow
from queue_db.routes.tables import COUNTED_KEY_LENGTH, COUNTER_LENGTH, ROUTE_LENGTH
from queue_db.routes.topic import Topic
from queue_db.slices import type_hint
from queue_db.store.schema import TOPIC_LENGTH

if TYPE_CHECKING:
    from sqlalchemy.orm import Session
else:
    Session = type_hint("sqlalchemy.orm", "Session")

_SHA = re.compile(r"[0-9a-f]{6,64}\Z")
_ENCODER = JSONCodec()


@dataclass(frozen=True, slots=True)
class RouteInfo:
    """A route at the time of the call."""

    name: str
    definition: str  #: the SHA-256 of what it does
    action: str
    target: str
    kind: str | None
    group: bool | str
    version: int  #: raised each time that it is pointed at a definition
    paused: bool
    patterns: list[tuple[str, str]]  #: form and pattern
    messages: int | None  #: counted by the action ``count``; None: another action
    changed_at: datetime
    where: str | None = None  #: the condition under which it acts; None: always
    matched: bool = False  #: whether what it makes has the header ``matched``
    by: str | None = None  #: what it counts by; None: it counts all messages together


#: The class below has a method called ``list``.
Infos = list[RouteInfo]
Definitions = list[Definition]
Counted = list[tuple[str, int]]


class Routes:
    """The routes of one database. A route is a name for a definition; patterns subscribe it to topics."""

    def __init__(self, core: Core, feed: Callable[[str], Feed]) -> None:
        self._core = core
        self._router = Router(core, feed)

    def topic(self, name: str) -> Topic:
        """``db.topic(name)``."""
        return Topic(self._router, arguments.name("topic", name, TOPIC_LENGTH))

    def define(
        self,
        *,
        feed: str | None = None,
        enqueue: str | tuple[str, str] | None = None,
        forward: str | None = None,
        webhook: str | None = None,
        count: str | None = None,
        drop: bool = False,
        group: bool | str = False,
        where: str | None = None,
        matched: bool = False,
        by: str | None = None,
    ) -> str:
        """Store a definition with one action, and return the SHA-256 of its content, by which :meth:`assign` finds it.

        :param feed: publish the message to this feed.
        :param enqueue: a queue, or (queue, kind): enqueue a job with the payload and headers of the message.
        :param forward: route the message as one of this topic.
        :param webhook: an address, ``https://…``: send the message there, by a job of the queue ``webhooks``, for a worker with the
            handler ``queue_db.service.webhooks.deliver``.
        :param count: add 1 to this counter.
        :param by: with ``count``, a count for each value of this JMESPath expression, such as ``topic`` or ``payload.customer``.
            :meth:`top` returns them.
        :param drop: do nothing.
        :param group: of the jobs, as in :meth:`Feed.forward <queue_db.Feed.forward>`.
        :param where: act only for messages for which this JMESPath expression holds, over ``topic``, ``kind``, ``key``, ``client``,
            ``headers`` and ``payload``: ``payload.celsius > `70` && headers.site == 'north'``.
        :param matched: write the patterns that led the message here into the header ``matched``.
        :raises ConfigurationError: there is a condition, or ``by`` is more than ``topic``, ``kind``, ``key`` or ``client``, and the
            package jmespath is not installed.
        """
        given = {"feed": feed, "forward": forward, "webhook": webhook, "count": count, "where": where, "by": by}
        row = new(enqueue=enqueue, drop=drop, group=group, matched=matched, **given)
        self._core.run(Run("routes.define", upserts=True), routes.define, row, defaults(self._core))
        return row.sha

    def set(
        self,
        name: str,
        *,
        feed: str | None = None,
        enqueue: str | tuple[str, str] | None = None,
        forward: str | None = None,
        webhook: str | None = None,
        count: str | None = None,
        drop: bool = False,
        group: bool | str = False,
        where: str | None = None,
        matched: bool = False,
        by: str | None = None,
    ) -> str:
        """:meth:`define`, and assign the definition to the route; a new route is created. Return the definition's SHA-256."""
        arguments.name("route", name, ROUTE_LENGTH)
        given = {"feed": feed, "forward": forward, "webhook": webhook, "count": count, "where": where, "by": by}
        row = new(enqueue=enqueue, drop=drop, group=group, matched=matched, **given)
        self._assign(name, row, create=True)
        return row.sha

    def assign(self, name: str, definition: str) -> None:
        """Point a route at a definition that is stored. From then on it does that for each message that is published.

        :param definition: its SHA-256, or the first six or more digits.
        :raises RouteError: there is no such route or definition.
        """
        arguments.name("route", name, ROUTE_LENGTH)
        if not isinstance(definition, str) or not _SHA.match(definition):
            raise arguments.wrong("definition", definition, ": must be a SHA-256, or its first 6 digits or more")
        found = self._core.read("routes.beginning_with", routes.beginning_with, definition)
        if len(found) != 1:
            raise RouteError(f"{'several definitions begin' if found else 'no definition begins'} with {definition!r}")
        if not self._assign(name, found[0], create=False):
            raise self._missing(name)

    def subscribe(self, pattern: str, name: str, form: PatternForm = "glob") -> bool:
        """Lead the messages of matching topics to a route. False: it has this subscription already.

        :param form: ``exact``; ``glob``: ``*``, ``?``, ``[a-z]``, ``[^a]`` and a backslash before what stands for itself; ``amqp``:
            words with dots between them, ``*`` for one word, ``#`` for any number of words; ``headers``: a JSON object of headers
            and their values (null: any), which a message must have, or with ``"x-match": "any"`` one of them; ``"topic"`` is the
            only topic, otherwise all are.
        :raises RouteError: there is no such route.
        """
        arguments.name("route", name, ROUTE_LENGTH)
        checked = patterns.pattern(pattern, form)
        values = {"form": form, "pattern": checked.text, "topic": checked.topic, "like_pattern": checked.like}
        added = self._core.run(Run("routes.subscribe", upserts=True), routes.subscribe, name, values)
        if added is None:
            raise self._missing(name)
        return added

    def unsubscribe(self, pattern: str, name: str, form: PatternForm = "glob") -> bool:
        """Take a subscription back. False: there is none."""
        arguments.name("route", name, ROUTE_LENGTH)
        checked = patterns.pattern(pattern, form)
        return self._core.write("routes.unsubscribe", routes.unsubscribe, name, {"form": form, "pattern": checked.text})

    def list(self) -> Infos:
        """All routes by name."""
        by_route = defaultdict[str, list[tuple[str, str]]](list)
        for row in self._core.read("routes.subscribed", routes.subscribed):
            by_route[row.route].append((row.form, row.pattern))
        return [
            RouteInfo(
                name=row.name,
                definition=row.sha,
                action=does.action,
                target=does.target,
                kind=does.kind,
                group=group_of(does.options),
                version=row.version,
                paused=bool(row.paused),
                patterns=by_route[row.name],
                messages=int(row.messages) if does.action == "count" else None,
                changed_at=from_micros(row.changed_at),
                where=options_of(does.options).where,
                matched=options_of(does.options).matched,
                by=options_of(does.options).by,
            )
            for row in self._core.read("routes.all_routes", routes.all_routes)
            for does in [routes.meaning(row.action, row.target, row.kind, row.options)]
        ]

    def definitions(self) -> Definitions:
        """All definitions, oldest first."""
        return [
            Definition(
                *(row.sha, does.action, does.target, does.kind, group_of(does.options), from_micros(row.created_at)),
                *options_of(does.options),
            )
            for row in self._core.read("routes.definitions", routes.definitions)
            for does in [routes.meaning(row.action, row.target, row.kind, row.options)]
        ]

    def pause(self, name: str) -> None:
        """The route does nothing until :meth:`resume`; messages that are published meanwhile are not kept for it.

        :raises RouteError: there is no such route.
        """
        self._pause(name, 1)

    def resume(self, name: str) -> None:
        """End a :meth:`pause`.

        :raises RouteError: there is no such route.
        """
        self._pause(name, 0)

    def remove(self, name: str, *, using: Using | None = None) -> bool:
        """Delete a route with its subscriptions; its definition stays. False: there is none.

        :param using: a connection or session with a transaction: the route is deleted when it commits.
        """
        arguments.name("route", name, ROUTE_LENGTH)
        if using is not None:
            with self._core.joined(using, "routes.remove") as tx:
                return routes.remove(tx, name)
        return self._core.write("routes.remove", routes.remove, name)

    def top(self, counter: str, *, limit: int = 10) -> Counted:
        """The keys that a counter has counted most, with their numbers of messages, the largest first.

        :param counter: of a route with ``count=`` and ``by=``.
        """
        arguments.name("counter", counter, COUNTER_LENGTH)
        arguments.whole("limit", limit, 1, MOST)
        return self._core.read("routes.top", routes.top, counter, limit)

    def reset(self, counter: str, *, key: str | None = None) -> bool:
        """Delete a counter; it begins at 0 again. False: it has counted nothing.

        :param key: delete the count of this key alone.
        """
        arguments.name("counter", counter, COUNTER_LENGTH)
        if key is not None:
            arguments.name("key", key, COUNTED_KEY_LENGTH)
        return self._core.write("routes.reset", routes.reset, counter, key)

    def run(
        self,
        name: str,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        client: str | None = None,
        using: Using | None = None,
    ) -> int:
        """Let one route act for a message, whatever patterns it has; return how many routes acted: 1, or those it is forwarded to.

        The topic of the message is the name of the route. 0: the route is paused, or its condition does not hold.

        :param using: a connection or session with a transaction: the route acts when it commits.
        :raises RouteError: there is no such route.
        :raises ArgumentError: nothing was done.
        :raises PayloadError: nothing was done.
        """
        arguments.name("route", name, ROUTE_LENGTH)
        message = [(kind, payload, {"key": key, "headers": headers})]
        return Topic(self._router, name, only=name).publish_many(message, client=client, using=using)

    def test(
        self,
        topic: str,
        *,
        kind: str = "message",
        payload: Any = None,
        key: str | None = None,
        client: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> Dry:
        """What a publish of this message to a topic would do now; nothing is done."""
        arguments.name("topic", topic, TOPIC_LENGTH)
        subscribed = self._core.read("routes.walk", routes.walk, topic, 0)
        checked = arguments.headers(headers)
        message = content(topic, kind, payload, key, client, checked)
        return Dry(topic, plan(topic, subscribed, headers=checked, message=message).steps)

    def relay(
        self,
        feed: str,
        cursor: str,
        *,
        topic: str | None = None,
        limit: int = 100,
        idle: float | None = 0.0,
        start: str = "start",
        lease: float = 30.0,
        take_over: bool = False,
        on_trimmed: OnTrimmed = "raise",
    ) -> int:
        """Route the messages of a feed, each once; return how many. What routes do and the position are committed together.

        A message is never routed back to a feed from which it came.

        :param cursor: its name; one process at a time follows by it. ``start``, ``lease``, ``take_over`` and ``on_trimmed`` are
            those of :meth:`Feed.cursor <queue_db.Feed.cursor>`.
        :param topic: of the messages; None: the header ``topic`` of each, which it has if it was published to a topic, or else the
            name of the feed, a dot, and the kind.
        :param limit: most messages in one transaction.
        :param idle: seconds to wait for another message; 0: end when none is left; None: never end.
        :raises CursorHeldError: another process holds the cursor.
        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted. What was committed stays.
        :raises TrimmedError: messages were trimmed before they were routed.
        """
        if topic is not None:
            arguments.name("topic", topic, TOPIC_LENGTH)
        arguments.whole("limit", limit, 1, MOST)
        return sum(
            followed(
                *(self._router, feed, cursor, topic),
                limit=limit,
                idle=idle,
                start=start,
                lease=lease,
                take_over=take_over,
                on_trimmed=on_trimmed,
            )
        )

    def _assign(self, name: str, row: DefinitionRow, *, create: bool) -> bool:
        how = Run("routes.assign", upserts=True)
        return self._core.run(how, routes.assign, name, row, defaults(self._core), create=create)

    def _pause(self, name: str, paused: int) -> None:
        arguments.name("route", name, ROUTE_LENGTH)
        if not self._core.write("routes.pause", routes.pause, name, paused):
            raise self._missing(name)

    def _missing(self, name: str) -> RouteError:
        known = [row.name for row in self._core.read("routes.all_routes", routes.all_routes)]
        return RouteError(f"there is no route {name!r}; known: {', '.join(known) or 'none'}")


def followed(
    router: Router,
    feed: str,
    cursor: str,
    topic: str | None,
    *,
    limit: int = 100,
    idle: float | None,
    start: str = "start",
    lease: float = 30.0,
    take_over: bool,
    on_trimmed: OnTrimmed,
) -> Iterator[int]:
    """Route messages, as :meth:`Routes.relay`; yield how many after each commit."""
    with router.feed(feed).cursor(cursor, start=start, lease=lease, take_over=take_over, on_trimmed=on_trimmed) as opened:
        for page in opened.pages(limit, idle):
            items = [_item(message, topic) for message in page]
            router.after_commit(opened.transfer(page, partial(router.route, items=items)))
            yield len(page)


def _item(message: Message, topic: str | None) -> Item:
    headers = message.headers
    before = headers.get("via")
    names = [name for name in before if isinstance(name, str)] if isinstance(before, list) else []
    via = (*names, message.feed)
    where = topic or _topic(headers.get("topic")) or f"{message.feed}.{message.kind}"
    row = message.row
    stored = _ENCODER.encode({**headers, "topic": where, "via": list(via)})
    return Item(where, NewMessage(row.kind, row.payload, stored, row.message_key, row.client), via)


def _topic(header: object) -> str | None:
    """The header, if it is a topic."""
    try:
        return arguments.name("topic", header, TOPIC_LENGTH)
    except ArgumentError:
        return None
