"""The tables behind the service: metrics over time, the action log, API tokens, and sessions of people."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema.columns import (
    BIG_ID,
    DONE_ACTION_LENGTH,
    LONG_TEXT,
    MYSQL,
    QUEUE_LENGTH,
    SCOPES_LENGTH,
    SHA_LENGTH,
    TARGET_LENGTH,
    TOKEN_NAME_LENGTH,
)

#: The columns of ``metrics`` with jobs by state, and microseconds since the oldest due job was due; NULL: not counted in this time.
DEPTHS = ("available", "scheduled", "blocked", "running", "dead", "held", "oldest")

#: The columns of ``metrics`` with what happened in this time.
COUNTS = ("completed", "failed", "died", "lost", "missed")


@dataclass(frozen=True, slots=True)
class ServiceTables:
    """The tables behind the service."""

    metrics: Table
    actions: Table
    tokens: Table
    sessions: Table


def service_tables(name: str, metadata: MetaData) -> ServiceTables:
    """The four tables."""
    return ServiceTables(_metrics(name, metadata), _actions(name, metadata), _tokens(name, metadata), _sessions(name, metadata))


def _metrics(name: str, metadata: MetaData) -> Table:
    """Numbers of each queue over time, one row for the ``width`` seconds from ``at``."""
    table = Table(
        f"{name}_metrics",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("width", Integer, primary_key=True, autoincrement=False),
        Column("at", BigInteger, primary_key=True, autoincrement=False),
        *(Column(column, BigInteger) for column in DEPTHS),
        *(Column(column, BigInteger, nullable=False, server_default=text("0")) for column in COUNTS),
        **MYSQL,
    )
    # DELETE FROM jobs_metrics WHERE width = ? AND at < ?
    Index(f"{name}_metrics_age", table.c.width, table.c.at)
    return table


def _actions(name: str, metadata: MetaData) -> Table:
    """What people and programs with tokens changed: who, what, how many, when."""
    table = Table(
        f"{name}_actions",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("at", BigInteger, nullable=False, server_default=now_us()),
        Column("who", String(TOKEN_NAME_LENGTH), nullable=False),
        Column("action", String(DONE_ACTION_LENGTH), nullable=False),
        Column("target", String(TARGET_LENGTH), nullable=False),
        Column("number", BigInteger),
        Column("detail", LONG_TEXT),  # JSON
        sqlite_autoincrement=True,
        **MYSQL,
    )
    # DELETE FROM jobs_actions WHERE at < ?
    Index(f"{name}_actions_age", table.c.at)
    return table


def _tokens(name: str, metadata: MetaData) -> Table:
    """API tokens, by their SHA-256 only."""
    table = Table(
        f"{name}_tokens",
        metadata,
        Column("name", String(TOKEN_NAME_LENGTH), primary_key=True),
        Column("sha256", String(SHA_LENGTH), nullable=False),
        Column("scopes", String(SCOPES_LENGTH), nullable=False),  # words with blanks between them
        Column("queues", LONG_TEXT, nullable=False),  # JSON: [glob pattern]
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        Column("expires_at", BigInteger),
        Column("used_at", BigInteger),
        Column("revoked_at", BigInteger),
        **MYSQL,
    )
    # SELECT … FROM jobs_tokens WHERE sha256 = ?
    Index(f"{name}_tokens_sha256", table.c.sha256, unique=True)
    return table


def _sessions(name: str, metadata: MetaData) -> Table:
    """Sessions of people who logged in with a token: the SHA-256 of the cookie, and the CSRF token of their forms."""
    return Table(
        f"{name}_sessions",
        metadata,
        Column("sha256", String(SHA_LENGTH), primary_key=True),
        Column("token", String(TOKEN_NAME_LENGTH), nullable=False),
        Column("csrf", String(SHA_LENGTH), nullable=False),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        Column("expires_at", BigInteger, nullable=False),
        **MYSQL,
    )
