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


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_transaction_that_has_read_before_another_published(
    db: QueueDB, open_db: Callable[..., QueueDB], make_feed: Callable[[str], str], ordering: str
) -> None:
    """It publishes, or is told what to do, and that helps."""
    feed = db.feed(make_feed(ordering))
    feed.publish("n", 0)
    refused: list[tuple[str, list[str]]] = []
    engine = create_engine(db.database.engine.url, isolation_level="REPEATABLE READ")
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM jobs")).all()
            open_db().feed(feed.name).publish("n", 1)
            open_db().feed(feed.name).rank()
            try:
                feed.publish("n", 2, using=connection)
            except TransientStorageError as error:
                refused.append((ordering, error.__notes__))
                connection.rollback()
                feed.publish("n", 2, using=connection)
            connection.commit()
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            connection.execute(text("SELECT count(*) FROM jobs")).all()
            open_db().feed(feed.name).publish("n", 3)
            feed.publish("n", 4, using=connection)
            connection.commit()
    finally:
        engine.dispose()
    assert [message.payload for message in feed.read().messages] == [0, 1, 2, 3, 4]
    assert all(ordering == "counter" and "READ COMMITTED" in notes[0] for ordering, notes in refused)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_a_transaction_that_has_read_before_another_one_counted(db: QueueDB, name: str, open_db: Callable[..., QueueDB]) -> None:
    """All rows of a counter are there and have changed, so the publish meets a changed one."""
    db.routes.set(name, count=name)
    db.routes.subscribe(name, name, "exact")
    topic, other = db.topic(name), open_db().topic(name)
    for _ in range(200):
        topic.publish("n")
    refused: list[list[str]] = []
    engine = create_engine(db.database.engine.url, isolation_level="REPEATABLE READ")
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM jobs")).all()
            for _ in range(200):
                other.publish("n")
            try:
                topic.publish("n", using=connection)
            except TransientStorageError as error:
                refused.append(error.__notes__)
                connection.rollback()
                topic.publish("n", using=connection)
            connection.commit()
        assert [info.messages for info in db.routes.list() if info.name == name] == [401]
    finally:
        engine.dispose()
        db.routes.remove(name)
        db.routes.reset(name)
    assert all("run the transaction again" in notes[0] for notes in refused)
