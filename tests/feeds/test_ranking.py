"""Who numbers the messages of a ranked feed, and how many at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from queue_db import QueueDB
from queue_db.feeds.store import ranking
from queue_db.feeds.tables import feed_tables


def test_long_messages_are_ranked_in_several_transactions(
    db: QueueDB, make_feed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they could take longer than the timeouts allow, and nothing would get a number again."""
    monkeypatch.setattr(ranking, "SIZE_AT_ONCE", 100)
    feed = db.feed(make_feed("ranked"))
    sizes = [30, 30, 30, 90, 200, 10, 10]
    with db.database.begin() as connection:
        for size in sizes:
            feed.publish("n", "x" * size, using=connection)
    ranked = []
    while some := db.core.write("ranking.rank", ranking.rank, feed.row().id):
        ranked.append(some)
    assert ranked == [3, 1, 1, 2]
    assert [len(message.payload) for message in feed.read().messages] == sizes


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("waiting", [2, ranking.RANKED_AT_ONCE])
def test_an_open_publisher_does_not_block_the_ranker(
    db: QueueDB, make_feed: Callable[[str], str], open_db: Callable[..., QueueDB], waiting: int
) -> None:
    """Nor does the ranker wait where it moves all rows but that publisher's, which a planner would rather read too."""
    feed, texts = db.feed(make_feed("ranked")), [str(number) for number in range(waiting)]
    with open_db().database.begin() as connection:
        open_db().feed(feed.name).publish("n", "open", using=connection)
        with db.database.begin() as other:
            feed.publish_many([("n", text) for text in texts], using=other)
        assert db.core.write("ranking.rank", ranking.rank, feed.row().id) == waiting
    assert [message.payload for message in feed.read(limit=waiting + 1).messages] == [*texts, "open"]


def test_publishers_number_now_and_then_and_readers_what_they_read(
    db: QueueDB, make_feed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each publish it would cost more than the publish."""
    monkeypatch.setattr("queue_db.feeds.publishing._RANK_EVERY", 3600.0)
    feed = db.feed(make_feed("ranked"))
    inbox = feed_tables(db.store.tables).inbox

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


def test_messages_that_are_published_meanwhile_do_not_keep_a_reader_from_the_end(
    db: QueueDB, make_feed: Callable[[str], str], open_db: Callable[..., QueueDB], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each ranking of two messages others publish two more."""
    monkeypatch.setattr(ranking, "RANKED_AT_ONCE", 2)
    feed = db.feed(make_feed("ranked"))
    rival, write, left = open_db(), db.core.write, iter(range(100))

    def publish(numbers: range) -> None:
        with rival.database.begin() as connection:
            rival.feed(feed.name).publish_many([("n", number) for number in numbers], using=connection)

    def and_publish(change: Any, *args: Any, **kwargs: Any) -> Any:
        done = write(change, *args, **kwargs)
        if next(left, None) is not None:
            publish(range(5, 7))
        return done

    publish(range(5))
    monkeypatch.setattr(db.core, "write", and_publish)
    end = feed.end()
    monkeypatch.undo()
    numbered = [message.payload for message in feed.read(limit=6).messages]
    assert numbered[:5] == list(range(5)), "what was there before the call is numbered"
    assert end == feed.read(limit=6).position, "and no more than the last round of the ranker has numbered"
