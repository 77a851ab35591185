"""Put two transactions into the order that a race needs, with events and locks and never with time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, event, make_url, text

from queue_db import LeasedJob, Queue, QueueDB
from queue_db.dialects.transactions import Sender
from tests.patience import PATIENCE
from tests.prepared_text import text_of

_T = TypeVar("_T")

#: Seconds after which InnoDB's view of its transactions is up to date.
_INNODB_REFRESHES = 0.15

_LOCK_WAIT = {"init_command": f"SET SESSION innodb_lock_wait_timeout = {PATIENCE:.0f}", "read_timeout": f"{2 * PATIENCE:.0f}"}
_LOCK_WAITS = {
    "sqlite": {"timeout": f"{PATIENCE:.0f}"},
    "postgresql": {"options": f"-c lock_timeout={PATIENCE:.0f}s"},
    "mysql": _LOCK_WAIT,
    "mariadb": _LOCK_WAIT,
}


def patient(url: str) -> URL:
    """The same database, whose statements wait for locks as long as a test waits, not the ten seconds that the package sets."""
    parsed = make_url(url)
    return parsed.update_query_dict(_LOCK_WAITS[parsed.get_backend_name()])


@contextmanager
def open_transaction(db: QueueDB) -> Iterator[Connection]:
    """A transaction as the library begins it, left open until the block commits or rolls it back."""
    with db.database.engine.connect() as connection:
        if db.database.dialect.autocommits:
            level = "SERIALIZABLE" if connection.dialect.name == "sqlite" else "READ COMMITTED"
            connection.execution_options(isolation_level=level)
        connection.begin()
        Sender(connection, db.database.dialect).begin()
        yield connection


@contextmanager
def between(engine: Engine, start: str, action: Callable[[], object]) -> Iterator[list[object]]:
    """Run ``action`` once, right before the first statement on ``engine`` that begins with ``start``.

    The statement's transaction has read what it read; what the action commits comes after that and before the statement.
    """
    done: list[object] = []

    def before(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if not done and text_of(cursor, statement).lstrip().upper().startswith(start):
            done.append(None)
            done[0] = action()

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield done
    finally:
        event.remove(engine, "before_cursor_execute", before)


def other_handle(job: LeasedJob, queue: Queue) -> LeasedJob:
    """The same lease in another process's hands."""
    handle = LeasedJob(job._row, queue, queue.db.codec, job.token)
    handle.version = job.version
    return handle


def at_once(*works: Callable[[], _T]) -> list[_T | Exception]:
    """Run all of them in threads that start together; what each returned or raised, by position."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], _T]) -> _T | Exception:
        barrier.wait(PATIENCE)
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the test says which ones are right
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(run, work) for work in works]]


def _session(connection: Any) -> int:
    """The server's number of a driver's connection."""
    if hasattr(connection, "thread_id"):
        return int(connection.thread_id())
    return int(connection.info.backend_pid) if hasattr(connection, "info") else 0


class Loser:
    """A verb that runs in a thread while another transaction holds what it wants."""

    def __init__(self, kind: str, db: QueueDB, work: Callable[[], Any]) -> None:
        self._kind = kind
        self._observer = db.database.engine
        self._begun = threading.Event()
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._thread = 0
        self._sessions: set[int] = set()
        self._asked = time.monotonic()

        def sent(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            if threading.get_ident() == self._thread:
                self._sessions.add(_session(connection.connection.driver_connection))
            if statement.startswith(("BEGIN IMMEDIATE", "INSERT", "UPDATE", "DELETE")):
                self._begun.set()

        event.listen(db.database.engine, "before_cursor_execute", sent)

        def run() -> Any:
            self._thread = threading.get_ident()
            try:
                return work()
            finally:
                self._done.set()

        self._future: Future[Any] = self._pool.submit(run)

    def until_it_waits(self) -> bool:
        """Return when it waits for a lock (True) or has come to its end without (False)."""
        if self._kind == "sqlite":
            # There is no view of who waits; it stands before the one lock that there is.
            assert self._begun.wait(PATIENCE)
            return not self._done.is_set()
        for _ in range(int(PATIENCE / 0.005)):
            if self._done.wait(0.005):
                return False
            if self._waits():
                return True
        raise AssertionError("it neither waits nor ends")

    def _waits(self) -> bool:
        """Whether one of its own sessions waits: on the same server others may, such as those of the test before."""
        sessions = sorted(self._sessions)
        with self._observer.connect() as connection:
            if self._kind == "postgresql":
                query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(:sessions) AND wait_event_type = 'Lock'"
                return bool(connection.execute(text(query), {"sessions": sessions}).scalar_one())
            status: str = connection.execute(text("SHOW ENGINE INNODB STATUS")).one()[2]
            # The part before it may tell of the last deadlock on this server, whenever that was, and of who waited then.
            for transaction in status.partition("\nTRANSACTIONS\n")[2].split("---TRANSACTION")[1:]:
                if "LOCK WAIT" in transaction and any(f" thread id {session}," in transaction for session in sessions):
                    return True
            # MySQL does not show a transaction there that has only read. The other view shows an older picture to whoever asks
            # within a tenth of a second of the last time.
            if time.monotonic() - self._asked < _INNODB_REFRESHES:
                return False
            query = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            waiting = {session for (session,) in connection.execute(text(query))}
            self._asked = time.monotonic()
            return not waiting.isdisjoint(sessions)

    def result(self) -> Any:
        """What it came to, once nobody is in its way."""
        try:
            return self._future.result(PATIENCE)
        finally:
            self._pool.shutdown()
