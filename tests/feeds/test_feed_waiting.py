"""A waiting reader is woken by a publisher: through the database where it has notifications, within a process everywhere."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

from queue_db import QueueDB
from queue_db.dialects import dialect_for
from queue_db.errors import TransientStorageError
from queue_db.feeds import cursor, waiting
from queue_db.feeds.notifications import notifications_of
from queue_db.notifications.wakeup import Wakeup
from tests.feeds.conftest import ORDERINGS
from tests.patience import HOURS, PATIENCE, UntilWoken

Make = Callable[[str], str]
OpenDB = Callable[..., QueueDB]
POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def until_it_waits(kind: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns when a reader waits that looks at the feed again in a few hours, unless it is woken before."""
    monkeypatch.setattr(waiting, "Pause", UntilWoken)
    wait, calls, waits = Wakeup.wait, [0], threading.Event()

    def watched(self: Wakeup, seconds: float) -> Any:
        calls[0] += 1
        if not dialect_for(kind).notifies or calls[0] > 1:  # otherwise the first one begins to listen
            waits.set()
        return wait(self, seconds)

    monkeypatch.setattr(Wakeup, "wait", watched)

    def until() -> None:
        assert waits.wait(PATIENCE)

    return until


@contextmanager
def next_message(db: QueueDB, feed: str) -> Iterator[Future[Any]]:
    """The payload of the next message, read by a cursor in a thread of its own."""

    def follow() -> Any:
        with db.feed(feed).cursor("reader", lease=3 * HOURS) as cursor:
            return next(cursor.follow(poll=HOURS)).payload

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(follow)


@POSTGRESQL
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("using", [False, True])
def test_a_reader_is_woken_by_another_process(
    db: QueueDB, open_db: OpenDB, make_feed: Make, until_it_waits: Callable[[], None], ordering: str, using: bool
) -> None:
    name, publisher = make_feed(ordering), open_db()
    with next_message(db, name) as message:
        until_it_waits()
        if using:
            with publisher.database.begin() as connection:
                publisher.feed(name).publish("n", "here", using=connection)
        else:
            publisher.feed(name).publish("n", "here")
        assert message.result(PATIENCE) == "here"


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_reader_is_woken_within_its_process(
    db: QueueDB, make_feed: Make, until_it_waits: Callable[[], None], monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    monkeypatch.setattr(type(db.store.dialect), "notifies", False)
    name = make_feed(ordering)
    with next_message(db, name) as message:
        until_it_waits()
        db.feed(name).publish("n", "here")
        assert message.result(PATIENCE) == "here"


@POSTGRESQL
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_without_the_notification_it_waits(
    db: QueueDB,
    open_db: OpenDB,
    make_feed: Make,
    until_it_waits: Callable[[], None],
    ordering: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The negative control: a publisher that does not notify, and then the notification alone."""
    name, publisher, other = make_feed(ordering), open_db(), open_db()
    channel = notifications_of(db.store).channel_of(name)
    with next_message(db, name) as message:
        until_it_waits()
        with monkeypatch.context() as patch:
            patch.setattr(type(db.store.dialect), "notifies", False)
            publisher.feed(name).publish("n", "unheard")
        with other.database.begin() as connection:
            connection.execute(text("SELECT pg_notify(:channel, 'another feed')"), {"channel": channel})
        assert not message.done()
        with other.database.begin() as connection:
            connection.execute(text("SELECT pg_notify(:channel, :name)"), {"channel": channel, "name": name})
        assert message.result(PATIENCE) == "unheard"


@POSTGRESQL
def test_a_transaction_notifies_once_and_one_that_is_rolled_back_never(db: QueueDB, open_db: OpenDB, make_feed: Make) -> None:
    name = make_feed("ranked")
    listener = db.database.listen(notifications_of(db.store).channel_of(name))
    assert listener is not None
    feed = open_db().feed(name)
    with feed.core.database.begin() as connection:
        feed.publish_many([("n", number) for number in range(3)], using=connection)
        feed.publish("n", 3, using=connection)
    with (
        feed.core.database.engine.connect() as connection,
        connection.execution_options(isolation_level="READ COMMITTED").begin() as own,
    ):
        feed.publish("n", "no", using=connection)
        own.rollback()
    with db.database.begin() as connection:
        connection.execute(text("SELECT pg_notify(:channel, 'end')"), {"channel": notifications_of(db.store).channel_of(name)})
    received: list[str] = []
    raw: Any = listener
    while "end" not in received:
        assert select.select([listener], [], [], PATIENCE)[0]
        raw._raw.poll()
        received += [notice.payload for notice in raw._raw.notifies]
        raw._raw.notifies.clear()
    listener.close()
    assert received == [name, "end"]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_reader_that_cannot_listen_looks(
    db: QueueDB, open_db: OpenDB, make_feed: Make, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    def refused(channel: str) -> None:
        raise TransientStorageError("listen: refused")

    monkeypatch.setattr(db.database, "listen", refused)
    monkeypatch.setattr(type(db.store.dialect), "notifies", False)
    name, seen = make_feed(ordering), []
    first_look = threading.Event()
    read = cursor.read_page
    monkeypatch.setattr(cursor, "read_page", lambda *args: (read(*args), first_look.set())[0])

    def follow() -> None:
        with db.feed(name).cursor("reader") as opened:
            seen.append(next(opened.follow()).payload)

    reader = threading.Thread(target=follow)
    reader.start()
    assert first_look.wait(PATIENCE)
    open_db().feed(name).publish("n", "found")
    reader.join(PATIENCE)
    assert seen == ["found"]
