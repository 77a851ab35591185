"""The tables of feeds: ordered messages, and the cursors of those who read them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import (
    BIG_ID,
    CURSOR_LENGTH,
    FEED_LENGTH,
    KEY_LENGTH,
    KIND_LENGTH,
    LONG_TEXT,
    MYSQL,
    SHA_LENGTH,
    TOKEN_LENGTH,
    WORKER_LENGTH,
)
from queue_db.store.schema.tables import Tables

#: Longest texts, in characters, of the columns that are compared or indexed.
ORDERING_LENGTH = 20
FEED_TOKEN_LENGTH = 8
CLIENT_LENGTH = 100

# Each row is inserted, moved and deleted: vacuum after a fixed number of dead rows.
POSTGRESQL_INBOX = {
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 5000,
    "autovacuum_vacuum_cost_delay": 0,
}


@dataclass(frozen=True, slots=True)
class FeedTables:
    """The tables of feeds in one store."""

    feeds: Table
    inbox: Table
    messages: Table
    cursors: Table
    spans: Table
    claims: Table
    publishes: Table


def feed_tables(tables: Tables) -> FeedTables:
    """Those beside these tables."""
    found: FeedTables = tables.slices["feeds"]
    return found


def described(name: str, metadata: MetaData) -> FeedTables:
    """The tables ``name_feeds``, ``name_inbox`` …"""
    return FeedTables(
        _feeds(name, metadata),
        _inbox(name, metadata),
        _messages(name, metadata),
        _cursors(name, metadata),
        _spans(name, metadata),
        _claims(name, metadata),
        _publishes(name, metadata),
    )


def _feeds(name: str, metadata: MetaData) -> Table:
    table = Table(
        f"{name}_feeds",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("name", String(FEED_LENGTH), nullable=False),
        Column("ordering", String(ORDERING_LENGTH), nullable=False),
        # The number of the next message. Whoever gives numbers holds this row's lock until the commit.
        Column("next_seq", BigInteger, nullable=False, server_default=text("1")),
        # The lowest number that may still be there; all below is trimmed.
        Column("first_seq", BigInteger, nullable=False, server_default=text("1")),
        # Raised when messages were removed or replaced out of turn; positions of an earlier epoch are refused.
        Column("epoch", BigInteger, nullable=False, server_default=text("1")),
        # Random; stands in positions, so that one of another feed or database is recognized.
        Column("token", String(FEED_TOKEN_LENGTH), nullable=False),
        # Retention: number of messages, microseconds; NULL: no limit.
        Column("keep_rows", BigInteger),
        Column("keep_for", BigInteger),
        # Most messages kept for cursors that have not acknowledged them; 0: retention does not wait for cursors.
        Column("keep_unread", BigInteger, nullable=False, server_default=text("0")),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        # How often a message is claimed before it becomes a dead job; 0: any number of times; NULL: the feed has no claims.
        Column("max_attempts", BigInteger),
        # Microseconds: of messages that are published without a delay or a lifetime; NULL: none.
        Column("delay", BigInteger),
        Column("lifetime", BigInteger),
        sqlite_autoincrement=True,  # the id of a deleted feed is not used again
        **MYSQL,
    )
    # SELECT … FROM jobs_feeds WHERE name = ?
    Index(f"{name}_feeds_name", table.c.name, unique=True)
    return table


def _content() -> list[Column[object]]:
    """The columns of a message, the same before and after it has its number."""
    return [
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", LONG_TEXT, nullable=False),
        Column("headers", LONG_TEXT),
        Column("message_key", String(KEY_LENGTH)),
        Column("client", String(CLIENT_LENGTH)),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        # Microseconds from created_at until it can be claimed, and until it expires; NULL: at once, never.
        Column("delay", BigInteger),
        Column("lifetime", BigInteger),
        # Random: finds the message by the id that its publisher got before it had a number.
        Column("uid", BigInteger),
    ]


def _inbox(name: str, metadata: MetaData) -> Table:
    """Messages without a number yet: publishers of a ranked feed only insert here."""
    table = Table(
        f"{name}_inbox",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("feed", BigInteger, nullable=False),
        *_content(),
        sqlite_autoincrement=True,
        postgresql_with=POSTGRESQL_INBOX,
        **MYSQL,
    )
    # Ranking: SELECT id FROM jobs_inbox WHERE feed = ? ORDER BY id LIMIT ?
    Index(f"{name}_inbox_feed", table.c.feed, table.c.id)
    return table


def _messages(name: str, metadata: MetaData) -> Table:
    """Numbered messages, never updated. The numbers of a feed have no gaps."""
    return Table(
        f"{name}_messages",
        metadata,
        Column("feed", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        *_content(),
        postgresql_with={"autovacuum_vacuum_insert_scale_factor": 0.2},
        **MYSQL,
    )


def _cursors(name: str, metadata: MetaData) -> Table:
    """Durable positions: how far a reader has acknowledged a feed."""
    table = Table(
        f"{name}_cursors",
        metadata,
        Column("feed", BigInteger, primary_key=True, autoincrement=False),
        Column("name", String(CURSOR_LENGTH), primary_key=True),
        # The number of the last acknowledged message.
        Column("acked", BigInteger, nullable=False),
        # Raised each time the cursor is opened; an earlier holder is fenced off by it.
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("holder", String(WORKER_LENGTH)),
        # Until when the holder has it; it extends this while it reads.
        Column("until", BigInteger, nullable=False, server_default=text("0")),
        Column("seen_at", BigInteger, nullable=False, server_default=now_us()),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        # Of a shared cursor: the number of the last message that a span was claimed for; NULL: one holder reads the feed.
        Column("handed", BigInteger),
        **MYSQL,
    )
    # SELECT … FROM jobs_cursors WHERE name = ? ORDER BY feed
    Index(f"{name}_cursors_name", table.c.name, table.c.feed)
    return table


def _spans(name: str, metadata: MetaData) -> Table:
    """Leases on ranges of messages: what consumers of shared cursors have claimed and not completed."""
    table = Table(
        f"{name}_spans",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("feed", BigInteger, nullable=False),
        Column("cursor_name", String(CURSOR_LENGTH), nullable=False),
        # The numbers of the first and the last message.
        Column("low", BigInteger, nullable=False),
        Column("high", BigInteger, nullable=False),
        # Raised by each claim; (id, version) fences off earlier holders.
        Column("version", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("worker", String(WORKER_LENGTH)),
        # The end of the lease.
        Column("until", BigInteger, nullable=False),
        # Numbers of messages above low that were completed or became jobs before the others, as JSON.
        Column("done", LONG_TEXT),
        sqlite_autoincrement=True,  # the id of a completed span is not used again
        postgresql_with=POSTGRESQL_INBOX,
        **MYSQL,
    )
    # SELECT … FROM jobs_spans WHERE feed = ? AND cursor_name = ? AND until <= ? ORDER BY until LIMIT 1
    Index(f"{name}_spans_cursor", table.c.feed, table.c.cursor_name, table.c.until)
    return table


def _claims(name: str, metadata: MetaData) -> Table:
    """A row for each numbered message of a feed with claims: who has claimed it, so that messages never change."""
    table = Table(
        f"{name}_claims",
        metadata,
        Column("feed", BigInteger, primary_key=True, autoincrement=False),
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        # Of the claim; NULL: nobody has claimed it, or it was released.
        Column("token", String(TOKEN_LENGTH)),
        # It can be claimed from then on: the end of its delay, or of the claim.
        Column("until", BigInteger, nullable=False, server_default=text("0")),
        # How often it was claimed.
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        # Extended by a claim that would end later; NULL: retention alone removes it.
        Column("expires_at", BigInteger),
        postgresql_with=POSTGRESQL_INBOX,
        **MYSQL,
    )
    # Neither index begins with feed: a claim would read it in place of the primary key, which has its order.
    # SELECT … FROM jobs_claims WHERE feed = ? AND token = ?
    Index(f"{name}_claims_token", table.c.token, table.c.feed)
    # Trimming: SELECT seq FROM jobs_claims WHERE feed = ? AND expires_at <= ? ORDER BY expires_at LIMIT ?
    Index(f"{name}_claims_expires", table.c.expires_at, table.c.feed)
    return table


def _publishes(name: str, metadata: MetaData) -> Table:
    """What publishes with an idempotency key have answered, so that a repeated one gets the same answer."""
    table = Table(
        f"{name}_publishes",
        metadata,
        # SHA-256 of where it was published and of its key.
        Column("digest", String(SHA_LENGTH), primary_key=True),
        # SHA-256 of its messages.
        Column("request", String(SHA_LENGTH), nullable=False),
        # As JSON.
        Column("answer", LONG_TEXT, nullable=False),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        **MYSQL,
    )
    # DELETE FROM jobs_publishes WHERE created_at < ?
    Index(f"{name}_publishes_age", table.c.created_at)
    return table
