"""Engines of the laboratory's own, for the tables that are not the product's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, NullPool, create_engine, make_url

from queue_db.database.database import parse_url
from queue_db.dialects import dialect_for


@contextmanager
def autocommitting(url: str) -> Iterator[Engine]:
    """An engine whose every statement is a transaction of its own, and whose server runs at its default isolation level.

    Transactions begin with a BEGIN that the contestant sends itself, as the frameworks that it stands for do.
    """
    parsed = parse_url(make_url(url))
    options = dialect_for(parsed.get_backend_name()).engine_options(parsed)
    options["isolation_level"] = "AUTOCOMMIT"
    engine = create_engine(parsed, poolclass=NullPool, hide_parameters=True, **options)
    try:
        yield engine
    finally:
        engine.dispose()
