"""``jobs_state``: every job with its state, and with times, for people who read with SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import inspect, text

from queue_db import ConfigurationError, QueueDB, State
from queue_db.spark.streams import store as streams
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
    opened = partial(streams.open_stream, name="s", queue="other", holder="h", retention=10**15)
    session = db.database.run(opened, store=db.store, name="open")
    start = db.core.write("streams.initial", streams.initial, session=session)
    claim = partial(streams.allocate, session=session, start=start, limit=10, ceiling=None, partitions=1)
    db.database.run(claim, store=db.store, name="claim")
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


#: A time in the columns of a job → its state and the year that is shown, none of a time beyond all calendars.
TIMES: dict[int, tuple[str, int | None]] = {
    9_000_000_000_000_000_000: ("scheduled", None),
    -62_135_596_800_000_001: ("available", None),
    -(2**62): ("available", None),
    -(2**63): ("available", None),
    0: ("available", 1970),
    -1_000_000_000_000_000: ("available", 1938),
}


def test_a_row_with_a_time_beyond_all_calendars_leaves_the_others_readable(empty: QueueDB) -> None:
    """It is shown as none; and so are the other times that a client may write."""
    empty.migrate()
    for at, (state, year) in TIMES.items():
        proper = empty.queue("q").enqueue("k")
        run(empty, f"INSERT INTO jobs (queue, payload, available_at, created_at) VALUES ('other', '1', {at}, {at})")
        found = rows(empty)
        assert found.pop(proper or 0).due_at is not None
        (row,) = found.values()
        assert row.state == state, at
        assert [shown and moment(shown).year for shown in (row.due_at, row.created_at)] == [year, year], at
        run(empty, "DELETE FROM jobs")


@pytest.mark.parametrize(
    "made", ["CREATE VIEW jobs_state AS SELECT 'mine' AS state", "CREATE TABLE jobs_state (state VARCHAR(10))"]
)
def test_an_applications_own_view_or_table_of_that_name_is_left_alone(empty: QueueDB, made: str) -> None:
    """Migrating stops before anything is changed, on the way up and on the way down."""
    refused = r"there is a (view|table) 'jobs_state' in this database that is not queue_db's.* rename that (view|table).*table=…"
    run(empty, made)
    with pytest.raises(ConfigurationError, match=refused):
        empty.migrate()
    assert tables_of(empty) - {"jobs_state"} == set()
    with empty.database.engine.connect() as connection:
        assert list(connection.execute(text("SELECT * FROM jobs_state")).keys()) == ["state"]
    with QueueDB(empty.database.engine, table="mail") as db:
        db.migrate()
    run(empty, f"DROP {made.split()[1]} jobs_state")
    empty.migrate()
    run(empty, "DROP VIEW jobs_state", made)
    with pytest.raises(ConfigurationError, match=refused):
        empty.migrate(revision="0005")
    empty.check()
    with empty.database.engine.connect() as connection:
        assert list(connection.execute(text("SELECT * FROM jobs_state")).keys()) == ["state"]


def test_the_script_replaces_no_view(empty: QueueDB) -> None:
    """It cannot look whose it is: CREATE VIEW fails where there is one."""
    script = empty.migration_sql()
    assert "CREATE VIEW" in script
    assert "DROP VIEW" not in script


def tables_of(db: QueueDB) -> set[str]:
    with db.database.engine.connect() as connection:
        return set(inspect(connection).get_table_names())


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
