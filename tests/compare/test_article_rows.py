"""The article's rows on every database: all jobs leave, optimistic ones are executed once, and the measures see what goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from queue_db.compare.article import ARTICLE, Article
from queue_db.compare.article_steps import Optimistic, Removal
from queue_db.compare.article_table import Session
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.history import History
from queue_db.compare.laboratory import short_name
from queue_db.compare.plan import Plan
from queue_db.compare.results import Run
from queue_db.compare.scratch import scratch_target
from queue_db.compare.worker_pool import Assignment, WorkerPool
from queue_db.dialects import Dialect, dialect_for
from queue_db.model import Fault
from tests.patience import PATIENCE
from tests.races.interleaving import at_once

LIMIT = 120.0
JOBS = 12

ROWS = pytest.mark.parametrize("row", ARTICLE, ids=short_name)

#: Statements for a job without competition: claim, removal. A transaction's BEGIN and COMMIT are sent as statements.
COSTS = {
    "DBP-0-1-1": (4, 4),
    "DBP-0-1-0": (4, 2),
    "DBP-0-0-1": (4, 3),
    "DBP-0-1-5": (4, 4),
    "DBP-0-0-5": (4, 3),
    "DBP-1-0-1": (4, 4),
    "DBP-1-0-5": (4, 4),
    "DBP-noindex": (4, 3),
    "DBP-0-1-1-reserved": (4, 4),
    "DBO-0": (2, 1),
    "DBO-1": (2, 1),
    "DBO-2": (2, 1),
    "DBO-5": (2, 1),
    "DBO-6": (2, 1),
    "DBO-9": (2, 1),
    "DBO-10": (2, 1),
    "DBO-4N": (2, 1),
}


@pytest.fixture(scope="module")
def four() -> Iterator[WorkerPool]:
    with WorkerPool(4, "threads") as pool:
        yield pool


@pytest.fixture(scope="module")
def alone() -> Iterator[WorkerPool]:
    with WorkerPool(1, "threads") as pool:
        yield pool


@pytest.fixture(scope="module")
def target(kind: str, shared_urls: Callable[[str], str]) -> Iterator[Target]:
    """A schema of the laboratory's own in the shared database."""
    with scratch_target(shared_urls(kind), Plan(workers=4)) as (own, _):
        yield own


def run(
    pool: WorkerPool, row: Article, target: Target, jobs: int, *, lease: float = 600.0, clone: float = 0.0, limit: float = LIMIT
) -> tuple[History, Run]:
    # An optimistic row's lease is never the reason for a second execution here.
    own = replace(target, lease=lease, workers=pool.workers)
    row.set_up(own, jobs)
    try:
        history = pool.run(Assignment(row, own, work_seconds=0.0, clone=clone, verify=False), jobs, limit=limit)
    finally:
        row.tear_down(own)
    return history, Run.of(history, client_cpu=None, server_cpu=None)


# --- every row ------------------------------------------------------------------------------------------------------


@ROWS
def test_all_jobs_leave_whatever_collides(row: Article, four: WorkerPool, target: Target) -> None:
    # A pessimistic removal that fails, by a deadlock or a busy file, leaves the job behind until its lease has ended.
    optimistic = isinstance(row.claiming, Optimistic)
    history, result = run(four, row, target, JOBS, lease=600.0 if optimistic else 2.0)
    assert result.finished
    assert (result.left, result.unique, result.added) == (JOBS, JOBS, 0)
    assert sum(result.per_worker) == result.executions
    assert sorted(set(history.order())) == list(range(JOBS))
    assert result.won >= JOBS
    if optimistic:
        assert (result.executions, result.duplicates, result.lost) == (JOBS, {}, 0)
        assert (result.won, result.candidates) == (JOBS, result.rounds)
        assert Fault.DEADLOCK not in result.faults
    if not result.faults and not result.duplicates and result.won == result.left:
        # A look that finds nothing is one statement, and three where it stands in a transaction.
        claim, removal = COSTS[short_name(row)]
        assert result.statements == result.rounds * claim + result.empty * (1 if optimistic else 3) + result.left * removal


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
@ROWS
def test_alone_it_needs_its_statements_and_loses_nothing(row: Article, alone: WorkerPool, target: Target) -> None:
    history, result = run(alone, row, target, 5)
    assert result.statements == 5 * sum(COSTS[short_name(row)])
    assert (result.rounds, result.candidates, result.won, result.empty) == (5, 5, 5, 0)
    assert (result.faults, result.duplicates, result.miss_ratio) == ({}, {}, 0.0)
    assert (result.executions, result.left) == (5, 5)
    assert result.latency is not None
    assert result.latency.count == 5
    # Alone a window of 1 × or less is the head; 2 × has two places to choose from.
    if row.window(1) in (None, 1):
        assert history.order() == list(range(5))


def test_the_pinned_statements_are_of_all_rows() -> None:
    assert list(COSTS) == [short_name(row) for row in ARTICLE]


def test_the_windows_are_the_articles() -> None:
    windows = {short_name(row): row.window(10) for row in ARTICLE}
    assert {name: window for name, window in windows.items() if name.startswith("DBO")} == {
        "DBO-0": 1,
        "DBO-1": 10,
        "DBO-2": 10,
        "DBO-5": 5,
        "DBO-6": 5,
        "DBO-9": 20,
        "DBO-10": 20,
        "DBO-4N": 40,
    }
    assert {window for name, window in windows.items() if name.startswith("DBP")} == {None}
    # Half of an odd number is rounded up, as the original does.
    assert next(row for row in ARTICLE if short_name(row) == "DBO-5").window(7) == 4


def test_jobs_that_enqueue_others_are_all_worked_off(four: WorkerPool, target: Target) -> None:
    row = next(row for row in ARTICLE if short_name(row) == "DBO-1")
    history, result = run(four, row, target, 20, clone=0.5)
    assert result.finished
    assert result.added > 0
    assert (result.left, result.unique, result.executions) == (20 + result.added, 20, 20)
    assert sum(note.jobs.count(-1) for note in history.notes) == result.added


class Stumbling(Article):
    """The first job that is to enqueue another one cannot."""

    def _enqueue(self, session: Session, count: int) -> None:
        if not _STUMBLED:
            _STUMBLED.append(count)
            session.connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")
        super()._enqueue(session, count)


_STUMBLED: list[int] = []


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_job_that_was_not_added_is_not_waited_for(alone: WorkerPool, target: Target) -> None:
    """A deadlock may hit that INSERT too. The job stays and runs again after its lease; what was not added cannot leave."""
    _STUMBLED.clear()
    row = Stumbling("DBO-{db}-stumbling", Optimistic("head", 0), Removal(mark=False, select=False, tries=0))
    history, result = run(alone, row, target, 12, lease=1.0, clone=0.5)
    assert result.finished
    assert result.left == 12 + result.added
    assert sum(note.jobs.count(-1) for note in history.notes) == result.added


# --- negative control: what the version is for ----------------------------------------------------------------------

_BARRIERS: dict[str, threading.Barrier] = {}


@dataclass(frozen=True)
class InStep(Optimistic):
    """In the first round all workers read before one takes, and all have taken before one continues.

    A barrier cannot be sent to workers: they find it by its name.
    """

    barrier: str = ""

    def claimer(self, session: Session) -> Callable[[], Any]:
        barrier, met = _BARRIERS[self.barrier], {"before": False, "after": False}

        def meet(when: str, statement: str) -> None:
            if statement.startswith("UPDATE") and not met[when]:
                met[when] = True
                barrier.wait(PATIENCE)

        event.listen(
            session.connection, "before_cursor_execute", lambda connection, cursor, statement, *_: meet("before", statement)
        )
        event.listen(session.connection, "after_cursor_execute", lambda connection, cursor, statement, *_: meet("after", statement))
        return super().claimer(session)


@pytest.mark.parametrize("share", [0, 1], ids=["head", "window N"])
@pytest.mark.parametrize("checked", [True, False], ids=["version checked", "version not checked"])
def test_the_measures_tell_whether_the_version_is_checked(
    checked: bool, share: float, four: WorkerPool, target: Target, kind: str
) -> None:
    """Four workers have read the one job before any of them takes it."""
    key = f"{kind} {checked} {share}"
    _BARRIERS[key] = threading.Barrier(4)
    claim = InStep("head" if share == 0 else "uniform", share, checked=checked, barrier=key)
    _, result = run(four, Article("DBO-{db}-in-step", claim, Removal(mark=False, select=False, tries=0)), target, 1)
    assert (result.left, result.unique, result.candidates) == (1, 1, 4)
    if checked:
        assert (result.won, result.executions, result.duplicates) == (1, 1, {})
        # N workers on one job in lock-step: one of them wins.
        assert result.miss_ratio == 3 / 4
    else:
        assert (result.won, result.executions, result.duplicates) == (4, 4, {4: 1})
        assert result.miss_ratio == 0.0
        assert result.per_worker == [1, 1, 1, 1]


# --- errors of the drivers ------------------------------------------------------------------------------------------


@pytest.fixture
def engines(fresh_url: str) -> tuple[Engine, Engine]:
    """Two clients of a database with a table of two rows."""
    pair = tuple(create_engine(fresh_url, poolclass=NullPool) for _ in range(2))
    with pair[0].begin() as connection:
        connection.execute(text("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO t VALUES (1, 0), (2, 0)"))
    return pair[0], pair[1]


@contextmanager
def watching(kind: str, *engines: Engine) -> Iterator[WorkerContext]:
    """A context that counts what goes wrong on these engines."""
    dialect: Dialect = dialect_for(kind)
    context = WorkerContext(0, Uncounted(), lambda: 0.0)
    with context.counting(engines[0], dialect):
        if len(engines) == 1:
            yield context
        else:
            with context.counting(engines[1], dialect):
                yield context


class Uncounted:
    over = False

    def add(self, worker: int, *, begun: int = 0, left: int = 0, added: int = 0) -> None:
        pass


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_a_deadlock_is_counted_as_one(kind: str, engines: tuple[Engine, Engine]) -> None:
    both_hold_one = threading.Barrier(2)

    def cross(engine: Engine, first: int, second: int) -> None:
        with engine.connect() as connection:
            if kind == "postgresql":
                connection.execute(text("SET deadlock_timeout = '10ms'"))
            connection.execute(text("UPDATE t SET n = n + 1 WHERE id = :id"), {"id": first})
            both_hold_one.wait(PATIENCE)
            connection.execute(text("UPDATE t SET n = n + 1 WHERE id = :id"), {"id": second})
            connection.commit()

    with watching(kind, *engines) as context:
        outcomes = at_once(lambda: cross(engines[0], 1, 2), lambda: cross(engines[1], 2, 1))
    assert [isinstance(outcome, DBAPIError) for outcome in outcomes].count(True) == 1
    assert context.notes.faults == {Fault.DEADLOCK: 1}


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """Somebody's transaction has changed the first row."""
    with engine.connect() as connection:
        connection.execute(text("UPDATE t SET n = n + 1 WHERE id = 1"))
        yield


#: A setting that makes waiting short; MySQL knows no less than a second.
NO_PATIENCE = {
    "postgresql": "SET lock_timeout = '1ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",
    "mariadb": "SET SESSION innodb_lock_wait_timeout = 0",
}

UPDATE, NOWAIT = "UPDATE t SET n = 7 WHERE id = 1", "SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT"


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
@pytest.mark.parametrize("statement", [UPDATE, NOWAIT], ids=["waited", "not waited"])
def test_a_lock_that_is_not_to_be_had_is_counted_as_a_timeout(kind: str, statement: str, engines: tuple[Engine, Engine]) -> None:
    with held(engines[0]), watching(kind, engines[1]) as context, engines[1].connect() as connection:
        connection.execute(text(NO_PATIENCE[kind]))
        with pytest.raises(DBAPIError):
            connection.execute(text(statement))
    assert context.notes.faults == {Fault.LOCK_TIMEOUT: 1}


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_busy_file_is_counted_as_a_timeout(kind: str, engines: tuple[Engine, Engine]) -> None:
    with engines[0].connect() as writer, watching(kind, engines[1]) as context, engines[1].connect() as other:
        writer.exec_driver_sql("BEGIN IMMEDIATE")
        other.exec_driver_sql("PRAGMA busy_timeout = 0")
        with pytest.raises(DBAPIError, match="locked"):
            other.exec_driver_sql("BEGIN IMMEDIATE")
    assert context.notes.faults == {Fault.LOCK_TIMEOUT: 1}


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], scope="session")
def test_a_snapshot_that_is_too_old_is_counted_as_a_serialization_failure(kind: str, engines: tuple[Engine, Engine]) -> None:
    """MySQL has no such error: there the update sees the new row."""
    ours = engines[0].execution_options(isolation_level="REPEATABLE READ")
    with watching(kind, ours) as context, ours.connect() as connection:
        if kind == "mariadb":
            connection.execute(text("SET SESSION innodb_snapshot_isolation = ON"))
            connection.commit()
        connection.execute(text("SELECT * FROM t")).all()
        with engines[1].begin() as other:
            other.execute(text("UPDATE t SET n = 5 WHERE id = 1"))
        with pytest.raises(DBAPIError):
            connection.execute(text("UPDATE t SET n = 6 WHERE id = 1"))
    assert context.notes.faults == {Fault.SERIALIZATION: 1}


def test_any_other_error_is_counted_as_such(kind: str, engines: tuple[Engine, Engine]) -> None:
    with watching(kind, engines[0]) as context, engines[0].connect() as connection:
        with suppress(DBAPIError):
            connection.execute(text("SELECT nothing FROM nowhere"))
        connection.rollback()
        with suppress(DBAPIError):
            connection.execute(text("INSERT INTO t VALUES (1, 0)"))
    assert context.notes.faults == {Fault.OTHER: 2}


def test_what_is_no_longer_watched_is_not_counted(kind: str, engines: tuple[Engine, Engine]) -> None:
    with watching(kind, engines[0]) as context, engines[0].connect() as connection:
        connection.execute(text("SELECT 1"))
    with engines[0].connect() as connection, suppress(DBAPIError):
        connection.execute(text("SELECT nothing FROM nowhere"))
    assert (context.notes.statements, context.notes.faults) == (1, {})
