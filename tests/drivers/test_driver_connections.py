"""``using=`` takes the open connections of drivers and of Django: in their transactions, and without a trace on them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import make_url

from queue_db import ConfigurationError, DuplicateJobError, PermanentStorageError, Queue, QueueDB, StorageError, Verdict
from queue_db.database import driver_connections
from queue_db.dialects import borrowed
from tests.drivers import projects
from tests.drivers.lenders import LENDERS, Lender, ask, opened


def _pairs() -> Iterator[Any]:
    for lender in LENDERS:
        for kind in lender.kinds:
            marks = (
                [pytest.mark.rest("it is built from source; those of PyMySQL and psycopg")] if lender.name == "mysqlclient" else []
            )
            yield pytest.param(kind, lender, id=f"{lender.name}-{kind}", marks=marks)


on_each_driver = pytest.mark.parametrize("kind, lender", list(_pairs()))  # noqa: PT006 - conftest looks for the name
with_wishes = pytest.mark.parametrize("wishes", [False, True], ids=["plain", "own settings"])


def options(lender: Lender, *, wishes: bool) -> dict[str, Any]:
    return dict(lender.wishes()) if wishes else {}


@with_wishes
@on_each_driver
def test_jobs_are_there_after_the_commit_only(queue: Queue, url: str, lender: Lender, wishes: bool) -> None:
    jobs = [("k", {"text": f"ü'%s\\ {number}"}) for number in range(1100)]
    with opened(lender, url, **options(lender, wishes=wishes)) as connection:
        queue.enqueue("k", using=connection)
        queue.enqueue_many(jobs, using=connection)
        connection.rollback()
        assert queue.stats().available == 0
        ids = queue.enqueue_many(jobs, using=connection)
        last = queue.enqueue("last", {"n": None}, headers={"a": "b"}, using=connection)
        assert queue.stats().available == 0
        connection.commit()
    found = queue.claim(2000)
    assert [job.id for job in found] == [*ids, last]
    assert [(job.kind, job.payload) for job in found] == [*jobs, ("last", {"n": None})]
    queue.complete_many(found)


@with_wishes
@on_each_driver
def test_a_savepoint_of_the_application_takes_its_jobs_with_it(queue: Queue, url: str, lender: Lender, wishes: bool) -> None:
    with opened(lender, url, **options(lender, wishes=wishes)) as connection:
        queue.enqueue("before", using=connection)
        run(connection, "SAVEPOINT sa_savepoint_1")  # also the first name of SQLAlchemy's
        queue.enqueue_many([("lost", number) for number in range(1100)], using=connection)
        with pytest.raises(DuplicateJobError):
            _twice(queue, connection)
        run(connection, "ROLLBACK TO SAVEPOINT sa_savepoint_1")
        queue.enqueue("after", using=connection)
        connection.commit()
    assert [job.kind for job in queue.peek()] == ["before", "after"]


def _twice(queue: Queue, connection: Any) -> None:
    for _ in range(2):
        queue.enqueue("lost", unique_key="a", using=connection)


def run(connection: Any, sql: str) -> None:
    cursor = connection.cursor()
    cursor.execute(sql)
    cursor.close()


@with_wishes
@on_each_driver
def test_a_lost_lease_is_a_verdict_and_the_transaction_goes_on(queue: Queue, url: str, lender: Lender, wishes: bool) -> None:
    queue.enqueue_many([("k", number) for number in range(4)])
    jobs = queue.claim(4)
    queue.release_many(jobs[:2])
    with opened(lender, url, **options(lender, wishes=wishes)) as connection:
        assert jobs[0].complete(using=connection) is Verdict.LOST
        assert queue.complete_many(jobs[1:3], using=connection) == [Verdict.LOST, Verdict.APPLIED]
        connection.rollback()
        assert jobs[2].complete(using=connection) is Verdict.APPLIED
        assert jobs[3].complete(using=connection) is Verdict.APPLIED
        queue.enqueue("after", using=connection)
        connection.commit()
    assert sorted(job.kind for job in queue.peek()) == ["after", "k", "k"]


@on_each_driver
def test_unique_keys_and_feeds_are_in_the_transaction(db: QueueDB, queue: Queue, url: str, lender: Lender) -> None:
    feed = db.feed(queue.name)
    with opened(lender, url, **options(lender, wishes=True)) as connection:
        first = queue.enqueue("k", unique_key="a", using=connection)
        with pytest.raises(DuplicateJobError):
            queue.enqueue("k", unique_key="a", using=connection)
        assert queue.enqueue("k", unique_key="a", on_duplicate="skip", using=connection) is None
        assert queue.enqueue("new", unique_key="a", on_duplicate="replace", using=connection) == first
        feed.publish("m", {"n": 1}, using=connection)
        with db.graph(using=connection) as graph:
            before = graph.add(queue.name, "one")
            graph.add(queue.name, "two", after=before)
        connection.rollback()
        assert queue.stats().available == 0
        assert feed.read().messages == []
        feed.publish("m", {"n": 2}, using=connection)
        connection.commit()
    assert [message.payload for message in feed.read().messages] == [{"n": 2}]


def trace(connection: Any) -> dict[str, Any]:
    """What the application can see of its connection."""
    names = ("autocommit", "isolation_level", "row_factory", "cursor_factory", "text_factory", "prepare_threshold", "string_types")
    found = {name: getattr(connection, name, None) for name in (*names, "cursorclass", "encoders", "decoders", "converter")}
    found = {name: value for name, value in found.items() if name != "autocommit" or isinstance(value, bool)}
    if hasattr(connection, "get_autocommit"):
        found["autocommit"] = connection.get_autocommit()
    if hasattr(connection, "adapters"):
        found["int"] = connection.adapters.get_dumper(int, "s")
    return {name: dict(value) if isinstance(value, dict) else value for name, value in found.items()}


@with_wishes
@on_each_driver
def test_the_connection_is_afterwards_as_before(queue: Queue, url: str, lender: Lender, wishes: bool) -> None:
    levels = {"postgresql": "SHOW transaction_isolation", "sqlite": "SELECT 1"}
    level = levels.get(lender.kinds[0], "SELECT @@transaction_isolation" if "mysql" in url else "SELECT @@tx_isolation")
    with opened(lender, url, **options(lender, wishes=wishes)) as connection:
        before = trace(connection), [str(row) for row in ask(connection, level)]
        connection.commit()
        for _ in range(20):  # psycopg prepares what it has seen five times
            queue.enqueue("k", using=connection)
        connection.commit()
        for job in queue.claim(20):
            assert job.complete(using=connection)
        connection.commit()
        assert (trace(connection), [str(row) for row in ask(connection, level)]) == before
        if lender.kinds == ("postgresql",):
            ((number,),) = [tuple(row.values()) if isinstance(row, dict) else row for row in ask(connection, PREPARED)]
            assert number == 0
        (row,) = ask(connection, "SELECT 1 AS one")
        assert isinstance(row, dict) is (wishes and lender.name != "sqlite3")


PREPARED = "SELECT count(*) AS number FROM pg_prepared_statements WHERE statement LIKE '%jobs%'"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_texts_and_rows_of_an_application_of_sqlite_stay_its_own(queue: Queue, url: str) -> None:
    import sqlite3

    (lender,) = [lender for lender in LENDERS if lender.name == "sqlite3"]
    with opened(lender, url) as connection:
        connection.text_factory, connection.row_factory = bytes, sqlite3.Row
        queue.enqueue("k", unique_key="a", using=connection)
        assert queue.enqueue("k", unique_key="a", on_duplicate="skip", using=connection) is None
        with pytest.raises(DuplicateJobError):
            queue.enqueue("k", unique_key="a", using=connection)
        assert connection.text_factory is bytes
        (row,) = connection.execute("SELECT 'text' AS found")
        assert (type(row), row["found"]) == (sqlite3.Row, b"text")


@pytest.mark.parametrize("kind", ["postgresql"])
def test_casts_and_adapters_of_an_application_stay_its_own(queue: Queue, url: str) -> None:
    """The library reads numbers where the application reads texts."""
    import psycopg
    import psycopg2.extensions as of_psycopg2

    with opened(LENDERS[0], url) as connection:
        connection.adapters.register_loader("int8", psycopg.types.string.TextLoader)
        assert isinstance(queue.enqueue("k", using=connection), int)
        assert ask(connection, "SELECT CAST(1 AS BIGINT)") == [("1",)]
    with opened(LENDERS[1], url) as connection:
        of_psycopg2.register_type(of_psycopg2.new_type((20,), "TEXT", lambda value, _: value), connection)
        assert isinstance(queue.enqueue("k", using=connection), int)
        assert ask(connection, "SELECT CAST(1 AS BIGINT)") == [("1",)]


# --- refusals ------------------------------------------------------------------------------------------------------------


def commits_each(lender: Lender, connection: Any) -> None:
    if lender.name == "psycopg2":
        connection.autocommit = True


@on_each_driver
def test_a_connection_without_a_transaction_or_closed_is_refused(queue: Queue, url: str, lender: Lender) -> None:
    with opened(lender, url, **lender.autocommit) as connection:
        commits_each(lender, connection)
        refused = {"psycopg2": "autocommit = False", "pymysql": "begin", "mysqlclient": r"autocommit\(False\)", "sqlite3": "BEGIN"}
        queue.enqueue("k")
        (job,) = queue.claim()
        for verb in (lambda: queue.enqueue("k", using=connection), lambda: job.complete(using=connection)):
            with pytest.raises(
                ConfigurationError, match=f"no open transaction.*{refused.get(lender.name, 'with connection.tran')}"
            ):
                verb()
        assert job.complete()
    with pytest.raises(ConfigurationError, match="is closed"):
        queue.enqueue("k", using=connection)
    assert queue.stats().available == 0


@on_each_driver
def test_a_transaction_that_the_application_begins_in_autocommit_mode_is_taken(
    queue: Queue, url: str, lender: Lender, differs: Callable[[str], None]
) -> None:
    if lender.name == "mysqlclient":
        differs("mysqlclient shows no BEGIN")
    with opened(lender, url, **lender.autocommit) as connection:
        commits_each(lender, connection)
        for end in ("ROLLBACK", "COMMIT"):
            run(connection, "BEGIN")
            queue.enqueue("k", using=connection)
            run(connection, end)
    assert queue.stats().available == 1


@pytest.mark.parametrize("lender", LENDERS[:2], ids=["psycopg", "psycopg2"])
@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_failed_transaction_is_refused(queue: Queue, url: str, lender: Lender) -> None:
    with opened(lender, url) as connection:
        with pytest.raises(Exception, match="nosuch"):
            run(connection, "SELECT * FROM nosuch")
        with pytest.raises(ConfigurationError, match="failed transaction: roll it back"):
            queue.enqueue("k", using=connection)
        connection.rollback()
        queue.enqueue("k", using=connection)
        connection.commit()
    assert queue.stats().available == 1


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_connection_to_another_kind_of_database_is_refused(queue: Queue) -> None:
    import sqlite3

    with pytest.raises(ConfigurationError, match="using= is a connection to sqlite, but this queue is in postgresql"):
        queue.enqueue("k", using=sqlite3.connect(":memory:"))


@on_each_driver
def test_a_connection_to_another_database_is_refused(queue: Queue, url: str, fresh_url: str, lender: Lender) -> None:
    with QueueDB(fresh_url) as other:
        other.migrate()  # the same tables are there too: what went there would be lost without an error
        name = make_url(fresh_url).database
        for _ in range(2):
            with opened(lender, fresh_url) as connection, pytest.raises(ConfigurationError, match=f"connection to {name}, but"):
                queue.enqueue("k", using=connection)
        assert other.queue(queue.name).stats().available == 0


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_connection_in_pipeline_mode_is_refused(queue: Queue, url: str) -> None:
    """There a statement has no answer yet: a lost lease would look like a completion."""
    with opened(LENDERS[0], url) as connection:
        with (
            connection.pipeline(),
            pytest.raises(ConfigurationError, match=r"pipeline mode.*outside the block"),
        ):
            queue.enqueue("k", using=connection)
        queue.enqueue("k", using=connection)
        connection.commit()
    assert queue.stats().available == 1


@on_each_driver
def test_a_verb_within_a_verb_has_a_savepoint_of_its_own(queue: Queue, url: str, lender: Lender) -> None:
    with opened(lender, url) as connection:

        def jobs() -> Iterator[tuple[str, int]]:
            for number in range(2500):
                if number == 2000:
                    queue.enqueue("inner", unique_key="a", unique_for=60, using=connection)
                    queue.enqueue_many([("inner", None)] * 2, using=connection)
                yield "outer", number

        assert len(queue.enqueue_many(jobs(), using=connection)) == 2500
        connection.commit()
    assert queue.stats().available == 2503


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_connection_that_has_changed_its_database_is_refused(queue: Queue, url: str, fresh_url: str) -> None:
    with QueueDB(fresh_url) as other, opened(LENDERS[2], url) as connection:
        other.migrate()
        connection.select_db(make_url(fresh_url).database)
        with pytest.raises(ConfigurationError, match="using= is a connection to"):
            queue.enqueue("k", using=connection)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_look_and_a_refusal_lock_no_file(queue: Queue, url: str, fresh_url: str) -> None:
    job_id = queue.enqueue("k")
    assert job_id is not None
    with opened(LENDERS[4], url) as connection, opened(LENDERS[4], fresh_url) as elsewhere:
        assert queue.db.get(job_id, using=connection).id == job_id
        with pytest.raises(ConfigurationError, match="using= is a connection to"):
            queue.enqueue("k", using=elsewhere)
        assert not connection.in_transaction
        assert not elsewhere.in_transaction
        queue.enqueue("k", using=connection)
        assert connection.in_transaction
        connection.rollback()


# --- errors --------------------------------------------------------------------------------------------------------------

READ_ONLY = {"sqlite": "PRAGMA query_only = ON", "postgresql": "SET TRANSACTION READ ONLY"}


@on_each_driver
def test_an_error_of_the_driver_is_one_of_the_library(queue: Queue, url: str, kind: str, lender: Lender) -> None:
    with opened(lender, url) as connection:
        run(connection, READ_ONLY.get(kind, "START TRANSACTION READ ONLY"))
        with pytest.raises(StorageError, match=r"(?i)read.?only") as raised:
            queue.enqueue("secret-kind", using=connection)
        assert raised.value.sqlstate is not None
        assert "secret" not in str(raised.value)
        connection.rollback()
        if kind != "sqlite":
            queue.enqueue("k", using=connection)
            connection.commit()
            assert queue.stats().available == 1


@pytest.mark.parametrize("kind", ["postgresql"])
@pytest.mark.parametrize("lender", LENDERS[:2], ids=["psycopg", "psycopg2"])
def test_a_connection_that_breaks_is_left_to_its_application(queue: Queue, url: str, lender: Lender) -> None:
    with opened(lender, url) as connection, opened(lender, url) as other:
        queue.enqueue("k", using=connection)
        ((pid,),) = ask(connection, "SELECT pg_backend_pid()")
        run(other, f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(StorageError) as raised:
            _enqueue_until_it_breaks(queue, connection)
        assert not isinstance(raised.value, PermanentStorageError)
        with pytest.raises(ConfigurationError, match="is closed"):
            queue.enqueue("k", using=connection)
    assert queue.stats().available == 0


def _enqueue_until_it_breaks(queue: Queue, connection: Any) -> None:
    while True:  # the server ends the session a moment later
        queue.enqueue("k", using=connection)


# --- rows that an UPDATE matches -------------------------------------------------------------------------------------------

_COUNTING = [pair for pair in _pairs() if pair.values[1].name in {"pymysql", "mysqlclient"}]


@pytest.mark.parametrize("kind, lender", _COUNTING)  # noqa: PT006
@pytest.mark.parametrize("blind", [False, True], ids=["", "without the message"])
def test_rows_that_keep_their_values_are_counted(
    db: QueueDB, queue: Queue, url: str, lender: Lender, blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a connection has no flag FOUND_ROWS. The control: without the server's message they are not counted."""
    if blind:
        monkeypatch.setattr(borrowed, "_message", lambda _: "")
    queue.enqueue("k")
    with opened(lender, url) as connection:
        found = driver_connections.given(connection, asynchronous=False)
        assert found is not None
        with db.database.lent.connection(found) as lent:
            update = lent.exec_driver_sql("UPDATE jobs SET priority = priority WHERE queue = %s", (queue.name,))
            assert update.rowcount == (0 if blind else 1)
        connection.rollback()


# --- other drivers on the side of the queue --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["postgresql"])
@pytest.mark.parametrize("lender", LENDERS[:2], ids=["psycopg", "psycopg2"])
def test_a_queue_with_psycopg_3_takes_both(url: str, name: str, lender: Lender) -> None:
    with QueueDB(make_url(url).set(drivername="postgresql+psycopg")) as db, opened(lender, url) as connection:
        queue = db.queue(name)
        for end in (connection.rollback, connection.commit):
            queue.enqueue("k", using=connection)
            end()
        (job,) = queue.claim(2)
        assert job.complete(using=connection)
        connection.commit()


@on_each_driver
def test_threads_lend_their_own_connections_at_once(queue: Queue, url: str, lender: Lender, differs: Callable[[str], None]) -> None:
    """The first connection of a driver asks the server what it is: two threads may do so at the same time."""
    differs("one writer")
    meet, failed = threading.Barrier(4), list[BaseException]()

    def enqueue(number: int) -> None:
        try:
            with opened(lender, url) as connection:
                meet.wait(30)
                queue.enqueue("k", number, using=connection)
                connection.commit() if number % 2 else connection.rollback()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert sorted(job.payload for job in queue.peek()) == [1, 3]


# --- Django ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["connection", "proxy"])
def of_django(kind: str, url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    if kind in {"mysql", "mariadb"}:
        from tests.drivers.mysqlclient import module

        module()
    with projects.connected(url, proxy=request.param == "proxy") as connection:
        yield connection


_DJANGO = [
    "sqlite",
    "postgresql",
    *(pytest.param(kind, marks=pytest.mark.rest("mysqlclient is built from source; PostgreSQL")) for kind in ("mysql", "mariadb")),
]
on_each_django = pytest.mark.parametrize("kind", _DJANGO)


@on_each_django
def test_djangos_nested_atomic_loses_only_its_own_jobs(queue: Queue, of_django: Any) -> None:
    atomic = projects.atomic_of(of_django)
    with atomic():
        queue.enqueue("outer", using=of_django)
        with suppress(KeyError), atomic():
            queue.enqueue_many([("inner", number) for number in range(1100)], using=of_django)
            raise KeyError
        queue.enqueue("outer", using=of_django)
    with suppress(KeyError), atomic():
        queue.enqueue("lost", using=of_django)
        raise KeyError
    assert [job.kind for job in queue.peek()] == ["outer", "outer"]
    jobs = queue.claim(2)
    with atomic():
        assert queue.complete_many(jobs, using=of_django) == [Verdict.APPLIED, Verdict.APPLIED]
        with of_django.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM jobs WHERE queue = %s", [queue.name])
            assert cursor.fetchone() == (0,)


@on_each_django
def test_a_connection_of_django_outside_atomic_is_refused(queue: Queue, of_django: Any) -> None:
    atomic: Callable[..., Any] = projects.atomic_of(of_django)
    for _ in range(2):  # first it is not open yet
        with pytest.raises(ConfigurationError, match=r"a Django connection.*with transaction\.atomic\(\)"):
            queue.enqueue("k", using=of_django)
        of_django.ensure_connection()
    with suppress(ConfigurationError, KeyError), atomic():
        with suppress(KeyError), atomic(savepoint=False):
            raise KeyError
        with pytest.raises(ConfigurationError, match="failed transaction"):
            queue.enqueue("k", using=of_django)
        raise KeyError
    assert queue.stats().available == 0
    of_django.set_autocommit(False)  # Django without atomic
    queue.enqueue("k", using=of_django)
    of_django.commit()
    assert queue.stats().available == 1
