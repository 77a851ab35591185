"""PgBouncer in transaction mode: the default URL works, and what a session would be told is told to each transaction."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine, make_url, text

from queue_db import ConfigurationError, LeasedJob, QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.worker import Worker
from tests.servers import provide
from tests.servers.pooler import PgBouncer
from tests.servers.proxy import Proxy

POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")

SETTINGS = {"transaction_isolation": "read committed", "lock_timeout": "10s", "enable_seqscan": "off", "jit": "off"}


@pytest.fixture(params=["as it comes", "that drops options"])
def pooled(request: pytest.FixtureRequest, url: str) -> Iterator[str]:
    settings = "" if request.param == "as it comes" else "ignore_startup_parameters = options"
    with PgBouncer(url, settings=settings) as pooler:
        yield pooler.url(url)


def settings_of(db: QueueDB) -> dict[str, str]:
    with db.database.begin() as connection:
        return {name: connection.execute(text(f"SHOW {name}")).scalar_one() for name in SETTINGS}


@POSTGRESQL
def test_the_default_url_works_and_every_transaction_has_its_settings(pooled: str, name: str) -> None:
    with QueueDB(pooled) as db, QueueDB(pooled) as other:
        queue = db.queue(name)
        # More clients than sessions, so that these change hands.
        for number in range(20):
            (db, other)[number % 2].queue(name).enqueue("k", number)
        assert settings_of(db) == settings_of(other) == SETTINGS
        jobs = [*queue.claim(5), *other.queue(name).claim(5), *queue.pop(5)]
        assert len(jobs) == 15
        assert all(queue.complete_many([job for job in jobs[:5] if isinstance(job, LeasedJob)]))
        assert queue.stats().available == 5
        assert db.database.listen("anything") is None
        assert db.counters.other_errors == 0  # no statement that is prepared is asked of a session that does not know it


@POSTGRESQL
def test_every_transaction_has_the_settings_of_the_url(pooled: str, name: str) -> None:
    given = r"-c search_path=pg_temp,\ public --statement-timeout=61000 -c lock_timeout=7s -c queue_db.note=it's\ 100%\ \\mine"
    with QueueDB(make_url(pooled).update_query_dict({"options": given})) as db, QueueDB(pooled) as other:
        with db.database.begin() as connection:
            names = ("search_path", "statement_timeout", "lock_timeout", "queue_db.note", "enable_seqscan")
            shown = {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names}
        assert shown == {
            "search_path": "pg_temp, public",
            "statement_timeout": "61s",
            "lock_timeout": "7s",
            "queue_db.note": r"it's 100% \mine",
            "enable_seqscan": "off",
        }
        assert settings_of(other) == SETTINGS  # nothing stays with the session
        db.queue(name).enqueue("k")
        assert len(db.queue(name).claim(2)) == 1


@POSTGRESQL
@pytest.mark.parametrize("options", ["-f s", "-c", "-c jit", "-c jit;x=1", "search_path=a"])
def test_options_that_are_no_settings_are_refused_through_the_pooler(pooled: str, options: str) -> None:
    with pytest.raises(ConfigurationError, match="write each as -c name=value"):
        QueueDB(make_url(pooled).update_query_dict({"options": options}))


@POSTGRESQL
def test_asyncpg_is_refused_with_the_fix(url: str) -> None:
    async def opened(address: str) -> None:
        async with AsyncQueueDB(make_url(address).set(drivername="postgresql+asyncpg")):
            pass

    with PgBouncer(url) as pooler, pytest.raises(ConfigurationError, match="a URL that leads to the PostgreSQL server itself"):
        asyncio.run(opened(pooler.url(url)))
    asyncio.run(opened(url))


@POSTGRESQL
def test_a_direct_connection_has_them_for_its_session_also_with_options_in_the_url(url: str) -> None:
    with QueueDB(make_url(url).update_query_dict({"options": "-c statement_timeout=60000 -c jit=on"})) as db:
        with db.database.connections.one() as connection:
            shown = {
                name: connection.exec_driver_sql(f"SHOW {name}").scalar_one()
                for name in ("lock_timeout", "jit", "statement_timeout")
            }
        assert shown == {"lock_timeout": "10s", "jit": "on", "statement_timeout": "1min"}
        assert db.database.listen("anything") is not None


def test_read_committed_whatever_the_servers_default_is(name: str) -> None:
    server = provide("postgresql", options=["-c", "default_transaction_isolation=repeatable read"])
    try:
        url = server.create_database()
        with PgBouncer(url) as pooler, QueueDB(pooler.url(url)) as db, QueueDB(pooler.url(url)) as other:
            db.migrate()
            assert settings_of(db) == SETTINGS
            db.queue(name).enqueue_many([("k", number) for number in range(200)])
            done: Counter[int] = Counter()

            def work(opened: QueueDB) -> None:
                while jobs := opened.queue(name).claim(3):
                    done.update(job.payload for job in jobs if job.complete())

            threads = [threading.Thread(target=work, args=(opened,)) for opened in (db, other) * 2]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert set(done.values()) <= {1}
            assert sum(done.values()) + db.queue(name).stats().available == 200
            assert db.counters.serialization_failures == other.counters.serialization_failures == 0
    finally:
        server.remove()


def kill_sessions(url: str) -> int:
    """End the sessions that the pooler has with the server."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        others = text(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        killed = int(connection.execute(others).scalar_one())
    engine.dispose()
    return killed


@POSTGRESQL
def test_600_jobs_are_all_done_while_connections_are_killed_on_both_sides(kind: str, fresh_url: str, name: str) -> None:
    begun: Counter[int] = Counter()
    lock = threading.Lock()
    breaks: dict[int, Callable[[], int]] = {}
    broken: list[int] = []
    with PgBouncer(fresh_url) as pooler, Proxy.before(pooler.url(fresh_url)) as proxy:
        breaks = {at: (proxy.cut if at % 200 else lambda: kill_sessions(fresh_url)) for at in range(100, 600, 100)}
        with QueueDB(proxy.url(fresh_url)) as db:
            db.migrate()
            queue = db.queue(name)
            queue.enqueue_many([("k", number) for number in range(600)])
            worker = Worker(db, name, concurrency=8, lease=5)

            @worker.handles("k", max_attempts=100)
            def work(job: LeasedJob) -> None:
                with lock:
                    begun[job.payload] += 1
                    act = breaks.pop(sum(begun.values()), None)
                if act is not None:
                    broken.append(act())

            while queue.stats().by_kind:
                worker.run(until_empty=True)
            assert set(begun) == set(range(600))
            assert db.dead.list(name) == []
            assert breaks == {}
            # An error in a handler is one more attempt.
            assert len(broken) == 5
            assert all(broken)
