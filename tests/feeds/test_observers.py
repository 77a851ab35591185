"""No observer misses a message, however long its publisher takes to commit."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import create_engine

from queue_db import QueueDB
from queue_db.feeds import Feed
from queue_db.feeds.store import orderings
from queue_db.feeds.tables import feed_tables
from tests.feeds.conftest import ORDERINGS
from tests.feeds.observing import Observation
from tests.feeds.orderings import BelowXmin

OpenDB = Callable[..., QueueDB]
Make = Callable[[str], str]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_slow_publisher_is_not_missed(ordering: str, make_feed: Make, open_db: OpenDB, differs: Callable[[str], None]) -> None:
    if ordering != "counter":
        differs("one writer")
    pages = _slow(make_feed(ordering), ordering, open_db)
    assert sorted(pages[0] + pages[1]) == ["quick", "slow"]
    assert pages[0] == ([] if ordering == "counter" else ["quick"]), "who waits for whom"


def _slow(name: str, ordering: str, open_db: OpenDB) -> list[list[str]]:
    """One publisher's transaction is open while another publishes and an observer reads: its two pages."""
    slow, quick, observer = (open_db().feed(name) for _ in range(3))
    after = observer.start()
    other = threading.Thread(target=quick.publish, args=("n", "quick"))
    with slow.core.database.begin() as connection:
        slow.publish("n", "slow", using=connection)
        other.start()
        if ordering != "counter":
            other.join()  # it waits for nobody
        first = observer.read(after)
    other.join()
    second = observer.read(first.position)
    return [[message.payload for message in page.messages] for page in (first, second)]


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_numbers_from_a_sequence_miss_it(naive: str, make_feed: Make, open_db: OpenDB, kind: str) -> None:
    """The negative control of the test above."""
    name = make_feed("counter")
    make_naive(open_db(), name)
    pages = _slow(name, naive, open_db)
    assert pages == [["quick"], []], "the check does not notice a message that is missed"


def make_naive(db: QueueDB, name: str, ordering: str = "naive") -> None:
    """Give a feed the ordering of a control, and positions that are never ahead of it."""
    feeds = feed_tables(db.store.tables).feeds
    with db.database.begin() as connection:
        connection.execute(feeds.update().where(feeds.c.name == name).values(ordering=ordering, next_seq=2**62))


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_all_observers_see_all_messages_in_one_order(ordering: str, make_feed: Make, open_db: OpenDB) -> None:
    seen = Observation(open_db, make_feed(ordering), transactions=15, pause=0.005).run(6, 3)
    assert (seen.missed(), seen.repeated()) == (0, 0)
    assert seen.in_one_order()
    assert set(seen.observed[0]) == seen.committed, "a message of a transaction that was rolled back"
    assert _in_order_of_each_publisher(seen.observed[0])


def _in_order_of_each_publisher(texts: list[str]) -> bool:
    last: dict[str, tuple[int, int]] = {}
    for text in texts:
        publisher, turn, part = text.split("-")
        here = (int(turn), int(part))
        if last.get(publisher, (-1, 0)) >= here:
            return False
        last[publisher] = here
    return True


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], scope="session")
def test_observers_of_a_sequence_miss_messages(naive: str, make_feed: Make, open_db: OpenDB, kind: str) -> None:
    """The negative control of the test above; repeated until it happens."""
    name = make_feed("counter")
    make_naive(open_db(), name)
    for seed in range(50):
        if Observation(open_db, name, transactions=15, pause=0.005, seed=seed).run(6, 3).missed():
            return
    pytest.fail("the check does not notice messages that are missed")


def _while_another_writes(feed: Feed, url: str, observer: Feed) -> list[list[str]]:
    """What an observer reads while a transaction on something else is open that has written, and first after its end."""

    def texts() -> list[str]:
        return [message.payload for message in observer.read().messages]

    engine = create_engine(url)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE of_another_application (n INTEGER)")
        feed.publish("n", "published")
        pages = [texts()]
        connection.rollback()
    engine.dispose()
    # The server itself may write for a moment.
    return [*pages, next(filter(None, (texts() for _ in range(1000))))]


@pytest.fixture(params=["the same database", "another database"])
def writers_url(request: pytest.FixtureRequest, url: str, fresh_url: str) -> str:
    """Where a transaction writes that has nothing to do with the feed."""
    return {"the same database": url, "another database": fresh_url}[request.param]


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_no_other_writer_delays_a_message(ordering: str, make_feed: Make, writers_url: str, open_db: OpenDB) -> None:
    feed = open_db().feed(make_feed(ordering))
    assert _while_another_writes(feed, writers_url, open_db().feed(feed.name)) == [["published"], ["published"]]


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_below_the_oldest_open_transaction_any_writer_delays_it(
    db: QueueDB, name: str, writers_url: str, open_db: OpenDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above: who reads below ``xmin`` misses nothing, and waits for all."""
    monkeypatch.setitem(orderings.ORDERINGS, "xmin", BelowXmin())
    db.feeds.set(name, ordering="xmin")
    assert _while_another_writes(db.feed(name), writers_url, open_db().feed(name)) == [[], ["published"]]
