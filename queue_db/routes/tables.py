"""The tables of routes: which patterns lead messages where."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import (
    BIG_ID,
    KIND_LENGTH,
    LONG_TEXT,
    MYSQL,
    SHA_LENGTH,
    TOPIC_LENGTH,
)
from queue_db.store.schema.tables import Tables

#: Longest texts, in characters, of the columns that are compared or indexed.
PATTERN_LENGTH = 200
LIKE_LENGTH = 2 * PATTERN_LENGTH  # each character of a pattern may need an escape
FORM_LENGTH = 10
ROUTE_LENGTH = 100
ACTION_LENGTH = 10
COUNTER_LENGTH = 100
COUNTED_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class RouteTables:
    """The tables of routes in one store."""

    definitions: Table
    routes: Table
    subscriptions: Table
    counts: Table
    keyed_counts: Table


def route_tables(tables: Tables) -> RouteTables:
    """Those beside these tables."""
    found: RouteTables = tables.slices["routes"]
    return found


def described(name: str, metadata: MetaData) -> RouteTables:
    """The tables ``name_definitions``, ``name_routes`` …"""
    return RouteTables(
        _definitions(name, metadata),
        _routes(name, metadata),
        _subscriptions(name, metadata),
        _counts(name, metadata),
        _keyed_counts(name, metadata),
    )


def _definitions(name: str, metadata: MetaData) -> Table:
    """What a route does with a message. A row never changes."""
    table = Table(
        f"{name}_definitions",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        # SHA-256 of the canonical text of the columns below.
        Column("sha", String(SHA_LENGTH), nullable=False),
        Column("action", String(ACTION_LENGTH), nullable=False),
        # The feed, queue, topic or counter; empty for the action drop.
        Column("target", String(TOPIC_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH)),
        Column("options", LONG_TEXT),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        **MYSQL,
    )
    # SELECT … FROM jobs_definitions WHERE sha = ?
    Index(f"{name}_definitions_sha", table.c.sha, unique=True)
    return table


def _routes(name: str, metadata: MetaData) -> Table:
    """A name that stands for a definition; it can be pointed at another one at any time."""
    return Table(
        f"{name}_routes",
        metadata,
        Column("name", String(ROUTE_LENGTH), primary_key=True),
        Column("definition", BigInteger, nullable=False),
        # How often it was pointed at another definition.
        Column("version", BigInteger, nullable=False, server_default=text("1")),
        Column("paused", Integer, nullable=False, server_default=text("0")),
        Column("changed_at", BigInteger, nullable=False, server_default=now_us()),
        **MYSQL,
    )


def _subscriptions(name: str, metadata: MetaData) -> Table:
    """Which topics lead to a route."""
    table = Table(
        f"{name}_subscriptions",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("form", String(FORM_LENGTH), nullable=False),
        Column("pattern", String(PATTERN_LENGTH), nullable=False),
        # The only topic that matches; empty: LIKE finds those that may match, and the form decides.
        Column("topic", String(TOPIC_LENGTH), nullable=False),
        Column("like_pattern", String(LIKE_LENGTH), nullable=False),
        Column("route", String(ROUTE_LENGTH), nullable=False),
        **MYSQL,
    )
    # INSERT of the same subscription; DELETE … WHERE form = ? AND pattern = ? AND route = ?
    Index(f"{name}_subscriptions_pattern", table.c.form, table.c.pattern, table.c.route, unique=True)
    # A publish: … WHERE topic IN (?, '')
    Index(f"{name}_subscriptions_topic", table.c.topic)
    return table


def _counts(name: str, metadata: MetaData) -> Table:
    """Counted messages. A counter has several rows, so that publishers seldom wait for each other."""
    return Table(
        f"{name}_counts",
        metadata,
        Column("name", String(COUNTER_LENGTH), primary_key=True),
        Column("slot", Integer, primary_key=True, autoincrement=False),
        Column("messages", BigInteger, nullable=False),
        **MYSQL,
    )


def _keyed_counts(name: str, metadata: MetaData) -> Table:
    """Messages counted by key, such as their topic. A key has several rows, as a counter has."""
    # SELECT counted_key, sum(messages) FROM jobs_keyed_counts WHERE name = ? GROUP BY counted_key
    return Table(
        f"{name}_keyed_counts",
        metadata,
        Column("name", String(COUNTER_LENGTH), primary_key=True),
        Column("counted_key", String(COUNTED_KEY_LENGTH), primary_key=True),
        Column("slot", Integer, primary_key=True, autoincrement=False),
        Column("messages", BigInteger, nullable=False),
        **MYSQL,
    )
