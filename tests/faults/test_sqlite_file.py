"""What can be wrong with a file: full, read-only, in somebody else's hands, no database at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text

from queue_db import PermanentStorageError, QueueDB, TransientStorageError
from queue_db.database.transaction import ATTEMPTS
from queue_db.service.live.outage import takes_changes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queue.db"
    with QueueDB(f"sqlite:///{path}") as db:
        db.migrate()
        db.queue("q").enqueue("first")
    return path


@pytest.fixture
def writer(file: Path) -> Iterator[sqlite3.Connection]:
    """Another program in the middle of a change."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_a_full_disk_is_a_clear_error_and_nothing_is_half_done(file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}")

    @event.listens_for(engine, "connect")
    def small(connection: Any, record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {file.stat().st_size // 4096 + 100}")

    with QueueDB(engine) as db:
        queue = db.queue("q")
        enqueued, jobs = 1, queue.claim()

        def enqueue_for_ever() -> None:
            nonlocal enqueued
            while True:
                enqueued += len(queue.enqueue_many([("k", "x" * 5000)] * 7))
                jobs.extend(queue.claim(4))  # it makes rows longer, so it may be what finds no room

        with pytest.raises(PermanentStorageError, match=r"(enqueue_many|claim): database or disk is full \(.*free space") as full:
            enqueue_for_ever()
        assert full.value.sqlstate == str(sqlite3.SQLITE_FULL)
        assert not full.value.outcome_unknown
        assert enqueued > 1
        assert queue.stats().running == len(jobs)
        assert queue.stats().available == enqueued - len(jobs)
        # The jobs in hand can be completed, which makes room again.
        assert all(queue.complete_many(jobs))
        assert queue.claim(1000)
        assert queue.enqueue("k", "x" * 5000) is not None
        with engine.connect() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
    engine.dispose()


def test_a_file_that_may_only_be_read(file: Path) -> None:
    with QueueDB(f"sqlite:///file:{file}?mode=ro&uri=true") as db:
        queue = db.queue("q")
        assert queue.stats().available == 1
        for verb in (lambda: queue.enqueue("k"), queue.claim):
            with pytest.raises(PermanentStorageError, match="readonly database"):
                verb()
    with QueueDB(f"sqlite:///{file}") as db:
        assert [job.kind for job in db.queue("q").claim(10)] == ["first"]


def test_a_connection_that_only_reads_is_replaced_but_not_one_that_has_the_database(file: Path) -> None:
    for url in (f"sqlite:///{file}", "sqlite://"):
        with QueueDB(url) as db:
            db.migrate()
            db.queue("q").enqueue("second")
            with db.database.connections.one() as connection:
                connection.exec_driver_sql("PRAGMA query_only = ON")
            with pytest.raises(PermanentStorageError, match="readonly database"):
                db.queue("q").enqueue("third")
            assert takes_changes(db) is (url != "sqlite://")
            assert "second" in [job.kind for job in db.queue("q").peek()]


def test_a_writer_that_stays_too_long_is_a_bounded_wait_and_a_clear_error(file: Path, writer: sqlite3.Connection) -> None:
    with QueueDB(f"sqlite:///{file}?timeout=0.05") as db:
        queue = db.queue("q")
        assert queue.stats().available == 1  # readers do not wait for writers
        with pytest.raises(TransientStorageError, match="enqueue: database is locked") as busy:
            queue.enqueue("k")
        assert busy.value.sqlstate == str(sqlite3.SQLITE_BUSY)
        assert db.counters.retried == ATTEMPTS - 1
        writer.execute("COMMIT")
        assert queue.enqueue("k") is not None


def test_a_writer_that_leaves_in_time_is_waited_for(file: Path, writer: sqlite3.Connection) -> None:
    with QueueDB(f"sqlite:///{file}?timeout=0.05") as db:
        refusals = []

        @event.listens_for(db.database.engine, "before_cursor_execute")
        def leave(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith("INSERT"):
                refusals.append(connection)
            if len(refusals) == 3:
                writer.execute("COMMIT")

        (job,) = db.queue("q").claim()
        assert job.kind == "first"
        assert db.counters.retried >= 1


def test_the_wait_is_taken_from_the_url(file: Path) -> None:
    def wait(url: str) -> int:
        with QueueDB(url) as db, db.database.engine.connect() as connection:
            return int(connection.execute(text("PRAGMA busy_timeout")).scalar_one())

    assert wait(f"sqlite:///{file}") == 30_000
    assert wait(f"sqlite:///{file}?timeout=7") == 7_000


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(PermanentStorageError, match=r"there is no folder .*/nowhere: create it, or correct the URL"):
        QueueDB(f"sqlite:///{tmp_path}/nowhere/queue.db")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 100)
    with pytest.raises(PermanentStorageError, match="cannot open sqlite:///.*letter.txt: .*not a database"):
        QueueDB(f"sqlite:///{path}")
    assert path.read_text().startswith("Dear reader")


def test_a_job_that_a_trigger_refuses_is_no_race_for_a_key(file: Path) -> None:
    """Such a refusal is an IntegrityError too, but the job has no key that others could have taken."""
    with QueueDB(f"sqlite:///{file}") as db:
        db.queue("q").enqueue("k")  # from now on a single job is one statement
        with db.database.begin() as connection:
            connection.execute(text("CREATE TRIGGER strict BEFORE INSERT ON jobs BEGIN SELECT RAISE(ABORT, 'refused here'); END"))
        with pytest.raises(PermanentStorageError, match="^enqueue: refused here") as refused:
            db.queue("q").enqueue("k")
        assert not refused.value.outcome_unknown
