"""Two transactions publish to two ``counter`` feeds in opposite orders: the database ends one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.errors import TransientStorageError
from tests.patience import PATIENCE
from tests.races.interleaving import at_once


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_one_of_two_publishers_in_opposite_orders_is_ended(name: str, db: QueueDB, open_db: Callable[..., QueueDB]) -> None:
    names = [f"{name}-a", f"{name}-b"]
    for one in names:
        db.feeds.set(one, ordering="counter")
    both_hold_one = threading.Barrier(2)

    def publisher(order: list[str]) -> Callable[[], str]:
        own = open_db()

        def publish() -> str:
            with own.database.begin() as connection:
                own.feed(order[0]).publish("n", order[0], using=connection)
                both_hold_one.wait(PATIENCE)
                own.feed(order[1]).publish("n", order[0], using=connection)
            return order[0]

        return publish

    outcomes = at_once(publisher(names), publisher(names[::-1]))
    (won,) = [one for one in outcomes if isinstance(one, str)]
    (ended,) = [one for one in outcomes if not isinstance(one, str)]
    assert isinstance(ended, TransientStorageError)
    assert not ended.outcome_unknown
    for one in names:
        assert [message.payload for message in db.feed(one).read().messages] == [won]
