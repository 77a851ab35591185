"""``using=`` in a transaction that sees the database as it was when it began."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, text

from queue_db import QueueDB
from queue_db.errors import TransientStorageError
from tests.feeds.conftest import ORDERINGS


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_feed_that_the_transaction_cannot_see_is_asked_for_again(
    db: QueueDB, name: str, open_db: Callable[..., QueueDB], level: str
) -> None:
    engine = create_engine(db.database.engine.url, isolation_level=level)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM jobs_feeds"))
            open_db().feed(name).publish("n", "theirs")
            with pytest.raises(TransientStorageError):
                db.feed(name).publish("n", "ours", using=connection)
            connection.rollback()
            db.feed(name).publish("n", "again", using=connection)
            connection.commit()
    finally:
        engine.dispose()
    assert [message.payload for message in db.feed(name).read().messages] == ["theirs", "again"]


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_feed_that_the_transaction_still_sees_is_asked_for_again(
    db: QueueDB, name: str, open_db: Callable[..., QueueDB], make_feed: Callable[[str], str], ordering: str
) -> None:
    make_feed(ordering)
    feed = db.feed(name)
    feed.publish("n", "old")
    engine = create_engine(db.database.engine.url, isolation_level="REPEATABLE READ")
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM jobs_feeds"))
            open_db().feeds.delete(name)
            with pytest.raises(TransientStorageError):
                feed.publish("n", "too early", using=connection)
            connection.rollback()
            feed.publish("n", "again", using=connection)
            connection.commit()
    finally:
        engine.dispose()
    assert [message.payload for message in open_db().feed(name).read().messages] == ["again"]
