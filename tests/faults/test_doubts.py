"""A run that may have been committed is not hidden by what becomes of the next run."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, text

from queue_db import QueueDB, QueueDBError, StorageError
from queue_db.database.database import Database
from queue_db.dialects import raw_cursor

DIES = """
CREATE FUNCTION end_session() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON doubted DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION end_session()
"""


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("then", ["refused", "away", "closed"])
def test_a_later_error_says_that_an_earlier_run_may_have_been_committed(
    fresh_url: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with QueueDB(fresh_url) as db:
        with db.database.begin() as connection:
            connection.execute(text("CREATE TABLE doubted (i INTEGER)"))
            connection.execute(text(DIES))
        runs = []

        def work(connection: Connection) -> None:
            runs.append(then)
            if len(runs) == 1:
                connection.execute(text("INSERT INTO doubted VALUES (1)"))
            elif then == "refused":
                connection.execute(text("SELECT * FROM nowhere"))
            else:
                connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

        if then == "closed":
            monkeypatch.setattr(Database, "pause", lambda database, seconds: setattr(database, "closed", True))
        with pytest.raises(QueueDBError) as told:
            db.database.run(work, name="publish", repeatable=True, attempts=2)
        assert isinstance(told.value, StorageError)
        assert told.value.outcome_unknown


def test_an_error_before_the_first_look_at_a_socket_leaves_no_time_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    info: dict[object, object] = {}

    def interrupted(source: object) -> object:
        raise StorageError("a signal handler")

    monkeypatch.setattr(raw_cursor, "look_at", interrupted)
    with pytest.raises(StorageError):
        raw_cursor.lively(info, None)
    monkeypatch.setattr(raw_cursor, "look_at", lambda source: lambda: False)
    assert not raw_cursor.lively(info, None)
    assert raw_cursor.lively(info, None)
