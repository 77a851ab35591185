"""API tokens and the sessions of people who logged in with one, by their SHA-256. The clock is the database's."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, insert, or_, select, update

from queue_db.store import by_key
from queue_db.store.base import Transaction
from queue_db.tokens.tables import token_tables


def create(tx: Transaction, values: dict[str, Any], lasts: int | None, until: int | None) -> bool:
    """Make a token; False if there is one of this name, also a revoked one.

    :param lasts: microseconds; None: it does not expire.
    :param until: it expires at this time at the latest, microseconds since 1970.
    :raises IntegrityError: another transaction has just made it: try again.
    """
    table = token_tables(tx.tables).tokens
    if tx.connection.execute(select(table.c.name).where(table.c.name == values["name"])).first() is not None:
        return False
    now = tx.read_clock()
    ends = [moment for moment in (None if lasts is None else now + lasts, until) if moment is not None]
    made = insert(table).values(created_at=now, expires_at=min(ends, default=None), **values)
    tx.connection.execute(made)
    return True


def find_token(tx: Transaction, sha256: str) -> Row[Any] | None:
    """The token with this hash, also an expired or revoked one, and ``now``."""
    table = token_tables(tx.tables).tokens
    query = select(table, tx.now.label("now")).where(table.c.sha256 == sha256)
    return tx.connection.execute(query, tx.time()).first()


def all_tokens(tx: Transaction) -> list[Row[Any]]:
    """All tokens by name, and ``now``."""
    table = token_tables(tx.tables).tokens
    query = select(table, tx.now.label("now")).order_by(table.c.name)
    return list(tx.connection.execute(query, tx.time()))


def use(tx: Transaction, name: str, interval: int) -> None:
    """Record the use of a token, at most once in ``interval`` microseconds."""
    table = token_tables(tx.tables).tokens
    now = tx.now
    late = or_(table.c.used_at.is_(None), table.c.used_at <= now - interval)
    tx.connection.execute(update(table).where(table.c.name == name, late).values(used_at=now), tx.time())


def revoke(tx: Transaction, name: str) -> bool:
    """Revoke a token and end its sessions; False if there is none, or it was revoked before."""
    table, sessions = token_tables(tx.tables).tokens, token_tables(tx.tables).sessions
    live = update(table).where(table.c.name == name, table.c.revoked_at.is_(None))
    revoked = tx.connection.execute(live.values(revoked_at=tx.now), tx.time()).rowcount
    tx.connection.execute(delete(sessions).where(sessions.c.token == name))
    return bool(revoked)


def log_in(tx: Transaction, sha256: str, token: str, csrf: str, lasts: int) -> None:
    """Make a session that ends after ``lasts`` microseconds; delete those that have ended."""
    table = token_tables(tx.tables).sessions
    now = tx.read_clock()
    tx.connection.execute(delete(table).where(table.c.expires_at <= now))
    tx.connection.execute(insert(table).values(sha256=sha256, token=token, csrf=csrf, created_at=now, expires_at=now + lasts))


def session(tx: Transaction, sha256: str) -> Row[Any] | None:
    """The session with this hash, also one that has ended, with the columns of its token, and ``now``."""
    table, tokens = token_tables(tx.tables).sessions, token_tables(tx.tables).tokens
    query = (
        select(
            tokens,
            table.c.sha256.label("session_sha256"),
            table.c.csrf,
            table.c.expires_at.label("session_expires_at"),
            tx.now.label("now"),
        )
        .join_from(table, tokens, tokens.c.name == table.c.token)
        .where(table.c.sha256 == sha256)
    )
    return tx.connection.execute(query, tx.time()).first()


def log_out(tx: Transaction, sha256: str) -> bool:
    """Delete a session; False if there was none."""
    return by_key.delete(tx, token_tables(tx.tables).sessions, {"sha256": sha256})
