"""Reads from a standby, seen apart from the primary because its replay is paused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from queue_db import QueueDB
from queue_db.instrumentation.prometheus import collectors
from tests.patience import wait_for
from tests.servers.postgresql_ha import PostgreSQLCluster, ask


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgreSQLCluster]:
    started = PostgreSQLCluster()
    yield started
    started.remove()


@pytest.fixture
def urls(cluster: PostgreSQLCluster) -> tuple[str, str]:
    """The URLs of a migrated database with one job: on the primary, and on the standby, which has replayed it."""
    found, primary = cluster.create_database(), cluster.primary
    standby = found[1 - primary]
    with QueueDB(found[primary]) as db:
        db.migrate()
        db.queue("mail").enqueue("welcome", {})
        db.feed("news").publish("said", {})
        db.feed("news").read()  # numbers it
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


def test_what_is_shown_comes_from_the_standby_and_what_decides_from_the_primary(urls: tuple[str, str]) -> None:
    primary, standby = urls
    with QueueDB(primary, replicas=standby, max_replica_lag=3600) as db, paused(standby):
        queue, feed = db.queue("mail"), db.feed("news")
        queue.enqueue("welcome", {})
        feed.publish("said", {})
        assert queue.stats().available == 1
        assert len(queue.jobs("available").jobs) == 1
        assert len(feed.read(limit=10).messages) == 2
        assert len(queue.claim(2)) == 2
        assert not queue.pause(wait=0)  # the standby knows of no running job
        assert queue.stats().running == 0


def test_one_that_is_too_far_behind_is_not_read(urls: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    primary, standby = urls
    with QueueDB(primary, replicas=standby, max_replica_lag=0) as db:
        assert db.queue("mail").stats().available == 1
        assert _lag(db) == 0
        with paused(standby):
            db.queue("mail").enqueue("welcome", {})
            wait_for(lambda: ask(standby, "SELECT pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn()") == "True")
            assert [db.queue("mail").stats().available for _ in range(2)] == [2, 2]
            assert _lag(db) > 0
            assert caplog.text.count("the primary is read in place of the replica") == 1
        wait_for(lambda: db.queue("mail").stats().available == 2 and _lag(db) == 0)


def test_one_that_is_away_is_not_read(cluster: PostgreSQLCluster, urls: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    primary, standby = urls
    number = 1 - cluster.primary
    with QueueDB(primary, replicas=standby) as db:
        assert db.queue("mail").stats().available == 1
        cluster.kill(number)
        try:
            assert [db.queue("mail").stats().available for _ in range(2)] == [1, 1]
            assert _lag(db) == float("inf")
            assert caplog.text.count("the primary is read in place of the replica") == 1
        finally:
            cluster.start(number)
            cluster.wait()


def _lag(db: QueueDB) -> float:
    registry = CollectorRegistry()
    for one in collectors(db, [], lambda _: True):
        registry.register(one)
    (line,) = [one for one in generate_latest(registry).decode().splitlines() if one.startswith("queue_db_replica_lag_seconds ")]
    return float(line.split()[1])
