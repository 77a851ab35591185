"""Feeds numbered by ticks whose database came from a backup of another server: transactions have other numbers there."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, func, select, update

from queue_db import PermanentStorageError, QueueDB
from queue_db.feeds import Feed
from queue_db.store.base import Transaction
from queue_db.store.feeds import ticked
from tests.feeds.accounts import everything

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def feed(db: QueueDB, name: str) -> Feed:
    db.feeds.set(name, ordering="ticks")
    return db.feed(name)


def as_from_another_server(db: QueueDB, feed: Feed, more: int) -> None:
    """All numbers of transactions in the tables are higher by ``more``."""
    tables, of = db.store.tables.feeds, feed.row().id

    def later(snapshot: str) -> str:
        low, high, between = snapshot.split(":")
        return f"{int(low) + more}:{int(high) + more}:{','.join(str(int(xid) + more) for xid in between.split(',') if xid)}"

    with db.database.begin() as connection:
        connection.execute(update(tables.ticked).where(tables.ticked.c.feed == of).values(xid=tables.ticked.c.xid + more))
        for row in connection.execute(select(tables.ticks).where(tables.ticks.c.feed == of)).all():
            mine = update(tables.ticks).where(tables.ticks.c.feed == of, tables.ticks.c.last_seq == row.last_seq)
            previous = row.previous if row.previous == ticked.NOTHING else later(row.previous)
            connection.execute(mine.values(snapshot=later(row.snapshot), previous=previous))
        seen = ticked.glance(Transaction(connection, db.store), of)
        assert seen is not None
        last = seen.state.last
        state = ticked.TickState(last._replace(snapshot=later(last.snapshot), xid=last.xid + more))
        connection.execute(update(tables.feeds).where(tables.feeds.c.id == of).values(tick_state=state.dump()))


def test_a_restore_to_a_server_with_lower_numbers_is_noticed(feed: Feed, db: QueueDB) -> None:
    feed.publish_many([("n", number) for number in range(3)])
    assert len(everything(feed)) == 3
    with db.database.begin() as connection:
        feed.publish("n", "in the backup", using=connection)
    as_from_another_server(db, feed, 1_000_000_000)
    with db.database.begin() as connection:
        feed.publish("n", "on the new server", using=connection)
    with pytest.raises(PermanentStorageError, match=r"restored from a backup. Call db.feeds.restored\(\)"):
        feed.read(feed.start())
    assert db.feeds.restored() >= 1
    assert [payload for _, payload in everything(feed)] == [0, 1, 2, "in the backup", "on the new server"]
    feed.publish("n", "later")
    assert [payload for _, payload in everything(feed)][-1] == "later"
    assert [seq for seq, _ in everything(feed)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("above", [False, True])
def test_transactions_with_numbers_of_old_messages_bring_none_of_these_again(
    feed: Feed, db: QueueDB, url: str, above: bool
) -> None:
    """The next transactions of the new server have the numbers of those that published the messages of the backup.

    ``above``: a tick does not list them among the open ones, as none above them has ended.
    """
    # In transactions of the caller's, which take one number each: nothing else happens now and then.
    for number in range(50):
        with db.database.begin() as connection:
            feed.publish("n", number, using=connection)
    assert len(everything(feed)) == 50
    tables, of = db.store.tables.feeds, feed.row().id
    with db.database.begin() as connection:
        lowest = connection.execute(select(func.min(tables.ticked.c.xid)).where(tables.ticked.c.feed == of)).scalar_one()
        now = connection.execute(select(func.txid_current())).scalar_one()
    as_from_another_server(db, feed, now + 4 - lowest)
    assert db.feeds.restored() >= 1
    before = everything(feed)
    assert [payload for _, payload in before] == list(range(50))

    position, given, hit = feed.end(), [], set()
    engine = create_engine(url)
    for number in range(50, 70):
        with engine.connect() as another, engine.connect() as publisher:
            if above:
                feed.publish("n", str(number), using=publisher)
            hit.add(another.execute(select(func.txid_current())).scalar_one())
            if not above:
                feed.publish("n", str(number), using=publisher)
            publisher.commit()
            page = feed.read(position)
            given += [message.payload for message in page.messages]
            position = page.position
    engine.dispose()
    old = select(tables.ticked.c.xid).where(tables.ticked.c.feed == of, tables.ticked.c.id <= _state(db, of).base)
    with db.database.begin() as connection:
        assert len(hit & set(connection.execute(old).scalars())) >= 5, "no transaction had the number of an old one"
    assert given == [str(number) for number in range(50, 70)]
    assert everything(feed)[:50] == before


def _state(db: QueueDB, of: int) -> ticked.TickState:
    with db.database.begin() as connection:
        seen = ticked.glance(Transaction(connection, db.store), of)
    assert seen is not None
    return seen.state
