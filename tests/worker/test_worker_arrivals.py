"""Waiting for due jobs without a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import text

from queue_db import ArgumentError, Arrivals, ConfigurationError, QueueDB
from queue_db.concurrency import pauses
from tests.patience import HOURS, PATIENCE, wait_for

LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE '%LISTEN%queue_db%'"


class RolledBack(Exception):
    """Ends a transaction without a commit."""


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what wakes a wait ends it: the pauses between two polls are hours."""
    monkeypatch.setattr(pauses, "SHORTEST", HOURS)


def waiting(db: QueueDB, arrivals: Arrivals, queues: Iterable[str], polls: int) -> tuple[Future[set[str]], int]:
    """Wait in another thread; return, with the number of statements so far, when it has looked so many times."""
    before = db.counters.statements
    pool = ThreadPoolExecutor(1)
    future = pool.submit(arrivals.wait, queues, HOURS)
    pool.shutdown(wait=False)
    wait_for(lambda: future.done() or db.counters.statements >= before + polls)
    return future, db.counters.statements


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_another_connection_ends_the_wait(
    open_db: Callable[..., QueueDB], name: str, kind: str, committed: bool, request: pytest.FixtureRequest
) -> None:
    db, other = open_db(), open_db().queue(name)
    notified = db.database.dialect.notifies
    if notified:
        request.getfixturevalue("no_polls")
    assert db.next_due([name]) == {name: None}
    with db.arrivals(poll=HOURS) as arrivals:
        with suppress(RolledBack), other.transaction() as connection:
            other.enqueue("k", using=connection)
            # With notifications it looks before it listens, and after: it could miss a commit in between.
            future, looked = waiting(db, arrivals, [name], 2)
            assert not future.done()
            if not committed:
                raise RolledBack
        if not committed:
            arrivals.wake()
        assert future.result(PATIENCE) == ({name} if committed else set())
        if notified:
            assert db.counters.statements == looked  # the notification said it, and no poll


def test_a_job_of_the_same_object_ends_the_wait(db: QueueDB, name: str, no_polls: None) -> None:
    assert db.next_due([name]) == {name: None}
    with db.arrivals(poll=HOURS) as arrivals:
        future, _ = waiting(db, arrivals, [f"{name}-other", name], 2 if db.database.dialect.notifies else 1)
        db.queue(name).enqueue("k")
        assert future.result(PATIENCE) == {name}


def test_what_is_due_already_is_returned_at_once(db: QueueDB, name: str) -> None:
    db.queue(name).enqueue("k")
    db.queue(f"{name}-later").enqueue("k", delay=HOURS)
    queues = [name, f"{name}-later", f"{name}-empty"]
    with db.arrivals() as arrivals:
        assert arrivals.look(queues) == {name}
        assert arrivals.wait(queues, 0) == {name}
        assert arrivals.wait(queues, HOURS) == {name}
        assert arrivals.look(queues[1:]) == arrivals.wait(queues[1:], 0) == arrivals.wait(queues[1:], 0.01) == set()
        assert arrivals.look([]) == arrivals.wait([], 0) == set()


def test_the_wait_ends_when_a_job_becomes_due(db: QueueDB, name: str, no_polls: None) -> None:
    db.queue(name).enqueue("k", delay=0.3)
    with db.arrivals(poll=HOURS) as arrivals:
        assert arrivals.wait([name], HOURS) == {name}


def test_wake_ends_the_wait_or_the_next_one(db: QueueDB, name: str, no_polls: None) -> None:
    with db.arrivals(poll=HOURS) as arrivals:
        future, _ = waiting(db, arrivals, [name], 1)
        arrivals.wake()
        assert future.result(PATIENCE) == set()
        arrivals.wake()
        assert arrivals.wait([name], HOURS) == set()


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_close_ends_the_connection_that_listens(own_url: str, kind: str) -> None:
    def listeners() -> int:
        with db.database.begin() as connection:
            return int(connection.execute(text(f"{LISTENERS} AND pid <> pg_backend_pid()")).scalar_one())

    with QueueDB(own_url) as db:
        with db.arrivals() as arrivals:
            wait_for(lambda: arrivals.wait(["q"], 0.01) or listeners() == 1)
        wait_for(lambda: listeners() == 0)


def test_after_close_it_waits_no_more(db: QueueDB, name: str) -> None:
    arrivals = db.arrivals()
    assert arrivals.wait([name], 0.01) == set()
    arrivals.close()
    arrivals.close()
    arrivals.wake()
    threads = threading.active_count()
    with pytest.raises(ConfigurationError, match=r"arrivals are closed: .*db\.arrivals\(\)"):
        arrivals.wait([name], HOURS)
    db.queue(name).enqueue("k")  # wakes nobody
    assert threading.active_count() == threads


def test_a_closed_database_is_refused(open_db: Callable[..., QueueDB], name: str) -> None:
    db = open_db()
    with db.arrivals() as arrivals:
        db.close()
        with pytest.raises(ConfigurationError, match="is closed"):
            arrivals.wait([name], HOURS)


@pytest.mark.parametrize("queues", ["mail", b"mail", 5, [5], [""], ["x" * 1000], [None]])
def test_queues_that_are_no_names_are_refused(db: QueueDB, queues: object) -> None:
    with db.arrivals() as arrivals:
        for act in (arrivals.look, lambda wrong: arrivals.wait(wrong, HOURS)):
            with pytest.raises(ArgumentError, match="^queue"):
                act(queues)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", None, True])
def test_seconds_that_are_none_are_refused(db: QueueDB, name: str, seconds: object) -> None:
    with pytest.raises(ArgumentError, match="poll="):
        db.arrivals(poll=seconds)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="poll=0"):
        db.arrivals(poll=0)
    with db.arrivals() as arrivals, pytest.raises(ArgumentError, match="seconds="):
        arrivals.wait([name], seconds)  # type: ignore[arg-type]
