"""A server that rolls back the whole transaction takes its savepoints too: the caller sees why, and does not go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from queue_db import Queue, QueueDB, StorageError, TransientStorageError
from queue_db.dialects.transactions import savepoint
from tests.patience import PATIENCE
from tests.races.interleaving import Loser

pytestmark = pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")


def lose(kind: str, db: QueueDB, queue: Queue, verb: Callable[[Connection], object]) -> StorageError:
    """The error of ``verb``: its transaction holds key ``ours`` and waits for ``theirs`` when another one closes the circle."""
    # The driver's default isolation locks gaps around the keys.
    ours = db.database.engine.connect().execution_options(isolation_level="READ COMMITTED")
    engine = create_engine(db.database.engine.url, isolation_level="READ COMMITTED")
    with ours, engine.connect() as rival:
        queue.enqueue("mail", unique_key="ours", using=ours)
        # InnoDB gives up the transaction that has changed less.
        queue.enqueue_many([("mail", number) for number in range(200)], using=rival)
        queue.enqueue("mail", unique_key="theirs", using=rival)
        victim = Loser(kind, db, lambda: verb(ours))
        assert victim.until_it_waits()
        closing = threading.Thread(target=lambda: queue.enqueue("mail", unique_key="ours", on_duplicate="skip", using=rival))
        closing.start()
        with pytest.raises(StorageError) as caught:
            victim.result()
        closing.join(PATIENCE)
        ours.rollback()
        rival.rollback()
    engine.dispose()
    return caught.value


def test_a_deadlock_within_a_savepoint_is_the_error_that_the_caller_sees(kind: str, db: QueueDB, queue: Queue) -> None:
    error = lose(kind, db, queue, lambda ours: queue.enqueue_many([("mail", 1), ("mail", 2, {"unique_key": "theirs"})], using=ours))
    assert isinstance(error, TransientStorageError)
    assert error.sqlstate == "1213"
    assert queue.stats().available == 0


@pytest.mark.parametrize("duplicate", [True, False])
def test_only_an_error_of_the_server_hides_that_its_savepoint_is_gone(db: QueueDB, duplicate: bool) -> None:
    """Who goes on after a duplicate key would commit the second half of his transaction."""

    def fail() -> None:
        with db.database.begin() as connection:
            connection.execute(text("CREATE TEMPORARY TABLE IF NOT EXISTS keys_of_this (k INT PRIMARY KEY)"))
            with savepoint(connection):
                connection.execute(text("ROLLBACK"))
                if not duplicate:
                    connection.execute(text("SELECT * FROM nowhere"))
                connection.execute(text("INSERT INTO keys_of_this VALUES (1), (1)"))

    with pytest.raises(StorageError) as caught:
        fail()
    cause = caught.value.__cause__
    assert isinstance(cause, DBAPIError)
    assert caught.value.sqlstate == ("1305" if duplicate else "1146")
    assert isinstance(cause.__cause__, IntegrityError) is duplicate
