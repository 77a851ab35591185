"""How much one ranker takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
