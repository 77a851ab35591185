"""Prepared statements belong to a session: those of others are left alone, and one that is gone is no error."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, event, text

from queue_db import Queue, QueueDB
from queue_db.dialects import prepared
from tests.patience import HOURS

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


def heard(engine: object) -> list[str]:
    seen: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: seen.append(statement.split()[0]))
    return seen


def test_on_our_own_connections_claim_and_complete_are_prepared(queue: Queue) -> None:
    queue.enqueue_many([("mail", number) for number in range(2)])
    seen = heard(queue.db.database.engine)
    for job in queue.claim(2):
        assert job.complete()
    assert seen == ["PREPARE", "EXECUTE", "PREPARE", "EXECUTE", "EXECUTE"]


@pytest.mark.parametrize("texts", [["mail", "a\0b"], ["a\0b", None], ["\0"]])
def test_a_text_with_a_nul_does_not_become_two_elements(kind: str, texts: list[str | None]) -> None:
    with pytest.raises(ValueError, match="NUL"):
        prepared._texts(texts)


@pytest.mark.parametrize("said", ["NULL", "None", 'a "name", {in} brackets', "a\\b", "é, 漢", "'; %s %% $1[1]"])
def test_a_text_is_one_element_of_its_array_whatever_it_says(db: QueueDB, said: str) -> None:
    """All texts of a prepared statement are sent as one array."""
    queue = db.queue(said)
    job_id = queue.enqueue("k")
    (job,) = queue.claim(worker=said)
    assert (job.id, db.get(job_id).worker) == (job_id, said)
    assert job.fail(said, retry_in=0)
    assert db.get(job_id).last_error == said
    (job,) = queue.claim(worker=said)
    assert job.complete()


@pytest.mark.parametrize(("seconds", "prepared"), [(0.0, 3), (HOURS, 1)])
def test_a_plan_that_is_used_a_lot_is_renewed_soon(
    queue: Queue, seconds: float, prepared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table may have grown since: it can become the plan that reads all of it."""
    monkeypatch.setattr("queue_db.dialects.prepared.BUSY_PLAN_AGE", seconds)
    monkeypatch.setattr("queue_db.dialects.prepared.OFTEN", 2)
    queue.enqueue_many([("mail", number) for number in range(5)])
    jobs = queue.claim(5)
    seen = heard(queue.db.database.engine)
    assert all(job.complete() for job in jobs)
    assert (seen.count("PREPARE"), seen.count("DEALLOCATE"), seen.count("EXECUTE")) == (1, prepared - 1, 5)


def test_a_callers_connection_is_sent_nothing_to_prepare(url: str, queue: Queue) -> None:
    queue.enqueue_many([("mail", number) for number in range(3)])
    jobs = queue.claim(3)
    engine = create_engine(url)
    seen = heard(engine)
    with engine.begin() as connection:
        assert all(queue.complete_many(jobs, using=connection))
        assert connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one() == 0
    engine.dispose()
    assert not {"PREPARE", "EXECUTE"} & set(seen)


@pytest.mark.usefixtures("no_second_look")
def test_a_session_that_has_lost_them_is_no_error(url: str, name: str) -> None:
    # As a pooler does that gives each transaction another session.
    with QueueDB(url, pool_size=1) as db:
        queue = db.queue(name)
        queue.enqueue_many([("mail", number) for number in range(5)])
        (zeroth,) = queue.claim()
        (first,) = queue.claim()  # by the statement that follows one that has won
        with db.database.connections.one() as connection:
            connection.exec_driver_sql("DEALLOCATE ALL")
            connection.rollback()
        (second,) = queue.claim()
        assert (zeroth.payload, first.payload, second.payload) == (0, 1, 2)
        assert second.attempts == 1
        assert first.complete()
        assert second.complete()
        seen = heard(db.database.engine)
        assert [job.payload for job in queue.pop(2)] == [3, 4]
        assert "EXECUTE" not in seen
        assert db.counters.retried == 1
