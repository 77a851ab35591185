"""Who numbers the messages of a ranked feed, and how many at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import func, select

from queue_db import QueueDB
from queue_db.store.feeds import ranking


def test_long_messages_are_ranked_in_several_transactions(
    db: QueueDB, make_feed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they would fill the memory, or a statement's limit on the server, and nothing would get a number again."""
    monkeypatch.setattr(ranking, "CHARACTERS_AT_ONCE", 100, raising=False)
    feed = db.feed(make_feed("ranked"))
    sizes = [30, 30, 30, 90, 200, 10, 10]
    with db.database.begin() as connection:
        for size in sizes:
            feed.publish("n", "x" * size, using=connection)
    ranked = []
    while some := db.core.write(ranking.rank, feed.row().id):
        ranked.append(some)
    assert ranked == [3, 1, 1, 2]
    assert [len(message.payload) for message in feed.read().messages] == sizes


def test_publishers_number_now_and_then_and_readers_what_they_read(
    db: QueueDB, make_feed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each publish it would cost more than the publish."""
    monkeypatch.setattr("queue_db.feeds.feed._RANK_EVERY", 3600.0)
    feed = db.feed(make_feed("ranked"))
    inbox = db.store.tables.feeds.inbox

    def waiting() -> int:
        with db.database.engine.connect() as connection:
            return connection.execute(select(func.count()).where(inbox.c.feed == feed.row().id)).scalar_one()

    feed.publish("n", 1)
    assert waiting() == 0
    feed.publish("n", 2)
    feed.publish("n", 3)
    assert waiting() == 2
    assert [message.payload for message in feed.read().messages] == [1, 2, 3]
    assert waiting() == 0
