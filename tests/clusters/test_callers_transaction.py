"""A transaction of the application loses to one of another node while the library has a savepoint in it: the error says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass
class Rival:
    """Another node changes the row of a transaction right before the statement with this number."""

    change: Callable[[], object]
    number: int
    sent: int = 0
    won: bool = False

    def before(self, _: Connection, __: Any, statement: str, *___: Any) -> None:
        self.sent += 1
        # MySQL forgets a conflict at the next SAVEPOINT: it begins a new transaction there without a word.
        if self.sent == self.number and not statement.startswith("SAVEPOINT"):
            self.won = True
            self.change()


def _error_of(verb: Callable[[], object]) -> StorageError | None:
    try:
        verb()
    except StorageError as error:
        return error
    return None


@pytest.mark.parametrize("verb", VERBS)
def test_the_error_of_a_verb_whose_transaction_loses_at_any_statement_is_the_conflict(
    urls: list[str], name: str, balance: str, verb: str
) -> None:
    def change() -> None:
        run(urls[1], balance)
        catch_up(urls[0])

    engine = create_engine(urls[0], isolation_level="READ COMMITTED")
    conflicts = number = 0
    with QueueDB(urls[0]) as db:
        while True:
            number += 1
            rival = Rival(change, number)
            with engine.connect() as connection, connection.begin() as transaction:
                connection.execute(text(balance))
                event.listen(connection, "before_cursor_execute", rival.before)
                error = _error_of(lambda using=connection, number=number: VERBS[verb](db, name, number, using))
                event.remove(connection, "before_cursor_execute", rival.before)
                transaction.rollback()
            assert (error is not None) == rival.won
            assert error is None or db.database.dialect.errors.is_collision(error), (number, error)
            conflicts += rival.won
            if rival.sent < number:
                break  # the verb has no such statement
    engine.dispose()
    assert conflicts >= 3
