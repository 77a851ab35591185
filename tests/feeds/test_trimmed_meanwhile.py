"""Messages are trimmed while a page is read, or a span is claimed: what is left out is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queue_db import QueueDB
from queue_db.errors import TrimmedError
from queue_db.feeds import Feed, reading
from queue_db.feeds.store import cursors, messages, rows
from queue_db.feeds.tables import feed_tables
from queue_db.store.base import Transaction
from tests.races.interleaving import between


@pytest.fixture
def feed(db: QueueDB, make_feed: Callable[[str], str]) -> Feed:
    feed = db.feed(make_feed("counter"))
    feed.publish_many([("a", 0), ("b", 1), ("b", 2), ("a", 3), ("a", 4), ("a", 5)])
    return feed


def payloads(page: Any) -> list[Any]:
    return [message.payload for message in page.messages]


def test_a_reader_that_skips_goes_on_skipping(feed: Feed, db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
    db.feeds.set(feed.name, keep_rows=1, keep_unread=0)
    start, read, left = feed.start(), reading.once, iter(range(3))

    def after_a_publish(*args: Any, **named: Any) -> Any:
        if next(left, None) is not None:
            feed.publish_many([("n", "old"), ("n", "new")])
        return read(*args, **named)

    monkeypatch.setattr(reading, "once", after_a_publish)
    page = feed.read(start, on_trimmed="skip")
    assert (payloads(page), page.skipped) == (["new"], 11)


@pytest.mark.parametrize("on_trimmed", ["raise", "skip"])
def test_a_filtered_page_ends_where_messages_were_trimmed(
    feed: Feed, db: QueueDB, monkeypatch: pytest.MonkeyPatch, on_trimmed: str
) -> None:
    db.feeds.set(feed.name, keep_rows=1, keep_unread=0)
    read, trims = reading.once, iter([False, True])

    def after_a_trim(*args: Any, **named: Any) -> Any:
        if next(trims, False):
            feed.trim()
        return read(*args, **named)

    monkeypatch.setattr(reading, "once", after_a_trim)
    page = feed.read(limit=2, kinds=["a"], on_trimmed=on_trimmed)
    assert payloads(page) == [0]
    with pytest.raises(TrimmedError, match="3 messages"):
        feed.read(page.position)


def test_a_first_page_ends_at_its_last_message(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    by_id = rows.by_id

    def after_a_trim(tx: Transaction, of: int) -> Any:
        messages.trim_messages(tx, of, messages.Extent(6, 1, None, 0), 6)
        return by_id(tx, of)

    with monkeypatch.context() as patch:
        patch.setattr(rows, "by_id", after_a_trim)
        page = feed.read(limit=2)
    assert payloads(page) == [0, 1]
    with pytest.raises(TrimmedError, match="3 messages"):
        feed.read(page.position)


# PostgreSQL looks and locks in one statement.
@pytest.mark.parametrize("kind", ["sqlite", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("on_trimmed", ["raise", "skip"])
def test_a_claim_reports_what_was_trimmed_before_a_cursor_that_was_moved_back(
    kind: str, open_db: Callable[..., QueueDB], make_feed: Callable[[str], str], on_trimmed: str
) -> None:
    """A seek has read the feed before a trim, and moves the cursor between the look of a claim and its lock."""
    name = make_feed("counter")
    db, other = open_db(), open_db()
    feed = db.feed(name)
    feed.publish_many([("n", number) for number in range(6)])
    shared = feed.shared("mailers", on_trimmed=on_trimmed)
    span = shared.claim(5)
    assert span is not None
    assert span.complete()
    db.feeds.set(name, keep_rows=2, keep_unread=0)
    assert feed.trim() == 4

    def move_back() -> bool:
        return other.core.write("cursors.seek", cursors.seek, shared.feed_id, "mailers", 0)

    # The first statement after the look.
    start = "BEGIN" if kind == "sqlite" else f"SELECT {feed_tables(db.store.tables).cursors.name}.handed".upper()
    with between(db.database.engine, start, move_back) as done:
        if on_trimmed == "raise":
            with pytest.raises(TrimmedError, match="4 messages"):
                shared.claim()
        else:
            span = shared.claim()
            assert span is not None
            assert ([message.payload for message in span.messages], shared.skipped) == ([4, 5], 4)
    assert done == [True]
