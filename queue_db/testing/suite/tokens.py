"""API tokens and sessions: which are valid, and from when on no longer."""

from __future__ import annotations

import pytest
from sqlalchemy import String, cast, select

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.testing.clock import SettableClock
from queue_db.tokens.tables import token_tables
from queue_db.tokens.tokens import Token

__all__ = ["TestTokens"]


def listed(db: QueueDB, name: str) -> Token:
    """The token as the list shows it."""
    (found,) = [one for one in db.tokens.list() if one.name == name]
    return found


class TestTokens:
    """Tokens let in until they expire or are revoked."""

    def test_a_secret_finds_its_token(self, db: QueueDB, name: str) -> None:
        secret = db.tokens.create(name, ["manage", "read", "read"], queues=["mail*", "a/b"])
        assert secret.startswith("qdb_")
        assert len(secret) >= 43
        token = db.tokens.find(secret)
        assert token is not None
        assert (token.name, token.scopes, token.queues) == (name, ("read", "manage"), ("mail*", "a/b"))
        assert (token.expires_at, token.revoked_at, token.active) == (None, None, True)
        assert db.tokens.create(f"{name}-2", ["read"]) != secret

    @pytest.mark.parametrize("wrong", ["", "qdb_", "qdb_ä", "\ud800", "x" * 100_000, "qdb_\x00", None, 1])
    def test_nothing_else_does(self, db: QueueDB, name: str, wrong: str) -> None:
        secret = db.tokens.create(name, ["read"])
        assert db.tokens.find(wrong) is None
        assert db.tokens.session(wrong) is None
        assert db.tokens.log_in(wrong) is None
        assert db.tokens.log_out(wrong) is False
        assert db.tokens.find(secret[:-1]) is None
        assert db.tokens.find(secret.upper()) is None
        assert db.tokens.find(f"{secret} ") is None

    def test_no_secret_is_stored(self, db: QueueDB, name: str) -> None:
        secret = db.tokens.create(name, ["read"])
        key = db.tokens.log_in(secret)
        assert key is not None
        tables = token_tables(db.store.tables)
        with db.database.engine.connect() as connection:
            for table in (tables.tokens, tables.sessions):
                row = connection.execute(
                    select(*(cast(column, String(1000)) for column in table.c)).where(
                        (table.c.name if table is tables.tokens else table.c.token) == name
                    )
                ).one()
                assert not any(one and (secret in one or secret.removeprefix("qdb_") in one or key in one) for one in row)

    def test_it_expires_by_the_clock_that_counts(self, db: QueueDB, name: str, clock: SettableClock) -> None:
        secret = db.tokens.create(name, ["read"], expires_in=60)
        key = db.tokens.log_in(secret)
        assert key is not None
        clock.advance(59)
        assert db.tokens.find(secret) is not None
        assert db.tokens.session(key) is not None
        clock.advance(1)
        assert db.tokens.find(secret) is None
        assert db.tokens.session(key) is None
        assert db.tokens.log_in(secret) is None
        assert not listed(db, name).active

    def test_revoked_it_lets_nobody_in(self, db: QueueDB, rival: QueueDB, name: str) -> None:
        secret = db.tokens.create(name, ["read"])
        key = db.tokens.log_in(secret)
        assert key is not None
        assert rival.tokens.revoke(name) is True
        assert db.tokens.find(secret) is None
        assert db.tokens.session(key) is None
        assert rival.tokens.revoke(name) is False
        assert rival.tokens.revoke(f"{name}-2") is False
        assert listed(db, name).revoked_at is not None
        with pytest.raises(ArgumentError, match="there is a token"):
            db.tokens.create(name, ["read"])

    def test_its_last_use_is_written_once_a_minute(self, db: QueueDB, name: str, clock: SettableClock) -> None:
        secret = db.tokens.create(name, ["read"])
        assert listed(db, name).used_at is None
        assert db.tokens.find(secret) is not None
        first = listed(db, name).used_at
        assert first is not None
        clock.advance(59)
        assert db.tokens.find(secret) is not None
        assert listed(db, name).used_at == first
        clock.advance(1)
        assert db.tokens.find(secret) is not None
        again = listed(db, name).used_at
        assert again is not None
        assert (again - first).total_seconds() == 60

    def test_a_session_lasts_until_its_end_or_the_logout(self, db: QueueDB, name: str, clock: SettableClock) -> None:
        secret = db.tokens.create(name, ["read", "manage"])
        keys = [db.tokens.log_in(secret, lasts=lasts) for lasts in (10, 100, 100)]
        short, long, left = [key or "" for key in keys]
        sessions = [db.tokens.session(key) for key in (short, long, left)]
        assert [one.token.name for one in sessions if one] == [name] * 3
        assert len({one.csrf for one in sessions if one}) == 3
        assert db.tokens.log_out(left) is True
        assert db.tokens.log_out(left) is False
        clock.advance(10)
        assert [db.tokens.session(key) is not None for key in (short, long, left)] == [False, True, False]

    @pytest.mark.parametrize("scopes", [[], ["root"], ["read", "write"], "read", [None]])
    def test_scopes_are_checked(self, db: QueueDB, name: str, scopes: list[str]) -> None:
        with pytest.raises(ArgumentError, match="scope"):
            db.tokens.create(name, scopes)

    @pytest.mark.parametrize("queues", [[], "mail", [""], [1], ["x" * 251], ["x"] * 101])
    def test_patterns_are_checked(self, db: QueueDB, name: str, queues: list[str]) -> None:
        with pytest.raises(ArgumentError, match="queues"):
            db.tokens.create(name, ["read"], queues=queues)
