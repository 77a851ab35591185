"""The tables of feeds in a schema of their own; on MySQL and MariaDB that is another database."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text

from queue_db import QueueDB
from tests.feeds.conftest import ORDERINGS


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_feeds_in_a_schema(url: str, name: str, ordering: str) -> None:
    schema = name.replace("-", "_")
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {schema}"))
        with QueueDB(url, schema=schema) as db, QueueDB(url) as other:
            db.migrate()
            db.feeds.set(name, ordering=ordering, keep_rows=3, keep_unread=0)
            other.feed(name).publish("n", "elsewhere")
            feed = db.feed(name)
            feed.publish_many([("n", number) for number in range(4)])
            with engine.begin() as connection:
                feed.publish("n", 4, using=connection)
            with feed.cursor("all", on_trimmed="skip") as cursor:
                assert [message.payload for message in cursor.follow(idle=0)] == [2, 3, 4]
            assert feed.trim() == 0
            assert db.feeds.purge(name) == 3
            assert db.feeds.delete(name)
            assert len(other.feed(name).read().messages) == 1
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {schema}{' CASCADE' if url.startswith('postgresql') else ''}"))
        engine.dispose()
