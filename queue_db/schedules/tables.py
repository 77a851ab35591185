"""The table of schedules."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, text

from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS, KIND_LENGTH, LONG_TEXT, MYSQL, QUEUE_LENGTH

#: Longest texts of columns, in characters.
NAME_LENGTH = 100
RULE_LENGTH = 200
_ZONE_LENGTH = 64


def described(name: str, metadata: MetaData) -> Table:
    """The table ``name_schedules``.

    The scheduler that raises ``version`` enqueues the job in the same transaction. So only one scheduler enqueues each occurrence.
    """
    return Table(
        f"{name}_schedules",
        metadata,
        Column("name", String(NAME_LENGTH), primary_key=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", LONG_TEXT, nullable=False),
        Column("headers", LONG_TEXT),
        Column("priority", Integer, nullable=False, server_default=text("0")),
        Column("max_attempts", Integer, nullable=False, server_default=text(str(DEFAULT_MAX_ATTEMPTS))),
        Column("rule", String(RULE_LENGTH), nullable=False),
        Column("zone", String(_ZONE_LENGTH), nullable=False),
        Column("catch_up", String(10), nullable=False),
        Column("paused", Integer, nullable=False, server_default=text("0")),
        Column("next_at", BigInteger, nullable=False),
        Column("last_at", BigInteger),
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        **MYSQL,
    )
