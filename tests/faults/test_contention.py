"""The database gives up on a transaction: ours are run again and counted, a caller's are the caller's to run again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from queue_db import ConfigurationError, LeasedJob, Queue, QueueDB, StorageError, TransientStorageError, Verdict
from queue_db.dialects import transactions
from tests.patience import PATIENCE

SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")

_INNODB = (
    "SELECT trx_query FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id "
    "WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()"
)

#: Lists who waits for a lock, with the statement.
WAITING = {
    "postgresql": "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
    "mysql": _INNODB,
    "mariadb": _INNODB,
}


class Rival:
    """Somebody else's transaction, which takes the last of three jobs and, once we wait, the first.

    PostgreSQL looks for a circle once, when a wait has lasted for a second, and gives up the transaction that has found it. So that
    it is ours, we wait for a third transaction first, at the second job; when the circle is all but closed, that one ends.
    """

    def __init__(self, db: QueueDB, kind: str, jobs: list[LeasedJob]) -> None:
        self._kind, self._jobs = kind, sorted(jobs, key=lambda job: job.id)
        self._engine = create_engine(db.database.engine.url)
        self._connection = self._engine.connect().execution_options(isolation_level="READ COMMITTED")
        self._third = self._engine.connect()
        self._watch = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def take_last(self) -> None:
        first, second, _ = self._jobs
        if self._kind == "postgresql":
            self._connection.execute(text("SET deadlock_timeout = '1h'"))  # it never looks
            self._third.execute(text("UPDATE jobs SET worker = 'third' WHERE id = :id"), {"id": second.id})
        # InnoDB gives up the transaction that has changed less: this one has changed more than ours will.
        self._connection.execute(
            text("UPDATE jobs SET worker = 'rival' WHERE queue = :queue AND id NOT IN (:first, :second)"),
            {"queue": first.queue, "first": first.id, "second": second.id},
        )

    def close_the_circle(self) -> None:
        """Wait until somebody waits, ask for what he has, and give way when the server has chosen its victim."""
        self._wait_for(1)
        asked = in_background(self._ask_for_first)
        if self._kind == "postgresql":
            self._wait_for(2)
            self._third.rollback()
        asked.result(PATIENCE)
        self._connection.rollback()

    def _ask_for_first(self) -> None:
        self._connection.execute(text("UPDATE jobs SET worker = 'rival' WHERE id = :id"), {"id": self._jobs[0].id})

    def _wait_for(self, number: int) -> None:
        """Return when so many wait for a lock."""
        limit, waiting = time.monotonic() + PATIENCE, 0
        while waiting < number:
            assert time.monotonic() < limit, "nobody waits"
            # InnoDB shows the same picture again to whoever asks within a tenth of a second of the last time, which may have been
            # the test before this one.
            threading.Event().wait(0.01 if self._kind == "postgresql" else 0.15)
            # A prepared statement does not name its table.
            statements = [set((row[0] or "").split()) for row in self._watch.execute(text(WAITING[self._kind]))]
            waiting = sum(bool({"jobs", "EXECUTE"} & words) for words in statements)

    def close(self) -> None:
        self._connection.close()
        self._third.close()
        self._watch.close()
        self._engine.dispose()


@pytest.fixture
def db(kind: str, fresh_url: str) -> Iterator[QueueDB]:
    """A database of its own: what other tests have left in a shared one changes the plans, and so who waits for whom."""
    url = make_url(fresh_url)
    if kind == "postgresql":
        # The circle may take longer to close than locks are waited for.
        url = url.update_query_dict({"options": "-c lock_timeout=0"})
    with QueueDB(url) as own:
        own.migrate()
        yield own


@pytest.fixture
def jobs(queue: Queue) -> list[LeasedJob]:
    queue.enqueue_many([("k", number) for number in range(50)])
    # All of them change hands with the rival; ours are the first two and the last.
    every = queue.claim(50)
    return [*every[:2], every[-1]]


@pytest.fixture
def rival(db: QueueDB, kind: str, jobs: list[LeasedJob]) -> Iterator[Rival]:
    other = Rival(db, kind, jobs)
    yield other
    other.close()


def in_background(act: Callable[[], Any]) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(act)
    pool.shutdown(wait=False)
    return future


class Gate:
    """Where each run of a transaction waits until it is let in."""

    def __init__(self, db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
        self._take, self._passes = db.database.connections.take, threading.Semaphore(0)
        monkeypatch.setattr(db.database.connections, "take", self._pass)

    def _pass(self) -> Any:
        assert self._passes.acquire(timeout=PATIENCE), "nobody opens the gate"
        return self._take()

    def let_one_in(self) -> None:
        self._passes.release()


@SERVERS
@pytest.mark.parametrize("circles", [1, 2])
def test_a_deadlock_in_our_transaction_is_run_again_as_often_as_it_closes_and_counted(
    db: QueueDB, queue: Queue, jobs: list[LeasedJob], rival: Rival, circles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the gate the number is not fixed on PostgreSQL: a run that begins while the rival's process has not woken up yet gets
    # the first job, although the rival has waited for it. InnoDB gave it to the rival each time.
    gate = Gate(db, monkeypatch)
    verdicts = in_background(lambda: queue.complete_many(jobs))
    for _ in range(circles):
        rival.take_last()
        gate.let_one_in()
        rival.close_the_circle()
    gate.let_one_in()
    assert verdicts.result(PATIENCE) == [Verdict.APPLIED] * 3
    assert db.counters.retried == db.counters.deadlocks == circles
    assert db.counters.applied == 3


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_verb_that_waits_to_try_again_does_not_go_on_after_close(db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Connection] = []

    def work(connection: Connection) -> None:
        runs.append(connection)
        raise TransientStorageError("once more")

    monkeypatch.setattr(db.database, "pause", lambda _: db.close())
    with pytest.raises(ConfigurationError, match="this QueueDB is closed"):
        db.database.run(work, name="verb")
    assert (len(runs), db.counters.retried) == (1, 0)


@SERVERS
def test_a_deadlock_in_a_callers_transaction_is_the_callers(db: QueueDB, queue: Queue, jobs: list[LeasedJob], rival: Rival) -> None:
    def complete(connection: Connection) -> None:
        queue.complete_many(jobs, using=connection)

    with db.database.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        rival.take_last()
        outcome = in_background(lambda: complete(connection))
        rival.close_the_circle()
        with pytest.raises(TransientStorageError, match="^complete: .*(?i:deadlock)") as victim:
            outcome.result(PATIENCE)
        assert victim.value.sqlstate in ("40P01", "1213")
        assert not victim.value.server_away
        connection.rollback()
    assert db.counters.retried == 0
    assert db.counters.applied == 0
    # He may run it again.
    assert all(queue.complete_many(jobs))


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_an_exhausted_pool_is_a_clear_error(url: str, name: str) -> None:
    engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    with QueueDB(engine) as db:
        queue = db.queue(name)
        queue.enqueue("k")
        with engine.connect(), pytest.raises(TransientStorageError, match="claim: no free connection in the pool") as refused:
            queue.claim()
        assert not refused.value.outcome_unknown
        assert len(queue.claim(10)) == 1
    engine.dispose()


def end_session(of: QueueDB, kind: str, connection: Connection) -> None:
    """Let the server end the session that the next verb of ``of`` uses."""
    own, end, gone = {
        "postgresql": ("pg_backend_pid()", "SELECT pg_terminate_backend({})", "pg_stat_activity WHERE pid = {}"),
    }.get(kind, ("CONNECTION_ID()", "KILL CONNECTION {}", "information_schema.processlist WHERE id = {}"))
    with of.database.connections.one() as victim:
        number = victim.execute(text(f"SELECT {own}")).scalar_one()
    connection.execute(text(end.format(number)))
    limit = time.monotonic() + 30
    while connection.execute(text(f"SELECT count(*) FROM {gone.format(number)}")).scalar_one():
        assert time.monotonic() < limit, "the connection does not end"
        connection.rollback()


@SERVERS
@pytest.mark.parametrize("given", [True, False], ids=["an engine of the application", "a URL"])
def test_a_connection_that_the_server_ended_is_replaced(db: QueueDB, url: str, kind: str, name: str, given: bool) -> None:
    with QueueDB(create_engine(url) if given else url) as other, db.database.engine.connect() as connection:
        queue = other.queue(name)
        queue.enqueue("k")
        end_session(other, kind, connection)
        (job,) = queue.claim()
        assert job.attempts == 1
        assert given or other.counters.retried == 1  # an engine may notice it when it gives the connection


@SERVERS
def test_the_outcome_of_an_enqueue_is_known_although_the_server_ended_the_session(
    db: QueueDB, url: str, kind: str, name: str
) -> None:
    """A look at the session shows that it was closed, so the enqueue has a transaction, which can run again."""
    with QueueDB(url) as other, db.database.engine.connect() as connection:
        queue = other.queue(name)
        for _ in range(3):
            queue.enqueue("k")
        end_session(other, kind, connection)
        queue.enqueue("k")
        assert other.counters.retried == 1
        assert queue.stats().available == 4


@SERVERS
def test_each_statement_on_a_connection_that_broke_raises_an_error_of_sqlalchemy(db: QueueDB, kind: str) -> None:
    """The driver's own are for nobody: verbs would not know them."""
    own, end = {"postgresql": ("pg_backend_pid()", "SELECT pg_terminate_backend({})")}.get(
        kind, ("CONNECTION_ID()", "KILL CONNECTION {}")
    )

    def send_twice() -> None:
        with db.database.begin("broken") as connection:
            sender = transactions.own(connection)
            assert sender is not None
            ((number,),) = sender.fetch(f"SELECT {own}", ())
            with db.database.engine.connect() as other:
                other.execute(text(end.format(number)))
            for _ in range(2):
                with pytest.raises(DBAPIError) as broke:
                    sender.fetch("SELECT 1", ())
                assert broke.value.connection_invalidated

    with pytest.raises(StorageError):
        send_twice()
