"""Exceptions that come at any moment: of signal handlers, Ctrl-C, cancelled tasks. A connection in doubt is not used again."""

from __future__ import annotations

import contextlib
import gc
import inspect
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pymysql
import pytest
from sqlalchemy import create_engine, event, insert, select
from sqlalchemy.engine.base import RootTransaction
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import IntegrityError

from queue_db import LeasedJob, Queue, QueueDB
from queue_db.database.transaction import OwnTransaction
from queue_db.dialects import transactions
from tests.interrupting import InterruptError


def committed(other: QueueDB, queue: str) -> int:
    """The live jobs of the queue, as another process sees them."""
    jobs = other.store.tables.jobs
    with other.database.engine.connect() as connection:
        return len(connection.execute(select(jobs.c.id).where(jobs.c.queue == queue)).all())


@pytest.fixture
def other(url: str) -> Iterator[QueueDB]:
    """Another process, as far as the database can see."""
    with QueueDB(url) as opened:
        yield opened


@pytest.fixture
def alarm() -> Iterator[None]:
    """A handler that raises."""

    def handle(number: int, frame: Any) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGALRM, handle)
    yield
    signal.signal(signal.SIGALRM, before)


def in_a_transaction(queue: Queue) -> int | None:
    """An enqueue with a BEGIN and a COMMIT of its own."""
    return queue.enqueue("k", group="g")


@pytest.mark.usefixtures("alarm")
def test_an_alarm_while_begin_is_answered_loses_no_later_enqueue(
    kind: str, queue: Queue, other: QueueDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue("k")
    send = transactions.Sender.execute
    sent: list[str] = []

    def change(self: transactions.Sender, statement: str, *rest: Any) -> int:
        touched = send(self, statement, *rest)
        sent.append(statement)
        if len(sent) == 1:
            signal.raise_signal(signal.SIGALRM)
        return touched

    monkeypatch.setattr(transactions.Sender, "execute", change)
    with pytest.raises(InterruptError):
        in_a_transaction(queue)
    assert sent[0].startswith("BEGIN")
    queue.enqueue("k")
    assert committed(other, queue.name) == 2


def at_the_entry_of(function: Any, verb: Any) -> InterruptError:
    """Call ``verb``, with an exception at the entry of a function; return it."""
    code = function.__code__

    def trace(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            sys.settrace(None)
            raise InterruptError

    def traced() -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            verb()
        finally:
            sys.settrace(before)

    try:
        traced()
    except InterruptError as error:  # pytest.raises would make a cycle of it and this frame
        return error
    pytest.fail("the function was not entered")


def test_an_interrupt_at_the_end_of_a_verb_holds_no_lock_although_its_traceback_is_kept(
    kind: str, queue: Queue, other: QueueDB
) -> None:
    """As an interactive shell keeps the last one."""
    in_a_transaction(queue)
    kept = at_the_entry_of(OwnTransaction.__exit__, lambda: in_a_transaction(queue))
    other.queue(queue.name).enqueue("k", group="g")
    assert kept.__traceback__ is not None
    assert committed(other, queue.name) == 2


def test_an_interrupt_at_the_end_of_a_transaction_loses_no_later_enqueue(kind: str, queue: Queue, other: QueueDB) -> None:
    def fails() -> None:
        with queue.transaction() as connection:
            queue.enqueue("k", using=connection)
            raise ValueError

    queue.enqueue("k")
    at_the_entry_of(OwnTransaction.__exit__, fails)
    queue.enqueue("k")
    assert committed(other, queue.name) == 2


def test_an_interrupt_at_the_end_of_a_block_loses_no_later_enqueue(kind: str, queue: Queue, other: QueueDB) -> None:
    """The block's generator is closed when the exception is forgotten."""

    def fails() -> None:
        with queue.transaction() as connection:
            queue.enqueue("k", using=connection)
            raise ValueError

    queue.enqueue("k")
    at_the_entry_of(contextlib._GeneratorContextManager.__exit__, fails)
    gc.collect()
    queue.enqueue("k")
    assert committed(other, queue.name) == 2


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_each_connection_that_is_discarded_is_counted_and_logged_once(
    kind: str, queue: Queue, db: QueueDB, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        with queue.transaction():
            raise ValueError

    def told() -> list[str]:
        return [one.levelname for one in caplog.records if getattr(one, "outcome", None) == "discarded"]

    before = db.counters.discarded
    at_the_entry_of(OwnTransaction.__exit__, fails)
    gc.collect()
    assert (db.counters.discarded - before, told()) == (1, ["WARNING"])
    with db.database.counting:  # the garbage collection does not choose its time
        at_the_entry_of(contextlib._GeneratorContextManager.__exit__, fails)
        gc.collect()
    assert (db.counters.discarded - before, told()) == (2, ["WARNING"] * 2)
    with contextlib.suppress(ValueError):
        fails()
    queue.enqueue("k")
    assert (db.counters.discarded - before, len(told())) == (2, 2)


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_an_interrupt_while_a_connection_is_closed_is_raised_as_it_is(kind: str, queue: Queue, other: QueueDB) -> None:
    """Ctrl-C must not become an error that a loop would catch: SQLAlchemy fails with an AssertionError there."""
    queue.enqueue("k")
    # Its look for the key goes through SQLAlchemy.
    at_the_entry_of(RootTransaction._deactivate_from_connection, lambda: queue.enqueue("k", unique_key="a"))
    queue.enqueue("k")
    assert committed(other, queue.name) == 3


def test_an_error_of_the_application_for_one_of_the_database_is_no_interrupt(
    kind: str, queue: Queue, other: QueueDB, caplog: pytest.LogCaptureFixture
) -> None:
    queue.enqueue("k", unique_key="a")
    (job,) = queue.claim(1)
    opened: list[object] = []
    event.listen(queue.db.database.engine, "connect", lambda *given: opened.append(given))
    row = insert(queue.db.store.tables.queues).values(name=queue.name)

    def taken() -> None:
        with queue.transaction() as connection:
            job.complete(using=connection)
            connection.execute(row)
            try:
                connection.execute(row)
            except IntegrityError:
                raise ValueError("taken") from None

    for _ in range(2):
        with pytest.raises(ValueError, match="taken"):
            taken()
    assert not opened
    assert not [text for text in caplog.messages if "in doubt" in text]
    assert committed(other, queue.name) == 1


def before_the_rows(error: type[BaseException], word: str) -> Callable[..., Any]:
    """Raise the error where the rows of a statement with this word are to be fetched from the driver's cursor."""
    lines, first = inspect.getsourcelines(transactions.Sender.fetch)
    (fetches,) = [first + at for at, line in enumerate(lines) if "cursor.fetchall()" in line]
    code = transactions.Sender.fetch.__code__

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return trace
        if event == "line" and frame.f_lineno == fetches and word in frame.f_locals["text"].upper():
            sys.settrace(None)
            raise error
        return trace

    return trace


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_an_interrupt_between_a_claim_and_its_rows_holds_no_lock(kind: str, queue: Queue, other: QueueDB) -> None:
    trace = before_the_rows(InterruptError, "UPDATE")

    def claim() -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            queue.claim()
        finally:
            sys.settrace(before)

    queue.enqueue("k")
    with pytest.raises(InterruptError) as kept:
        claim()
    other.queue(queue.name).enqueue("k")  # it would wait for the lock, and fail
    assert kept.traceback  # as a log or a debugger keeps it
    assert committed(other, queue.name) == 2


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
@pytest.mark.parametrize("engine", ["ours", "the application's"])
@pytest.mark.parametrize("error", [InterruptError, KeyboardInterrupt])
def test_an_interrupt_between_a_change_and_its_rows_holds_no_lock(
    kind: str, url: str, other: QueueDB, engine: str, error: type[BaseException]
) -> None:
    """A change with RETURNING whose rows are not read holds the lock of the file, even if SQLAlchemy has closed the connection."""
    code = DefaultDialect.do_execute.__code__

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return trace
        if event == "return" and "RETURNING" in frame.f_locals["statement"]:
            sys.settrace(None)
            raise error
        return trace

    def release(jobs: Sequence[LeasedJob]) -> None:
        before = sys.gettrace()
        # On our own connections it goes to the driver's cursor.
        sys.settrace(before_the_rows(error, "RETURNING") if engine == "ours" else trace)
        try:
            queue.release_many(jobs)
        finally:
            sys.settrace(before)

    with QueueDB(url if engine == "ours" else create_engine(url)) as db:
        queue = db.queue(f"{engine} {error.__name__}")
        queue.enqueue_many([("k", None), ("k", None)])
        jobs = queue.claim(2)
        with pytest.raises(error) as kept:
            release(jobs)
        other.queue(queue.name).enqueue("k")  # it would wait for the lock, and fail
        assert kept.traceback  # as a log or a debugger keeps it, or a cycle
        assert committed(other, queue.name) == 3


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")
def test_an_interrupt_while_a_connection_is_checked_out_leaves_no_reply_to_the_next_statement(
    kind: str, url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id of the next job would be that of another statement: 0."""
    read = pymysql.connections.Connection._read_query_result
    interrupted: list[object] = []

    def reading(self: Any, unbuffered: bool = False) -> Any:
        if self._executed_with_isolation and not interrupted:
            interrupted.append(self)
            raise InterruptError
        return read(self, unbuffered=unbuffered)

    def executing(self: Any, command: int, sql: Any) -> None:
        execute(self, command, sql)
        self._executed_with_isolation = b"ISOLATION LEVEL" in (sql.encode() if isinstance(sql, str) else bytes(sql))

    execute = pymysql.connections.Connection._execute_command
    engine = create_engine(url, pool_size=1, max_overflow=0)
    with QueueDB(engine) as db:
        of = db.queue(queue.name)
        of.enqueue("k")
        monkeypatch.setattr(pymysql.connections.Connection, "_execute_command", executing)
        monkeypatch.setattr(pymysql.connections.Connection, "_read_query_result", reading)
        with pytest.raises(InterruptError):
            of.enqueue("k")
        gc.collect()
        assert interrupted
        job_id = of.enqueue("k", {"n": 1})
        assert of.get(job_id).payload == {"n": 1}
    engine.dispose()


def test_a_connection_that_nobody_gave_back_is_not_used_again(kind: str, queue: Queue, other: QueueDB) -> None:
    queue.enqueue("k")
    connection: Any = queue.db.database.connections.take()
    tx = transactions.Sender(connection.connection, queue.db.database.dialect)
    tx.lead(connection)
    tx.begin()
    del connection, tx
    gc.collect()
    queue.enqueue("k")
    assert committed(other, queue.name) == 2
