"""``using=`` takes a connection with a transaction; one in autocommit mode is refused before anything is written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from queue_db import ConfigurationError, PermanentStorageError, Queue, QueueDB, Verdict
from tests.aio.loop import for_asyncio, on_the_loop


def option_of_the_connection(engine: Engine) -> Connection:
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def option_of_the_engine(engine: Engine) -> Connection:
    return engine.execution_options(isolation_level="AUTOCOMMIT").connect()


def with_sqlalchemys_begin(engine: Engine) -> Connection:
    connection = option_of_the_connection(engine)
    connection.begin()  # which sends nothing
    return connection


def set_on_the_driver(engine: Engine) -> Connection:
    connection = engine.connect()
    driver: Any = connection.connection.dbapi_connection
    if engine.dialect.name == "sqlite":
        driver.isolation_level = None
    elif engine.dialect.name == "postgresql":
        driver.autocommit = True
    else:
        driver.autocommit(True)
    return connection


def session(engine: Engine) -> Session:
    return Session(engine.execution_options(isolation_level="AUTOCOMMIT"))


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize(
    "make", [option_of_the_connection, option_of_the_engine, with_sqlalchemys_begin, set_on_the_driver, session]
)
def test_a_connection_that_commits_each_statement_is_refused(queue: Queue, engine: Engine, make: Callable[[Engine], Any]) -> None:
    queue.enqueue("leased")
    (job,) = queue.claim()
    with make(engine) as using:
        for verb in (
            lambda: queue.enqueue("a", using=using),
            lambda: queue.enqueue("a", group="g", unique_key="k", unique_for=60, using=using),
            lambda: queue.enqueue_many([("a", number) for number in range(1100)], using=using),
            lambda: queue.enqueue_batch([("a", 1)], ("then", 2), using=using),
            lambda: job.complete(using=using),
            lambda: queue.complete_many([job], using=using),
        ):
            with pytest.raises(ConfigurationError, match=r"AUTOCOMMIT.*with engine\.begin\(\) as connection"):
                verb()
    assert queue.stats().available == 0
    assert job.complete() is Verdict.APPLIED


def test_a_connection_with_a_transaction_is_taken_unasked(queue: Queue, engine: Engine) -> None:
    sent: list[str] = []
    with engine.begin() as connection:
        # What is asked once for each connection has been asked then. Nobody is notified of a job that is not due.
        queue.enqueue("warm", delay=60, using=connection)
        event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
        queue.enqueue("a", delay=60, using=connection)
    assert [statement.split()[0] for statement in sent] == ["INSERT"]
    with queue.transaction() as connection:  # ours autocommit, but this one has begun
        queue.enqueue("a", using=connection)
    assert (queue.stats().scheduled, queue.stats().available) == (2, 1)


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("begin_first", [True, False])
def test_sqlalchemys_recipe_for_transactions_of_sqlite_is_taken(queue: Queue, engine: Engine, begin_first: bool) -> None:
    @event.listens_for(engine, "connect")
    def connect(driver: Any, _: Any) -> None:
        driver.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection:
        if begin_first:
            connection.begin()
        queue.enqueue_many([("a", 1), ("a", 2)], using=connection)
        connection.rollback()
        assert queue.stats().available == 0
        queue.enqueue("a", using=connection)
        connection.commit()
    assert queue.stats().available == 1


def test_a_connection_of_another_driver_is_taken_again_and_again(queue: Queue, url: str) -> None:
    async def enqueue_twice() -> None:
        engine = create_async_engine(for_asyncio(url))
        async with engine.begin() as connection:
            for _ in range(2):
                await connection.run_sync(lambda using: queue.enqueue("a", using=using))
        await engine.dispose()

    on_the_loop(enqueue_twice())
    assert queue.stats().available == 2


def test_what_belongs_to_asyncio_is_refused_without_a_coroutine_left_over(queue: Queue, url: str) -> None:
    engine = create_async_engine(for_asyncio(url))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for using in (AsyncSession(engine), AsyncConnection(engine)):
            with pytest.raises(ConfigurationError, match=r"is for asyncio.*AsyncQueueDB"):
                queue.enqueue("a", using=using)  # type: ignore[arg-type]
            del using


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_mistake_of_the_application_in_our_transaction_gets_no_advice_about_connections(db: QueueDB, name: str) -> None:
    """SQLAlchemy's classes have many causes; only at the start of a verb do they say something of the connection."""
    with pytest.raises(PermanentStorageError, match="ResourceClosedError$"), db.queue(name).transaction() as connection:
        connection.execute(text("UPDATE jobs SET priority = priority")).fetchall()
    begun = db.queue(name).transaction()
    with pytest.raises(PermanentStorageError, match="InvalidRequestError$"), begun as connection, connection.begin():
        connection.begin()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["session", "async session"])
def test_a_connection_to_another_database_is_refused_with_both_names(
    queue: Queue, url: str, fresh_url: str, asynchronous: bool
) -> None:
    with QueueDB(fresh_url) as other:
        other.migrate()  # the same tables are there too: what went there would be lost without an error
        queue.enqueue("leased")
        (job,) = queue.claim()
        names = [re.escape(str(make_url(one).database)) for one in (fresh_url, url)]
        refused = pytest.raises(ConfigurationError, match=f"using= is a connection to {names[0]}, but this queue is in {names[1]}")

        async def tried() -> None:
            engine = create_async_engine(for_asyncio(fresh_url))
            async with AsyncSession(engine) as session:
                with refused:
                    await job.complete(using=session)
            await engine.dispose()

        engine = create_engine(fresh_url)
        if asynchronous:
            on_the_loop(tried())
        else:
            with Session(engine) as session:
                for verb in (partial(queue.enqueue, "lost"), partial(queue.complete_many, [job])):
                    with refused:
                        verb(using=session)
        with QueueDB(engine) as theirs, engine.begin() as connection:
            theirs.queue("own").enqueue("k", using=connection)
        engine.dispose()
        assert other.queue(queue.name).stats().available == 0
    assert job.complete()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_another_name_of_the_file_is_taken(queue: Queue, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(str(make_url(url).database))
    (tmp_path / "link").symlink_to(file.parent)
    monkeypatch.chdir(file.parent)
    for name in (f"{tmp_path}/link/{file.name}", file.name, f"file:{file}?uri=true"):
        engine = create_engine(f"sqlite:///{name}")
        with engine.begin() as connection:
            queue.enqueue("k", using=connection)
        engine.dispose()
    assert queue.stats().available == 3


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_database_in_memory_is_not_a_file(queue: Queue) -> None:
    with create_engine("sqlite://").connect() as connection, pytest.raises(ConfigurationError, match="a database in memory"):
        queue.enqueue("k", using=connection)


MISTAKES: dict[str, Callable[[Connection], Any]] = {
    "sqlalchemy.text": lambda connection: connection.execute("SELECT 'secret'"),  # type: ignore[call-overload]
    "a parameter has no value": lambda connection: connection.execute(text("SELECT :a, 'secret'")),
    "the result has no row": lambda connection: connection.execute(text("SELECT 'secret' FROM jobs WHERE 1 = 2")).one(),
    "the result has several rows": lambda connection: connection.execute(text("SELECT 'secret' UNION SELECT 'b'")).one(),
}


@pytest.mark.parametrize(("remedy", "mistake"), MISTAKES.items())
def test_a_mistake_in_a_transaction_of_ours_has_its_remedy_and_no_data(
    queue: Queue, remedy: str, mistake: Callable[[Connection], Any]
) -> None:
    """The message is what a failed attempt keeps, where the cause is not seen."""
    with pytest.raises(PermanentStorageError, match=remedy) as raised, queue.transaction() as connection:
        mistake(connection)
    assert "secret" not in str(raised.value)
    assert type(raised.value.__cause__).__name__ in str(raised.value)


def test_a_translated_schema_is_refused(queue: Queue, engine: Engine) -> None:
    """The queue's statements are kept as texts, which would go to other tables than an application's."""
    translated = engine.execution_options(schema_translate_map={None: "tenant"})
    with pytest.raises(ConfigurationError, match=r"this engine has a schema_translate_map.*schema="):
        QueueDB(translated)
    with translated.begin() as connection, pytest.raises(ConfigurationError, match=r"using= has a schema_translate_map"):
        queue.enqueue("a", using=connection)
    assert queue.stats().available == 0


def test_a_translated_schema_of_other_tables_is_taken(queue: Queue, engine: Engine) -> None:
    translated = engine.execution_options(schema_translate_map={"tenant": "of_a_customer"})
    with QueueDB(translated) as theirs:
        theirs.queue(queue.name).enqueue("a")
        with translated.begin() as connection:
            queue.enqueue("b", using=connection)
    assert queue.stats().available == 2


def test_a_statement_after_a_commit_of_the_application_is_refused_and_the_connection_is_kept(queue: Queue, engine: Engine) -> None:
    """Otherwise it would begin a second transaction, which the end of the block throws away."""
    with QueueDB(engine) as theirs:
        theirs.queue(queue.name).enqueue("a")
        (job,) = theirs.queue(queue.name).claim()

        def commits() -> None:
            with job.transaction() as connection:
                connection.commit()
                connection.execute(text("SELECT 1"))

        with pytest.raises(PermanentStorageError, match="InvalidRequestError"):
            commits()
        assert theirs.counters.discarded == 0


@pytest.mark.parametrize("of", ["the application", "the library", "the library, with a listener"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_block_that_the_application_ends_itself_is_an_error(queue: Queue, url: str, engine: Engine, end: str, of: str) -> None:
    """What it has rolled back was not committed, and the block must not say so."""

    def ends() -> None:
        with theirs.queue(queue.name).transaction() as connection:
            theirs.queue(queue.name).enqueue("a", using=connection)
            getattr(connection, end)()

    with QueueDB(engine if of == "the application" else url) as theirs:
        if of == "the library, with a listener":
            event.listen(theirs.database.engine, "before_cursor_execute", lambda *_: None)
        with pytest.raises(PermanentStorageError, match="InvalidRequestError"):
            ends()
        if (end, of) == ("rollback", "the library") or of == "the application":
            # On connections that autocommit, some drivers send no COMMIT.
            assert queue.stats().available == (end == "commit")
        assert theirs.counters.discarded == 0
        for _ in range(3):  # the connection is as good as before
            theirs.queue(queue.name).enqueue("later")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_block_that_has_ended_its_transaction_enqueues_nothing_more(queue: Queue, db: QueueDB, end: str) -> None:
    """Each later statement would be committed alone."""

    def goes_on() -> None:
        with queue.transaction() as connection:
            queue.enqueue("a", using=connection)
            getattr(connection, end)()
            queue.enqueue("b", using=connection)

    with pytest.raises(PermanentStorageError, match="InvalidRequestError"):
        goes_on()
    assert [job.kind for job in queue.peek() if job.kind == "b"] == []


def test_a_connection_whose_block_has_ended_its_transaction_is_used_again(queue: Queue, db: QueueDB) -> None:
    def ends() -> None:
        with queue.transaction() as connection:
            used.append(connection)
            connection.rollback()

    used: list[Connection] = []
    for _ in range(2):
        with pytest.raises(PermanentStorageError, match="InvalidRequestError"):
            ends()
    with queue.transaction() as connection:
        used.append(connection)
        connection.execute(text("SELECT 1"))
        queue.enqueue("a", using=connection)
    with queue.transaction() as connection:
        used.append(connection)
    assert len(set(map(id, used))) == 1
    assert queue.stats().available == 1
