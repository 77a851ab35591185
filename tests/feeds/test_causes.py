"""Whoever publishes after having read a message comes after it, however early its transaction began."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.feeds.store import orderings
from tests.feeds.conftest import ORDERINGS
from tests.feeds.orderings import ByTransaction
from tests.feeds.test_observers import make_naive

Make = Callable[[str], str]
OpenDB = Callable[..., QueueDB]


def _replies(name: str, open_db: OpenDB) -> list[str]:
    """A transaction writes early; then another process asks; the transaction reads that and replies: what an observer reads."""
    replying, asking, observer = (open_db().feed(name) for _ in range(3))
    elsewhere = open_db().feed(f"{name}-elsewhere")
    start = observer.start()
    with replying.core.database.begin() as connection:
        elsewhere.publish("n", "written early", using=connection)
        asking.publish("n", "question")
        assert [message.payload for message in replying.read(start).messages] == ["question"]
        replying.publish("n", "reply", using=connection)
    return [message.payload for message in observer.read(start).messages]


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")  # SQLite has one writer at a time
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_an_effect_comes_after_its_cause(ordering: str, make_feed: Make, open_db: OpenDB) -> None:
    assert _replies(make_feed(ordering), open_db) == ["question", "reply"]


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_by_transactions_it_comes_before(make_feed: Make, open_db: OpenDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above."""
    monkeypatch.setitem(orderings.ORDERINGS, "xid", ByTransaction())
    name = make_feed("counter")
    make_naive(open_db(), name, "xid")
    assert _replies(name, open_db) == ["reply", "question"], "the check does not notice an effect before its cause"
