"""What the tests of races rest on: who waits for a lock."""

from __future__ import annotations

import threading

import pytest

from queue_db import Queue, QueueDB
from queue_db.testing import SettableClock
from tests.patience import PATIENCE
from tests.races.interleaving import Loser, open_transaction
from tests.races.winners import WINNERS


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_the_wait_of_another_session_is_not_the_losers(
    kind: str, db: QueueDB, ours: Queue, theirs: Queue, clock: SettableClock
) -> None:
    ours.enqueue("mail")
    (job,) = ours.claim(lease=1000)
    done = threading.Event()
    with open_transaction(ours.db) as connection:
        WINNERS["complete"](connection, ours, job)
        waits = Loser(kind, theirs.db, lambda: theirs.cancel(job.id))
        assert waits.until_it_waits()
        idle = Loser(kind, db, lambda: (db.queue("idle").claim(), done.wait(PATIENCE)))
        try:
            assert not idle._waits()
        finally:
            done.set()
            connection.rollback()
        idle.result()
    waits.result()
