"""What an error code of a cluster, or of a statement that took too long, means for the transaction."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from sqlalchemy import Connection, ExceptionContext, event, text
from sqlalchemy.exc import DBAPIError, OperationalError

from queue_db import PermanentStorageError, QueueDB, StorageError, TransientStorageError
from queue_db.dialects import dialect_for
from queue_db.model import Fault
from queue_db.store import Transaction

MYSQL = dialect_for("mysql").errors


def error_of(number: int, text: str) -> OperationalError:
    return OperationalError("COMMIT", None, pymysql.err.OperationalError(number, text))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (3101, "Plugin instructed the server to rollback the current transaction."),
        (1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"),
        (1030, "Got error 153 - 'No savepoint with that name' from storage engine"),
    ],
)
def test_a_conflict_with_another_node_is_run_again(number: int, words: str) -> None:
    error = error_of(number, words)
    translated = MYSQL.translate(error, "enqueue")
    assert isinstance(translated, TransientStorageError)
    assert MYSQL.fault(error) is Fault.SERIALIZATION
    assert not translated.server_away
    assert MYSQL.code(error) not in MYSQL.read_only


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1047, "WSREP has not yet prepared node for application use"),
        (1180, "Error while appending streaming replication fragment(provider status: Not connected to Primary Component)"),
        (1180, 'Got error 107 "Transport endpoint is not connected" during COMMIT'),
        (3100, "Error on observer while running replication hook 'before_commit'."),
    ],
)
def test_a_node_without_its_cluster_is_away_and_its_connections_are_dropped(number: int, words: str) -> None:
    error = error_of(number, words)
    translated = MYSQL.translate(error, "enqueue")
    assert isinstance(translated, TransientStorageError)
    assert translated.server_away
    assert MYSQL.code(error) in MYSQL.read_only
    assert (MYSQL.code(error) in MYSQL.in_doubt) is (number in {1180, 3100})


def test_a_full_disk_at_commit_stays_permanent() -> None:
    translated = MYSQL.translate(error_of(1180, 'Got error 28 "No space left on device" during COMMIT'), "enqueue")
    assert isinstance(translated, PermanentStorageError)
    assert "free space on its disk" in str(translated)


def test_a_transaction_that_exceeds_a_limit_of_galera_is_refused_for_good() -> None:
    error = error_of(1180, "wsrep_max_ws_rows exceeded")
    assert isinstance(MYSQL.translate(error, "enqueue"), PermanentStorageError)
    assert MYSQL.code(error) not in MYSQL.read_only | MYSQL.in_doubt


NO_ROOM = {
    "postgresql": [
        "DO $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"
    ],
    "mysql": [
        "SET SESSION max_heap_table_size = 16384",
        "CREATE TEMPORARY TABLE small (text CHAR(255)) ENGINE = MEMORY",
        "INSERT INTO small SELECT column_name FROM information_schema.columns",
    ],
}


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])
def test_an_error_of_a_full_disk_names_the_remedy(kind: str, db: QueueDB) -> None:
    def fill(connection: Connection) -> None:
        for statement in NO_ROOM.get(kind, NO_ROOM["mysql"]):
            connection.exec_driver_sql(statement)

    with pytest.raises(PermanentStorageError, match="free space on its disk"):
        db.database.run(fill, name="fill")


LIMITS = {
    "postgresql": ["SET LOCAL statement_timeout = 20", "SELECT pg_sleep(20)"],
    "mysql": [
        "SET SESSION max_execution_time = 20",
        "SELECT count(*) FROM information_schema.columns a, information_schema.columns b",
    ],
    "mariadb": ["SET SESSION max_statement_time = 0.02", "SELECT SLEEP(20)"],
}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_statement_that_takes_too_long_may_run_later_but_not_at_once(kind: str, url: str) -> None:
    runs: list[None] = []

    def slow(connection: Any) -> None:
        runs.append(None)
        limit, query = LIMITS[kind]
        connection.execute(text(limit))
        connection.execute(text(query)).all()

    with QueueDB(url) as db, pytest.raises(StorageError) as refused:
        db.database.run(slow, name="slow")
    assert isinstance(refused.value, TransientStorageError)
    assert refused.value.sqlstate in ("57014", "3024", "1969")
    assert not refused.value.server_away
    assert len(runs) == 1


def test_a_listener_for_errors_hears_of_a_statement_that_is_refused(db: QueueDB) -> None:
    """The statement went to the driver's cursor, but the error goes through SQLAlchemy."""
    heard: list[tuple[str | None, bool]] = []
    engine = db.database.engine

    def note(context: ExceptionContext) -> None:
        heard.append((context.statement, isinstance(context.sqlalchemy_exception, DBAPIError)))

    def refused(tx: Transaction) -> None:
        tx.fetch("SELECT nothing FROM nowhere", ())

    event.listen(engine, "handle_error", note)
    try:
        with pytest.raises(PermanentStorageError):
            db.database.run(refused, name="look", store=db.store, write=False)
    finally:
        event.remove(engine, "handle_error", note)
    assert heard == [("SELECT nothing FROM nowhere", True)]
    db.queue("a queue").peek()
