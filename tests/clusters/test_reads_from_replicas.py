"""Reads from replicas. Those of a PostgreSQL standby are seen apart from the primary's because its replay is paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from queue_db import QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.instrumentation.prometheus import collectors
from tests.aio.loop import for_asyncio, on_the_loop
from tests.patience import wait_for
from tests.servers import Server, over_tls, provide
from tests.servers.cluster import Cluster
from tests.servers.postgresql_ha import PostgreSQLCluster, ask
from tests.servers.server import PrivateServer


@pytest.fixture(scope="module")
def pair() -> Iterator[PostgreSQLCluster]:
    started = PostgreSQLCluster()
    yield started
    started.remove()


@pytest.fixture
def both(pair: PostgreSQLCluster) -> tuple[str, str]:
    """The URLs of a migrated database with one job: on the primary, and on the standby, which has replayed it."""
    found, primary = pair.create_database(), pair.primary
    standby = found[1 - primary]
    with QueueDB(found[primary]) as db:
        db.migrate()
        db.queue("mail").enqueue("welcome", {})
        db.feed("news").publish("said", 1)
        db.feed("news").publish("said", 2)
        db.feed("news").read()  # numbers them
    wal = ask(found[primary], "SELECT pg_current_wal_lsn()")
    wait_for(lambda: ask(standby, f"SELECT pg_last_wal_replay_lsn() >= '{wal}'") == "True")
    return found[primary], standby


@contextmanager
def paused(standby: str) -> Iterator[None]:
    ask(standby, "SELECT pg_wal_replay_pause()")
    wait_for(lambda: ask(standby, "SELECT pg_get_wal_replay_pause_state()") == "paused")
    try:
        yield
    finally:
        ask(standby, "SELECT pg_wal_replay_resume()")


def test_what_is_shown_comes_from_the_standby_and_what_decides_from_the_primary(both: tuple[str, str]) -> None:
    primary, standby = both
    with QueueDB(primary, replicas=standby, max_replica_lag=3600) as db, paused(standby):
        queue = db.queue("mail")
        queue.enqueue("welcome", {})
        assert queue.stats().available == 1
        assert len(queue.jobs("available").jobs) == 1
        assert len(queue.claim(2)) == 2
        assert not queue.pause(wait=0)  # the standby knows of no running job
        assert queue.stats().running == 0


def test_a_feed_is_read_on_the_standby_where_the_primary_has_the_same(both: tuple[str, str]) -> None:
    primary, standby = both
    with QueueDB(primary, replicas=standby, max_replica_lag=3600) as db, paused(standby):
        feed = db.feed("news")
        feed.publish("said", 3)
        cursor = feed.cursor("mine")
        assert [one.payload for one in cursor.read(1)] == [1]
        assert db.core.replicas is not None
        assert db.core.replicas.words == "not read yet"  # a cursor is moved by what it has read
        page = feed.read(limit=1)
        assert (page.messages[0].payload, page.behind) == (1, 1)
        page = feed.read(page.position, limit=1)
        assert (page.messages[0].payload, page.behind) == (2, 1)  # the last one of the standby
        assert len(feed.read(limit=10).messages) == 3
        old = feed.start()
        db.feeds.purge("news")
        feed.publish("said", 4)
        assert feed.start() != old
        assert [one.payload for one in feed.read(feed.start(), limit=1).messages] == [4]


def test_one_is_read_on_an_event_loop(both: tuple[str, str]) -> None:
    primary, standby = map(for_asyncio, both)

    async def words() -> str:
        async with AsyncQueueDB(primary, replicas=standby) as db:
            assert (await db.queue("mail").stats()).available == 1
            assert db._db.core.replicas is not None
            return db._db.core.replicas.words

    assert on_the_loop(words()) == "0.0 s behind"


def test_one_that_is_too_far_behind_is_not_read(both: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "queue_db.database")
    primary, standby = both
    with QueueDB(primary, replicas=standby, max_replica_lag=0) as db:
        assert db.queue("mail").stats().available == 1
        assert _lag(db) == 0
        with paused(standby):
            db.queue("mail").enqueue("welcome", {})
            wait_for(lambda: ask(standby, "SELECT pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn()") == "True")
            assert [db.queue("mail").stats().available for _ in range(2)] == [2, 2]
            assert _lag(db) > 0
            assert db.counters.replica_fallbacks == _told(caplog) == 1
        wait_for(lambda: db.queue("mail").stats().available == 2 and _lag(db) == 0)
        assert "is read again" in caplog.text


def test_one_that_is_away_is_not_read(pair: PostgreSQLCluster, both: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    primary, standby = both
    number = 1 - pair.primary
    with QueueDB(primary, replicas=standby) as db:
        assert db.queue("mail").stats().available == 1
        pair.kill(number)
        try:
            assert [db.queue("mail").stats().available for _ in range(2)] == [1, 1]
            assert _lag(db) == float("inf")
            assert db.counters.replica_fallbacks == _told(caplog) == 1
            assert str(make_url(standby).password) not in caplog.text
        finally:
            pair.start(number)
            pair.wait()


def test_a_standby_is_left_when_it_is_promoted(
    pair: PostgreSQLCluster, both: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    there, old = ",".join(f"127.0.0.1:{make_url(url).port}" for url in both), pair.primary
    url = both[0].replace(f"127.0.0.1:{make_url(both[0]).port}", there)
    with QueueDB(url, replicas=url) as db:
        assert db.core.replicas is not None
        assert db.queue("mail").stats().available == 1
        assert db.core.replicas.words == "0.0 s behind"
        pair.kill(old)
        try:
            wait_for(lambda: pair.primary != old)
            assert db.queue("mail").stats().available == 1
            assert db.core.replicas.words == "not read: it does not replicate"
            assert db.counters.replica_fallbacks == _told(caplog) == 1
        finally:
            pair.start(old)
            pair.wait()
        wait_for(lambda: db.queue("mail").stats().available == 1 and db.core.replicas and db.core.replicas.words == "0.0 s behind")


@pytest.mark.parametrize("cluster", ["galera", "group-replication-single"], indirect=True)
def test_a_node_is_read_until_it_is_away(cluster: Cluster, urls: list[str], caplog: pytest.LogCaptureFixture) -> None:
    here = cluster.writers()[0]
    there = (here + 1) % len(urls)
    with QueueDB(urls[here], replicas=urls[there]) as db:
        job_id = db.queue("shown").enqueue("welcome", {})
        wait_for(lambda: db.queue("shown").stats().available == 1)
        assert _lag(db) == 0
        cluster.kill(there)
        try:
            assert db.queue("shown").stats().available == 1
            assert _lag(db) == float("inf")
            assert db.counters.replica_fallbacks == _told(caplog) == 1
        finally:
            cluster.start(there)
            cluster.wait()
        db.cancel(job_id)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_replica_of_one_source(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with _replicating(kind) as (url, replica, say):
        with QueueDB(url) as db:
            db.migrate()
            db.queue("mail").enqueue("welcome", {})
        wait_for(lambda: _jobs(replica) == 1)
        with QueueDB(url, replicas=replica, max_replica_lag=3600) as db:
            assert db.queue("mail").stats().available == 1
            assert _lag(db) == 0
            say("STOP REPLICA", "CHANGE {} TO {}_DELAY = 1000", "START REPLICA")
            wait_for(lambda: next(yes for name, yes in say("SHOW REPLICA STATUS").items() if name.endswith("_IO_Running")) == "Yes")
            db.queue("mail").enqueue("welcome", {})
            assert db.queue("mail").stats().available == 1
            say("STOP REPLICA")
            assert db.queue("mail").stats().available == 2
            assert _lag(db) == float("inf")
            assert db.counters.replica_fallbacks == _told(caplog) == 1


@contextmanager
def _replicating(kind: str) -> Iterator[tuple[str, str, Callable[..., None]]]:
    """The URLs of a database on a server and on its replica, and what runs statements on the replica."""
    source = provide(kind, ["--server-id=1", "--log-bin=changes"])
    target = provide(kind, ["--server-id=2"])
    of, role, own = make_url(source.url()), "REPLICATION SOURCE", "SOURCE"
    options = {"GET_SOURCE_PUBLIC_KEY": "1"}
    if kind == "mariadb":
        role, own, options = "MASTER", "MASTER", {"MASTER_SSL_VERIFY_SERVER_CERT": "0"}

    def run(server: Server, *statements: str) -> Mapping[str, Any]:
        engine = create_engine(over_tls(server.url()), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            if kind == "mariadb":
                connection.exec_driver_sql("SET default_master_connection = 'shop'")
            results = [connection.exec_driver_sql(one.format(role, own)) for one in statements]
            found = results[-1].mappings().one() if results[-1].returns_rows else {}
        engine.dispose()
        return found

    try:
        if kind == "mysql" and isinstance(
            target, PrivateServer
        ):  # the identity of the data that all servers of the tests begin with
            target.stop()
            (target._folder / "data/auto.cnf").unlink()
            target.start()
        status = "BINLOG STATUS" if kind == "mariadb" else "BINARY LOG STATUS"
        file, position, *_ = run(source, f"SHOW {status}").values()
        options |= {f"{own}_HOST": "'127.0.0.1'", f"{own}_PORT": str(of.port), f"{own}_USER": f"'{of.username}'"}
        options |= {f"{own}_PASSWORD": f"'{of.password}'", f"{own}_LOG_FILE": f"'{file}'", f"{own}_LOG_POS": str(position)}
        run(target, "CHANGE {} TO " + ", ".join(map(" = ".join, options.items())), "START REPLICA")
        url = source.create_database()
        yield url, target.url(make_url(url).database), partial(run, target)
    finally:
        source.remove()
        target.remove()


def _jobs(url: str) -> int:
    """How many jobs there are; 0: the database or the table is not there yet."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM jobs").scalar_one())
    except SQLAlchemyError:
        return 0
    finally:
        engine.dispose()


def _told(caplog: pytest.LogCaptureFixture) -> int:
    return [getattr(one, "outcome", None) for one in caplog.records].count("replica")


def _lag(db: QueueDB) -> float:
    registry = CollectorRegistry()
    for one in collectors(db, [], lambda _: True):
        registry.register(one)
    (line,) = [one for one in generate_latest(registry).decode().splitlines() if one.startswith("queue_db_replica_lag_seconds ")]
    return float(line.split()[1])
