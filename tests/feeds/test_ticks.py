"""Feeds numbered by ticks: each committed message is of one tick, whatever transactions are open and whoever ticks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, func, select, text

from queue_db import ArgumentError, QueueDB, UnsupportedError
from queue_db.feeds import Feed
from queue_db.store.base import Transaction
from queue_db.store.feeds import orderings, ranges, ticked, ticking
from tests.feeds.accounts import everything
from tests.feeds.orderings import BelowXmin

OpenDB = Callable[..., QueueDB]

on_postgresql = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def feed(db: QueueDB, name: str) -> Feed:
    db.feeds.set(name, ordering="ticks")
    return db.feed(name)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Transactions that the test begins and ends."""
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def small_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few messages are a backlog."""
    monkeypatch.setattr(ticking, "TICKED_AT_ONCE", 7)
    monkeypatch.setattr(ticking, "MESSAGES", 3)
    monkeypatch.setattr(ticking, "IDS", 40)


def texts(feed: Feed, **how: Any) -> list[Any]:
    return [message.payload for message in feed.read(**how).messages]


def rows(db: QueueDB, feed: Feed) -> list[int]:
    """How many ticks and how many messages are stored."""
    counts = []
    with db.database.begin() as connection:
        for table in (db.store.tables.feeds.ticks, db.store.tables.feeds.ticked):
            query = select(func.count()).select_from(table).where(table.c.feed == feed.row().id)
            counts.append(connection.execute(query).scalar_one())
    return counts


@pytest.mark.parametrize("kind", ["sqlite", "mysql", "mariadb"], scope="session")
def test_other_databases_refuse_it(db: QueueDB, name: str) -> None:
    with pytest.raises(UnsupportedError, match="ordering 'ticks' needs snapshots of transactions"):
        db.feeds.set(name, ordering="ticks")
    assert name not in [info.name for info in db.feeds.list()]


@on_postgresql
def test_claims_are_refused(db: QueueDB, name: str) -> None:
    with pytest.raises(ArgumentError, match="'ticks' has none, use counter or ranked"):
        db.feeds.set(name, ordering="ticks", claims=True)
    assert name not in [info.name for info in db.feeds.list()]


@on_postgresql
def test_an_open_transaction_delays_only_its_own_message(feed: Feed, db: QueueDB) -> None:
    with db.database.begin() as connection:
        feed.publish("n", "slow", using=connection)
        for number in range(3):
            feed.publish("n", number)
            assert texts(feed)[-1] == number
    assert texts(feed) == [0, 1, 2, "slow"]
    assert [seq for seq, _ in everything(feed)] == [1, 2, 3, 4]


@on_postgresql
@pytest.mark.parametrize("within", [False, True])
def test_a_transaction_above_all_that_have_ended_is_not_missed(
    feed: Feed, open_db: OpenDB, engine: Engine, monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    """A snapshot does not list it among the open ones: it only has a number that no ended transaction has reached.

    ``within``: it begins while another one ticks.
    """
    elsewhere, now = open_db().feed(f"{feed.name}-elsewhere"), ticking._now
    elsewhere.row()
    feed.publish("n", "first")
    with engine.connect() as above, engine.connect() as below:
        elsewhere.publish("n", "gives the transaction its number", using=below)

        def publish_both() -> None:
            feed.publish("n", "above", using=above)
            feed.publish("n", "below", using=below)
            numbers = [connection.execute(select(func.txid_current())).scalar_one() for connection in (below, above)]
            assert numbers == sorted(numbers)
            below.commit()

        def after_both(*args: Any) -> ticked.Moment:
            publish_both()
            return now(*args)

        if within:
            with open_db().database.begin() as connection:
                feed.publish("n", "what there is to number", using=connection)
            with monkeypatch.context() as patch:
                patch.setattr(ticking, "_now", after_both)
                feed.rank()
        else:
            publish_both()
        found = texts(feed)
        assert "below" in found
        assert "above" not in found
        above.commit()
    assert texts(feed) == [*found, "above"]


@on_postgresql
def test_savepoints(feed: Feed, db: QueueDB) -> None:
    """What a transaction writes within a savepoint is its own, also after another tick."""
    with db.database.begin() as connection:
        with connection.begin_nested():
            feed.publish("n", "kept", using=connection)
            feed.publish("n", "at once")
            assert texts(feed) == ["at once"]
        undone = connection.begin_nested()
        feed.publish("n", "undone", using=connection)
        undone.rollback()
        feed.publish("n", "after", using=connection)
    assert texts(feed) == ["at once", "kept", "after"]


@on_postgresql
def test_a_second_ticker_loses(feed: Feed, db: QueueDB, open_db: OpenDB) -> None:
    """It neither waits nor numbers anything again."""
    with db.database.begin() as connection:
        feed.publish_many([("n", number) for number in range(3)], using=connection)
    other, of = open_db(), feed.row().id
    with db.database.begin() as connection:
        assert ticking.tick(Transaction(connection, db.store), of) == 3
        assert other.core.write(ticking.tick, of) == 0
        assert other.feed(feed.name).read().messages == []
    assert other.core.write(ticking.tick, of) == 0
    assert everything(feed) == [(1, 0), (2, 1), (3, 2)]


@on_postgresql
def test_a_ticker_that_dies_leaves_all_to_the_next_one(feed: Feed, db: QueueDB, engine: Engine) -> None:
    with db.database.begin() as connection:
        feed.publish("n", "left", using=connection)
    with engine.connect() as connection:
        assert ticking.tick(Transaction(connection, db.store), feed.row().id) == 1
        connection.rollback()
    assert everything(feed) == [(1, "left")]


@on_postgresql
def test_a_backlog_is_several_ticks_of_one_snapshot(feed: Feed, db: QueueDB, small_ticks: None) -> None:
    with db.database.begin() as connection:
        feed.publish_many([("n", number) for number in range(20)], using=connection)
    core, of = db.core, feed.row().id
    assert core.write(ticking.tick, of) == 7
    feed.publish("n", 20)  # it numbers some of those before it
    assert [info.waiting for info in db.feeds.list() if info.name == feed.name] == [7]
    assert [core.write(ticking.tick, of) for _ in range(3)] == [6, 1, 0]
    assert everything(feed) == [(number + 1, number) for number in range(21)]
    assert rows(db, feed)[1] == 21


@on_postgresql
def test_a_page_reads_few_messages_before_it(feed: Feed, db: QueueDB, small_ticks: None) -> None:
    with db.database.begin() as connection:
        feed.publish_many([("n", number) for number in range(100)], using=connection)
    feed.rank()
    end = feed.read(limit=80).position
    for limit in (1, 5):
        assert texts(feed, after=end, limit=limit) == list(range(80, 80 + limit))
    between = ticked.Ticked().between(db.store.tables.feeds, feed.row().id, 80, None, 5)
    with db.database.begin() as connection:
        ticks = connection.execute(select(between.rows.c.tick).distinct()).scalars().all()
    assert len(ticks) <= 4


@on_postgresql
def test_a_trim_within_a_tick_leaves_the_numbers(feed: Feed, db: QueueDB) -> None:
    db.feeds.set(feed.name, keep_rows=3, keep_unread=0)
    with db.database.begin() as connection:
        feed.publish_many([("n", number) for number in range(10)], using=connection)
    feed.rank()
    assert everything(feed) == [(8, 7), (9, 8), (10, 9)]
    assert rows(db, feed) == [1, 3]
    with db.database.begin() as connection:
        feed.publish_many([("n", number) for number in (10, 11)], using=connection)
    assert everything(feed) == [(10, 9), (11, 10), (12, 11)]
    assert rows(db, feed) == [2, 3]


@on_postgresql
def test_a_purge_within_a_backlog_hides_no_later_message(feed: Feed, db: QueueDB, small_ticks: None) -> None:
    with db.database.begin() as connection:
        feed.publish_many([("n", number) for number in range(20)], using=connection)
    assert feed.rank_once(feed.row()) == 7
    db.feeds.purge(feed.name)
    with db.database.begin() as connection:
        feed.publish("n", "after", using=connection)
    assert texts(feed) == ["after"]


@on_postgresql
@pytest.mark.parametrize("csv", [False, True])
def test_ranges_of_messages(feed: Feed, db: QueueDB, small_ticks: None, csv: bool) -> None:
    """As Spark reads them."""
    feed.publish_many([("even" if number % 2 == 0 else "odd", number) for number in range(20)])
    feed.rank()
    store, row = replace(db.store, csv=csv), feed.row(fresh=True)

    def read(limit: int, kinds: list[str] | None = None) -> list[int]:
        asked = {"after": 5, "high": 15, "limit": limit, "columns": ["seq", "payload"], "kinds": kinds}
        with db.database.begin() as connection:
            found, page = ranges.page(Transaction(connection, store), row.id, row.ordering, **asked)
        assert found == row
        if isinstance(page, bytes):
            return [int(line.split(",")[0]) for line in page.decode().splitlines()]
        return [one[0] for one in page]

    assert read(100) == list(range(6, 16))
    assert read(4) == [6, 7, 8, 9]
    assert read(3, kinds=["odd"]) == [6, 8, 10]


@on_postgresql
def test_messages_by_their_positions(feed: Feed, small_ticks: None) -> None:
    feed.publish_many([("n", number) for number in range(20)])
    feed.rank()
    found = feed.read().messages
    some = [found[at].position for at in (0, 3, 4, 19)]
    assert [message.payload for message in feed.get(some)] == [0, 3, 4, 19]


def _while_another_writes(feed: Feed, url: str, observer: Feed) -> list[list[Any]]:
    """What an observer reads while a transaction on something else is open that has written, and first after its end."""
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE of_another_application (n INTEGER)"))
        feed.publish("n", "published")
        pages = [texts(observer)]
        connection.rollback()
    engine.dispose()
    # The server itself may write for a moment.
    return [*pages, next(filter(None, (texts(observer) for _ in range(1000))))]


@pytest.fixture(params=["the same database", "another database"])
def writers_url(request: pytest.FixtureRequest, url: str, fresh_url: str) -> str:
    """Where a transaction writes that has nothing to do with the feed."""
    return {"the same database": url, "another database": fresh_url}[request.param]


@on_postgresql
def test_no_other_writer_delays_a_message(feed: Feed, writers_url: str, open_db: OpenDB) -> None:
    assert _while_another_writes(feed, writers_url, open_db().feed(feed.name)) == [["published"], ["published"]]


@on_postgresql
def test_below_the_oldest_open_transaction_any_writer_delays_it(
    db: QueueDB, name: str, writers_url: str, open_db: OpenDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above: who reads below ``xmin`` misses nothing, and waits for all."""
    monkeypatch.setitem(orderings.ORDERINGS, "xmin", BelowXmin())
    db.feeds.set(name, ordering="xmin")
    assert _while_another_writes(db.feed(name), writers_url, open_db().feed(name)) == [[], ["published"]]


class Schedule:
    """Publishers, tickers, a reader and retention in an order that chance gives; nobody waits for anybody, so one thread does."""

    def __init__(self, db: QueueDB, feed: Feed, engine: Engine, seed: int) -> None:
        self.db, self.feed, self.engine, self.rng = db, feed, engine, random.Random(seed)
        self.open: list[tuple[Connection, list[str]]] = []
        self.count = 0
        self.committed: list[str] = []
        self.read: list[tuple[int, str]] = []
        self.position = feed.start()

    def run(self, steps: int) -> None:
        actions = [self.begin, self.publish, self.publish, self.undo, self.commit, self.roll_back, self.tick, self.look]
        for _ in range(steps):
            self.rng.choice(actions)()
        while self.open or self.look():
            self.commit()

    def texts(self) -> list[str]:
        first, self.count = self.count, self.count + self.rng.randint(1, 5)
        return [str(number) for number in range(first, self.count)]

    def begin(self) -> None:
        if len(self.open) < 5:
            connection = self.engine.connect()
            self.open.append((connection, []))
            if self.rng.random() < 0.5:
                connection.execute(select(func.txid_current()))

    def meanwhile(self) -> None:
        """What others do between two statements of a ticker."""
        for _ in range(4):
            self.rng.choice([self.begin, self.publish, self.commit])()

    def publish(self) -> None:
        if not self.open:
            return
        texts = self.texts()
        connection, mine = self.rng.choice(self.open)
        self.feed.publish_many([("n", text) for text in texts], using=connection)
        mine += texts

    def undo(self) -> None:
        if self.open:
            connection, mine = self.rng.choice(self.open)
            with connection.begin_nested() as savepoint:
                texts = self.texts()
                self.feed.publish_many([("n", text) for text in texts], using=connection)
                if self.rng.random() < 0.5:
                    savepoint.rollback()
                else:
                    mine += texts

    def commit(self) -> None:
        self._end(kept=True)

    def roll_back(self) -> None:
        self._end(kept=False)

    def _end(self, *, kept: bool) -> None:
        if self.open:
            connection, mine = self.open.pop(self.rng.randrange(len(self.open)))
            if kept:
                connection.commit()
                self.committed += mine
            connection.close()

    def tick(self) -> None:
        self.db.core.write(ticking.tick, self.feed.row().id)

    def look(self) -> int:
        page = self.feed.read(self.position, limit=self.rng.randint(1, 9))
        self.read += [(message.seq, message.payload) for message in page.messages]
        self.position = page.position
        return len(page.messages)


@pytest.fixture
def random_schedule(
    feed: Feed, db: QueueDB, engine: Engine, small_ticks: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Schedule]:
    now = ticking._now

    def run(seed: int) -> Schedule:
        schedule = Schedule(db, feed, engine, seed)

        def after_others(*args: Any) -> ticked.Moment:
            schedule.meanwhile()
            return now(*args)

        monkeypatch.setattr(ticking, "_now", after_others)
        schedule.run(120)
        return schedule

    return run


def problems(schedule: Schedule) -> Iterator[str]:
    """What is wrong with what was read."""
    seqs, read = [seq for seq, _ in schedule.read], [text for _, text in schedule.read]
    if sorted(read) != sorted(schedule.committed):
        yield "not each committed message once"
    if seqs != list(range(seqs[0], seqs[0] + len(seqs))):
        yield "the numbers have gaps"
    if everything(schedule.feed)[-len(read) :] != schedule.read:
        yield "a later read has other numbers"


@on_postgresql
@pytest.mark.parametrize("seed", range(15))
def test_any_schedule(random_schedule: Callable[[int], Schedule], seed: int) -> None:
    assert list(problems(random_schedule(seed))) == []


@on_postgresql
def test_without_the_transactions_that_were_open_messages_are_missed(
    random_schedule: Callable[[int], Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above; repeated until it happens."""
    monkeypatch.setattr(ticked.Moment, "open", property(lambda moment: []))
    for seed in range(20):
        if "not each committed message once" in problems(random_schedule(seed)):
            return
    pytest.fail("the check does not notice messages that are missed")
