"""Routes: definitions, names that stand for them, subscriptions, and what a topic leads to.

A transaction that routes locks in this order: the stripes of groups by number, feeds by id, counters by name, keys of counters by
name and key; a cursor last.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
)

from queue_db.dialects.clock import text_parameter
from queue_db.errors import TransientStorageError
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.store.rows import create as create_feed
from queue_db.feeds.tables import feed_tables
from queue_db.routes.tables import RouteTables, route_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction
from queue_db.store.schema import TOPIC_LENGTH

#: Ends the stored action of a definition with a condition.
CONDITIONAL = "?"

#: The stored action of a definition that counts by key: code that does not know it refuses to publish, and counts nothing wrong.
COUNT_BY = "count_by"

#: Most forwards from topic to topic on the way of one message.
HOPS = 8

# Written into the statement: those that go to the driver directly have no values beside the caller's.
_NO_TEXT: ColumnElement[str] = literal_column("''")
_FORWARDS: list[ColumnElement[str]] = [literal_column("'forward'"), literal_column("'forward?'")]
_KEYED = [COUNT_BY, f"{COUNT_BY}{CONDITIONAL}"]
_FEEDS: list[ColumnElement[str]] = [literal_column("'feed'"), literal_column("'feed?'")]
_MOST: ColumnElement[int] = literal_column(str(HOPS))
_ONE: ColumnElement[int] = literal_column("1")
_GOING: ColumnElement[int] = literal_column("0")

# Rows of a counter, and of each of its keys.
_SLOTS = 16

# Most keys in one statement.
_KEYS = 500


class DefinitionRow(NamedTuple):
    """What a route does."""

    sha: str
    action: str
    target: str
    kind: str | None
    options: str | None


class WalkRow(NamedTuple):
    """A subscription that may match a topic, with its route and definition."""

    topic: str
    form: str
    pattern: str
    route: str
    version: int
    paused: int
    sha: str
    action: str
    target: str
    kind: str | None
    options: str | None
    feed: FeedRow | None  #: the feed that is the target, if there is one


class Meaning(NamedTuple):
    """The meaning of a definition's columns."""

    action: str
    target: str
    kind: str | None
    options: str | None


def meaning(action: str, target: str, kind: str | None, options: str | None) -> Meaning:
    """A webhook is stored as an ``enqueue`` whose group is the address: code older than webhooks makes the job, too."""
    action = action.removesuffix(CONDITIONAL)
    if action == "enqueue" and options is not None:
        found = json.loads(options)
        if found.pop("webhook", False):
            address = found.pop("group")
            return Meaning("webhook", address, None, json.dumps(found) if found else None)
    if action == COUNT_BY:
        action = "count"
    return Meaning(action, target, kind, options)


# Columns of a row before those of the feed, and up to the SHA-256, which the meaning follows.
_PLAIN = len(WalkRow._fields) - 1
_SHA = WalkRow._fields.index("sha") + 1


# --- definitions ----------------------------------------------------------------------------------------------------


def define(tx: Transaction, new: DefinitionRow, feed: Mapping[str, Any]) -> int:
    """The id of the definition with this content; it is inserted if there is none. ``feed`` is as in :func:`assign`."""
    definitions = route_tables(tx.tables).definitions
    found = find_definition(tx, new.sha)
    if found is None:
        values = {**new._asdict(), "created_at": tx.now}
        by_key.insert_new(tx, definitions, values)  # if it does not, another transaction has inserted it meanwhile
        found = find_definition(tx, new.sha)
    assert found is not None  # noqa: S101 - it never changes, and nothing deletes it
    if new.action.removesuffix(CONDITIONAL) == "feed":
        create_feed(tx, new.target, feed)
    return found


def find_definition(tx: Transaction, sha: str) -> int | None:
    """The id of the definition with this SHA-256."""
    definitions = route_tables(tx.tables).definitions
    found: int | None = tx.connection.execute(select(definitions.c.id).where(definitions.c.sha == sha)).scalar()
    return found


def beginning_with(tx: Transaction, digits: str) -> list[DefinitionRow]:
    """Up to two definitions whose SHA-256 begins with these digits."""
    definitions = route_tables(tx.tables).definitions
    columns = [definitions.c[name] for name in DefinitionRow._fields]
    query = (
        select(*columns).where(definitions.c.sha >= digits, definitions.c.sha < f"{digits}g").order_by(definitions.c.sha).limit(2)
    )
    return [DefinitionRow(*row) for row in tx.connection.execute(query)]


def definitions(tx: Transaction) -> list[Row[Any]]:
    """All definitions, by id."""
    table = route_tables(tx.tables).definitions
    return list(tx.connection.execute(select(table).order_by(table.c.id)))


# --- routes ---------------------------------------------------------------------------------------------------------


def assign(tx: Transaction, name: str, new: DefinitionRow, feed: Mapping[str, Any], *, create: bool) -> bool:
    """Store a definition and point a route at it; False: there is no such route, and ``create`` is not set: nothing is changed.

    :param feed: the columns of the feed that is the target, if there is none yet: publishers need not create it.
    """
    if not create and by_key.lock(tx, route_tables(tx.tables).routes, {"name": name}, "name") is None:
        return False
    definition = define(tx, new, feed)
    routes = route_tables(tx.tables).routes
    now = tx.now
    values = {"definition": definition, "version": routes.c.version + 1, "changed_at": now}
    if by_key.change(tx, routes, {"name": name}, values):
        return True
    if create:
        tx.connection.execute(insert(routes).values(name=name, definition=definition, changed_at=now), tx.time())
    return create


def pause(tx: Transaction, name: str, paused: int) -> bool:
    """Pause a route, or let it go on; False: there is none."""
    routes = route_tables(tx.tables).routes
    values = {"paused": paused, "changed_at": tx.now}
    return by_key.change(tx, routes, {"name": name}, values)


def remove(tx: Transaction, name: str) -> bool:
    """Delete a route with its subscriptions; False: there is none."""
    tables = route_tables(tx.tables)
    by_key.lock(tx, tables.routes, {"name": name}, "name")
    tx.connection.execute(delete(tables.subscriptions).where(tables.subscriptions.c.route == name))
    return by_key.delete(tx, tables.routes, {"name": name})


def all_routes(tx: Transaction) -> list[Row[Any]]:
    """All routes by name, with their definitions, and the count if they count."""
    tables = route_tables(tx.tables)
    routes, definitions = tables.routes, tables.definitions
    total = select(func.sum(tables.counts.c.messages)).where(tables.counts.c.name == definitions.c.target)
    keyed = select(func.sum(tables.keyed_counts.c.messages)).where(tables.keyed_counts.c.name == definitions.c.target)
    query = (
        select(
            *(routes.c[name] for name in ("name", "version", "paused", "changed_at")),
            *(definitions.c[name] for name in DefinitionRow._fields),
            func.coalesce(
                case((definitions.c.action.in_(_KEYED), keyed.scalar_subquery()), else_=total.scalar_subquery()), 0
            ).label("messages"),
        )
        .join(definitions, definitions.c.id == routes.c.definition)
        .order_by(routes.c.name)
    )
    return list(tx.connection.execute(query))


# --- subscriptions --------------------------------------------------------------------------------------------------


def subscribe(tx: Transaction, route: str, values: Mapping[str, str]) -> bool | None:
    """Subscribe a route; False: it has this subscription already. None: there is no such route."""
    routes, subscriptions = route_tables(tx.tables).routes, route_tables(tx.tables).subscriptions
    if by_key.lock(tx, routes, {"name": route}, "name") is None:
        return None
    there = select(subscriptions.c.id).where(by_key.matches(subscriptions, _same(route, values)))
    if tx.connection.execute(there).first() is not None:
        return False
    by_key.touch(tx, routes, {"name": route}, "changed_at")  # microseconds
    tx.connection.execute(insert(subscriptions).values(route=route, **values))
    return True


def unsubscribe(tx: Transaction, route: str, values: Mapping[str, str]) -> bool:
    """Delete a subscription; False: there is none."""
    return by_key.delete(tx, route_tables(tx.tables).subscriptions, _same(route, values))


def subscribed(tx: Transaction) -> list[Row[Any]]:
    """``route, form, pattern`` of all subscriptions, in this order."""
    columns = [route_tables(tx.tables).subscriptions.c[name] for name in ("route", "form", "pattern")]
    return list(tx.connection.execute(select(*columns).order_by(*columns)))


def _same(route: str, values: Mapping[str, str]) -> dict[str, str]:
    return {"form": values["form"], "pattern": values["pattern"], "route": route}


# --- what a topic leads to ------------------------------------------------------------------------------------------


def walk(tx: Transaction, topic: str, hops: int) -> list[WalkRow]:
    """The subscriptions that may match ``topic``, or a topic that it may be forwarded to; ``hops`` are behind it already.

    Some do not match: the caller decides by their patterns, and follows the forwards again. One statement reads all, so a route
    that is pointed at another definition at the same time is read either before or after that.
    """
    found = tx.fetch(_walk(route_tables(tx.tables), feed_tables(tx.tables).feeds), {"topic": topic, "hops": hops})
    feeds = [None if row[_PLAIN] is None else FeedRow(*row[_PLAIN:]) for row in found]
    return [WalkRow._make((*row[:_SHA], *meaning(*row[_SHA:_PLAIN]), feed)) for row, feed in zip(found, feeds, strict=True)]


@lru_cache(maxsize=64)
def _walk(tables: RouteTables, feeds: Table) -> Select[Any]:
    subscriptions, routes, definitions = tables.subscriptions, tables.routes, tables.definitions

    def may_match(topic: Any) -> tuple[Any, Any]:
        # The first condition is for the index, and true for all that are not exact.
        return or_(subscriptions.c.topic == topic, subscriptions.c.topic == _NO_TEXT), topic.like(
            subscriptions.c.like_pattern, escape="!"
        )

    start = text_parameter("topic", TOPIC_LENGTH)
    reached = select(start.label("topic"), bindparam("hops", type_=Integer).label("hops")).cte("reached", recursive=True)
    further = (
        select(definitions.c.target, reached.c.hops + _ONE)
        .select_from(reached)
        .join(subscriptions, may_match(reached.c.topic)[0] & may_match(reached.c.topic)[1])
        .join(routes, routes.c.name == subscriptions.c.route)
        .join(definitions, definitions.c.id == routes.c.definition)
        .where(definitions.c.action.in_(_FORWARDS), routes.c.paused == _GOING, reached.c.hops < _MOST)
    )
    reached = reached.union(further)
    topics = select(reached.c.topic).distinct().subquery("topics")
    return (
        select(
            topics.c.topic,
            *(subscriptions.c[name] for name in ("form", "pattern")),
            *(routes.c[name] for name in ("name", "version", "paused")),
            *(definitions.c[name] for name in DefinitionRow._fields),
            *(feeds.c[name] for name in FeedRow._fields),
        )
        .select_from(topics)
        .join(subscriptions, may_match(topics.c.topic)[0] & may_match(topics.c.topic)[1])
        .join(routes, routes.c.name == subscriptions.c.route)
        .join(definitions, definitions.c.id == routes.c.definition)
        .outerjoin(feeds, (feeds.c.name == definitions.c.target) & definitions.c.action.in_(_FEEDS))
    )


def named(tx: Transaction, route: str) -> WalkRow | None:
    """A route as if a topic with its name led to it; None: there is none."""
    ours, feeds = route_tables(tx.tables), feed_tables(tx.tables).feeds
    routes, definitions = ours.routes, ours.definitions
    query = (
        select(
            *(routes.c[name] for name in ("name", "version", "paused")),
            *(definitions.c[name] for name in DefinitionRow._fields),
            *(feeds.c[name] for name in FeedRow._fields),
        )
        .join(definitions, definitions.c.id == routes.c.definition)
        .outerjoin(feeds, (feeds.c.name == definitions.c.target) & definitions.c.action.in_(_FEEDS))
        .where(routes.c.name == route)
    )
    row = tx.connection.execute(query).first()
    if row is None:
        return None
    values = (route, "exact", route, *row)
    feed = None if values[_PLAIN] is None else FeedRow(*values[_PLAIN:])
    return WalkRow._make((*values[:_SHA], *meaning(*values[_SHA:_PLAIN]), feed))


# --- counters -------------------------------------------------------------------------------------------------------


def count(tx: Transaction, name: str, messages: int) -> None:
    """Add to a counter, in one of its rows."""
    counts = route_tables(tx.tables).counts
    _add(tx, counts, {"name": name, "slot": random.randrange(_SLOTS)}, messages)


def count_keys(tx: Transaction, name: str, messages: Mapping[str, int]) -> None:
    """Add to keys of a counter, in one row of each, in the order of the keys."""
    counts = route_tables(tx.tables).keyed_counts
    keys = sorted(messages)
    for first in range(0, len(keys), _KEYS):
        slots = {key: random.randrange(_SLOTS) for key in keys[first : first + _KEYS]}
        # Asked without a lock: at REPEATABLE READ an UPDATE of a missing row locks the gap where others insert theirs.
        query = select(counts.c.counted_key, counts.c.slot).where(counts.c.name == name, counts.c.counted_key.in_(list(slots)))
        there = {(row.counted_key, row.slot) for row in tx.connection.execute(query)}
        for key, slot in slots.items():
            place = {"name": name, "counted_key": key, "slot": slot}
            _add(tx, counts, place, messages[key], missing=(key, slot) not in there)


def _add(tx: Transaction, counts: Table, place: Mapping[str, Any], messages: int, *, missing: bool = False) -> None:
    """Add to a row, or insert it; ``missing``: it was not there a moment ago."""
    more = {"messages": counts.c.messages + messages}
    if not missing and by_key.change(tx, counts, place, more):
        return
    # If it is not inserted, another transaction has done so meanwhile.
    if not by_key.insert_new(tx, counts, {**place, "messages": messages}) and not by_key.change(tx, counts, place, more):
        raise TransientStorageError(
            f"counter {place['name']!r} was first used after this transaction had begun, and its isolation level hides it: run it "
            "again"
        )


def top(tx: Transaction, name: str, limit: int) -> list[tuple[str, int]]:
    """The keys of a counter that have counted most."""
    counts = route_tables(tx.tables).keyed_counts
    total = func.sum(counts.c.messages)
    query = select(counts.c.counted_key, total).where(counts.c.name == name).group_by(counts.c.counted_key)
    rows = tx.connection.execute(query.order_by(total.desc(), counts.c.counted_key).limit(limit))
    return [(key, int(messages)) for key, messages in rows]


def counted(tx: Transaction, name: str, key: str | None = None) -> bool:
    """Whether a counter, or one of its keys, has counted something."""
    tables = route_tables(tx.tables)
    counts, keyed = tables.counts.c, tables.keyed_counts.c
    queries = [select(keyed.name).where(keyed.name == name, *([] if key is None else [keyed.counted_key == key]))]
    if key is None:
        queries.append(select(counts.name).where(counts.name == name))
    return any(tx.connection.execute(query.limit(1)).first() is not None for query in queries)


def reset(tx: Transaction, name: str, key: str | None) -> bool:
    """Delete the rows of a counter, or of one of its keys; False: there are none."""
    tables = route_tables(tx.tables)
    if key is not None:
        return by_key.delete(tx, tables.keyed_counts, {"name": name, "counted_key": key})
    gone = [by_key.delete(tx, table, {"name": name}) for table in (tables.counts, tables.keyed_counts)]
    return any(gone)
