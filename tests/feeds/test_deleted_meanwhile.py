"""A feed is deleted while others publish to it: a message is deleted with it or published to the next feed of this name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, select

from queue_db import QueueDB
from queue_db.errors import TransientStorageError
from queue_db.feeds.store import rows
from queue_db.feeds.tables import feed_tables
from queue_db.store.base import Transaction
from tests.feeds.conftest import ORDERINGS
from tests.races.interleaving import Loser

Make = Callable[[str], str]
OpenDB = Callable[..., QueueDB]


def without_a_feed(db: QueueDB) -> list[int]:
    """The ids of feeds that are not there, of messages that are."""
    tables = feed_tables(db.store.tables)
    with db.database.begin() as connection:
        feeds = set(connection.execute(select(tables.feeds.c.id)).scalars())
        return [
            feed
            for table in (tables.inbox, tables.messages)
            for feed in connection.execute(select(table.c.feed).distinct()).scalars()
            if feed not in feeds
        ]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_delete_loses_to_an_open_publisher(kind: str, db: QueueDB, open_db: OpenDB, make_feed: Make, ordering: str) -> None:
    feed, theirs = db.feed(make_feed(ordering)), open_db()
    feed.publish("n", 1)
    with db.database.begin() as connection:
        feed.publish("n", 2, using=connection)
        delete = Loser(kind, theirs, lambda: theirs.feeds.delete(feed.name))
        assert delete.until_it_waits()
    assert delete.result()
    assert without_a_feed(db) == []
    feed.publish("n", 3)
    assert [message.payload for message in theirs.feed(feed.name).read().messages] == [3]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_publisher_loses_to_an_open_delete(kind: str, db: QueueDB, open_db: OpenDB, make_feed: Make, ordering: str) -> None:
    feed, theirs = db.feed(make_feed(ordering)), open_db()
    feed.publish("n", 1)
    with theirs.database.begin() as connection:
        assert rows.remove(Transaction(connection, theirs.store), feed.name)
        publish = Loser(kind, db, lambda: feed.publish("n", 2))
        assert publish.until_it_waits()
    publish.result()
    assert without_a_feed(db) == []
    assert [message.payload for message in theirs.feed(feed.name).read().messages] == [2]


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("ordering", ["counter", "ranked"])
def test_a_publisher_that_waits_too_long_for_a_delete_names_the_feed(
    kind: str, db: QueueDB, open_db: OpenDB, make_feed: Make, ordering: str
) -> None:
    feed, theirs = db.feed(make_feed(ordering)), open_db()
    feed.publish("n", 1)
    short = "SET LOCAL lock_timeout = '50ms'" if kind == "postgresql" else "SET SESSION innodb_lock_wait_timeout = 1"
    engine = create_engine(db.database.engine.url)
    with theirs.database.begin() as connection:
        assert rows.remove(Transaction(connection, theirs.store), feed.name)
        with engine.connect() as own:
            own.exec_driver_sql(short)
            with pytest.raises(TransientStorageError) as caught:
                feed.publish("n", 2, using=own)
    engine.dispose()
    (note,) = caught.value.__notes__
    assert f"has locked feed {feed.name!r}" in note


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_a_ranker_wins_against_an_open_publisher(db: QueueDB, open_db: OpenDB, make_feed: Make) -> None:
    """What keeps the feed from being deleted keeps nobody from ranking, trimming or setting it."""
    feed, theirs = db.feed(make_feed("ranked")), open_db()
    feed.publish("n", 1)
    with db.database.begin() as connection:
        feed.publish("n", "slow", using=connection)
        for number in (2, 3):
            theirs.feed(feed.name).publish("n", number)
        assert [message.payload for message in theirs.feed(feed.name).read().messages] == [1, 2, 3]
        theirs.feeds.set(feed.name, keep_rows=1, keep_unread=0)
        assert theirs.feed(feed.name).trim() == 2
    assert [message.payload for message in theirs.feed(feed.name).read().messages] == ["slow"]
