"""Engines for the tables that do not belong to the product."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, NullPool, create_engine

from queue_db.database import addresses
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_for


@contextmanager
def autocommitting(url: str) -> Iterator[Engine]:
    """An engine in autocommit mode at the server's default isolation level.

    A contestant sends the BEGIN of a transaction itself, like the framework that it represents.
    """
    parsed = parse_url(addresses.parsed(url))
    dialect = dialect_for(parsed.get_backend_name())
    options = dialect.server.engine_options(parsed)
    options["isolation_level"] = "AUTOCOMMIT"
    engine = create_engine(parsed, poolclass=NullPool, hide_parameters=True, **options)
    addresses.follow(engine, dialect)
    try:
        yield engine
    finally:
        engine.dispose()
