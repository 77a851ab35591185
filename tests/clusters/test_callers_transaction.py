"""A transaction of the application loses to one of another node while the library has a savepoint in it: the error says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text

from queue_db import QueueDB, StorageError
from tests.clusters.conftest import catch_up, run

VERBS: dict[str, Callable[[QueueDB, str, int, Connection], object]] = {
    "enqueue": lambda db, name, n, using: db.queue(name).enqueue("a", unique_key=str(n), unique_for=9, using=using),
    "enqueue_many": lambda db, name, n, using: db.queue(name).enqueue_many([("a", n), ("b", n)], using=using),
    "publish": lambda db, name, n, using: db.feed(name).publish("a", n, idempotency_key=str(n), using=using),
}


@pytest.fixture(scope="session")
def balance(urls: list[str]) -> str:
    """A table of the application with one row."""
    run(urls[0], "CREATE TABLE balance (id INTEGER PRIMARY KEY, amount INTEGER)", "INSERT INTO balance VALUES (1, 0)")
    catch_up(urls[1])
    return "UPDATE balance SET amount = amount + 1 WHERE id = 1"


@pytest.mark.parametrize("verb", VERBS)
def test_the_error_of_a_verb_whose_transaction_loses_at_any_statement_is_the_conflict(
    urls: list[str], name: str, balance: str, verb: str
) -> None:
    engine = create_engine(urls[0], isolation_level="READ COMMITTED")
    with QueueDB(urls[0]) as db:
        losses = at = sent = 0
        while sent >= at:  # else the last call had no such statement
            at, sent, lost = at + 1, 0, False
            with engine.connect() as connection, connection.begin() as transaction:
                connection.execute(text(balance))

                def lose(_: Connection, __: Any, statement: str, *___: Any) -> None:
                    nonlocal sent, lost
                    sent += 1
                    # MySQL forgets a conflict at the next SAVEPOINT: it begins a new transaction there without a word.
                    if sent == at and not statement.startswith("SAVEPOINT"):
                        lost = True
                        run(urls[1], balance)
                        catch_up(urls[0])

                event.listen(connection, "before_cursor_execute", lose)
                try:
                    VERBS[verb](db, name, at, connection)
                    assert not lost, sent
                except StorageError as error:
                    assert db.database.dialect.errors.is_collision(error), (sent, error)
                event.remove(connection, "before_cursor_execute", lose)
                transaction.rollback()
            losses += lost
    engine.dispose()
    assert losses >= 3
