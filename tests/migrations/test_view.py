"""``jobs_state``: every job with its state, and with times, for people who read with SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import inspect, text

from queue_db import QueueDB, State
from queue_db.store import streams
from tests.migrations.conftest import run


def rows(db: QueueDB, view: str = "jobs_state") -> dict[int, Any]:
    with db.database.engine.connect() as connection:
        return {row.id: row for row in connection.execute(text(f"SELECT * FROM {view}"))}


def moment(shown: Any) -> datetime:
    """What the view shows, which is UTC: a text on SQLite, without a zone on MySQL and MariaDB."""
    at = datetime.fromisoformat(shown) if isinstance(shown, str) else shown
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def one_of_each(db: QueueDB) -> dict[int, State]:
    """A job in each state, and a job of each that a stream holds: with a key and without."""
    queue, other = db.queue("q"), db.queue("other")
    held = other.enqueue_many([("k", 1, {"unique_key": "u"}), ("k", 2)])
    opened = partial(streams.open_stream, store=db.store, name="s", queue="other", holder="h", retention=10**15)
    session = db.database.run(opened, name="open")
    start = db.database.run(partial(streams.initial, store=db.store, session=session), name="initial")
    claim = partial(streams.allocate, store=db.store, session=session, start=start, limit=10, ceiling=None, partitions=1)
    db.database.run(claim, name="claim")
    running, dead = queue.enqueue("k", {"a": 1}, group="g"), queue.enqueue("k")
    for job in queue.claim(2):
        if job.id == dead:
            job.bury("no good")
    blocked, scheduled = queue.enqueue("k", group="g"), queue.enqueue("k", delay=3600)
    available = queue.enqueue("k")
    states = {
        available: State.AVAILABLE,
        running: State.RUNNING,
        scheduled: State.SCHEDULED,
        blocked: State.BLOCKED,
        dead: State.DEAD,
    }
    return {job_id: state for job_id, state in states.items() if job_id} | {job_id: State.RUNNING for job_id in held if job_id}


def test_states_and_times(empty: QueueDB) -> None:
    empty.migrate()
    expected = one_of_each(empty)
    found = rows(empty)
    assert {job_id: State(row.state) for job_id, row in found.items()} == expected
    assert {job_id: empty.get(job_id).state for job_id in expected} == expected
    for job_id, row in found.items():
        job = empty.get(job_id)
        assert (row.queue, row.kind, row.attempts, row.unique_key) == (job.queue, job.kind, job.attempts, job.unique_key)
        assert abs(moment(row.created_at) - job.created_at) < timedelta(milliseconds=1)
        assert (row.died_at is not None) is (job.state is State.DEAD)
    by_state = {row.state: row for row in found.values() if row.queue == "q"}
    scheduled, running, blocked, dead = (by_state[state] for state in ("scheduled", "running", "blocked", "dead"))
    assert timedelta(minutes=59) < moment(scheduled.due_at) - moment(scheduled.created_at) < timedelta(minutes=61)
    assert moment(running.leased_until) > moment(running.due_at) >= moment(running.created_at)
    assert (blocked.due_at, blocked.group_key, dead.last_error) == (None, "g", "no good")
    assert {row.worker for row in found.values() if row.queue == "other"} == {"stream s"}


def test_a_due_time_beyond_all_calendars_is_shown_as_none(empty: QueueDB) -> None:
    empty.migrate()
    run(empty, "INSERT INTO jobs (queue, payload, available_at) VALUES ('q', '1', 9000000000000000000)")
    (row,) = rows(empty).values()
    assert (row.state, row.due_at) == ("scheduled", None)


def test_another_name_and_the_way_back(empty: QueueDB, fresh_url: str) -> None:
    with QueueDB(fresh_url, table="mail") as db:
        db.migrate()
        db.queue("q").enqueue("k")
        assert [row.state for row in rows(db, "mail_state").values()] == ["available"]
        db.migrate(revision="base")
        with db.database.engine.connect() as connection:
            assert inspect(connection).get_view_names() == []
        db.migrate()
        assert rows(db, "mail_state") == {}


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")  # a file has no other schema beside it
def test_beside_other_tables(fresh_url: str, side_by_side: str) -> None:
    with QueueDB(fresh_url, schema=side_by_side) as side:
        side.migrate()
        side.queue("q").enqueue("k")
        assert [row.state for row in rows(side, f"{side_by_side}.jobs_state").values()] == ["available"]
        side.migrate(revision="base")
