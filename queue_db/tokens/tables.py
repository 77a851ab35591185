"""The tables of the service: API tokens, and sessions of people."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table

from queue_db.dialects.clock import now_us
from queue_db.monitoring.tables import WHO_LENGTH
from queue_db.store.schema import LONG_TEXT, MYSQL, SHA_LENGTH
from queue_db.store.schema.tables import Tables

#: The action log shows the name of a token.
TOKEN_NAME_LENGTH = WHO_LENGTH

_SCOPES_LENGTH = 100


@dataclass(frozen=True, slots=True)
class TokenTables:
    """The tables of the service in one store."""

    tokens: Table
    sessions: Table


def token_tables(tables: Tables) -> TokenTables:
    """Those beside these tables."""
    found: TokenTables = tables.slices["tokens"]
    return found


def described(name: str, metadata: MetaData) -> TokenTables:
    """The tables ``name_tokens`` and ``name_sessions``."""
    return TokenTables(_tokens(name, metadata), _sessions(name, metadata))


def _tokens(name: str, metadata: MetaData) -> Table:
    """API tokens, by their SHA-256 only."""
    table = Table(
        f"{name}_tokens",
        metadata,
        Column("name", String(TOKEN_NAME_LENGTH), primary_key=True),
        Column("sha256", String(SHA_LENGTH), nullable=False),
        Column("scopes", String(_SCOPES_LENGTH), nullable=False),  # words with blanks between them
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
