"""Replicas by URL, with servers that are none: what is refused, counted and shown. For real ones see tests/clusters."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from sqlalchemy import URL, create_engine, make_url, text

from queue_db import ConfigurationError, QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.service import Settings
from tests.aio.loop import for_asyncio, on_the_loop
from tests.patience import PATIENCE
from tests.servers import over_tls
from tests.service.conftest import serving

Open = Callable[..., QueueDB]


def fallbacks(caplog: pytest.LogCaptureFixture) -> int:
    """Log lines of reads that went back to the primary."""
    return [getattr(one, "outcome", None) for one in caplog.records].count("replica")


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_a_server_that_is_no_replica_is_not_read(open_db: Open, url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    db = open_db(replicas=url)
    db.queue(name).enqueue("welcome")
    assert [db.queue(name).stats().available for _ in range(2)] == [1, 1]
    assert db.core.replicas is not None
    assert db.core.replicas.words == "not read: it does not replicate"
    assert db.counters.replica_fallbacks == fallbacks(caplog) == 1


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_while_one_caller_tries_to_connect_the_others_read_the_primary(
    open_db: Open, url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor() as threads, socket.create_server(("127.0.0.1", 0)) as silent:
        nowhere = make_url(url).set(host="127.0.0.1", port=silent.getsockname()[1], query={"connect_timeout": "100"})
        queue = (db := open_db(replicas=nowhere)).queue(name)
        trying = threads.submit(queue.stats)
        reached, _ = silent.accept()
        assert queue.stats().available == 0
        assert not trying.done()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
        silent.close()
        reached.close()
        assert trying.result(PATIENCE).available == 0
        assert queue.stats().available == 0
    assert db.counters.replica_fallbacks == fallbacks(caplog) == 1
    assert str(make_url(url).password) not in caplog.text


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_one_is_read_on_an_event_loop(open_db: Open, url: str, name: str) -> None:
    open_db().queue(name).enqueue("welcome")
    asynchronous = for_asyncio(url)

    async def words() -> str:
        async with AsyncQueueDB(asynchronous, replicas=asynchronous) as db:
            assert (await db.queue(name).stats()).available == 1
            assert db._db.core.replicas is not None
            return db._db.core.replicas.words

    assert on_the_loop(words()) == "not read: it does not replicate"


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_one_that_is_silent_is_left_on_an_event_loop(open_db: Open, url: str, name: str) -> None:
    open_db().queue(name).enqueue("welcome")
    asynchronous = make_url(for_asyncio(url))
    limit = {"timeout" if asynchronous.get_backend_name() == "postgresql" else "connect_timeout": "1"}

    async def available(replica: URL) -> int:
        async with AsyncQueueDB(asynchronous, replicas=replica) as db:
            return (await asyncio.wait_for(db.queue(name).stats(), PATIENCE)).available

    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert on_the_loop(available(asynchronous.set(host="127.0.0.1", port=silent.getsockname()[1], query=limit))) == 1


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")
def test_one_whose_lag_may_not_be_read_is_not_read(open_db: Open, url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    parsed, user = make_url(over_tls(url)), f"reader_{name[-8:]}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE USER {user} IDENTIFIED BY 'Reader-7x'"))
        connection.execute(text(f"GRANT SELECT ON {parsed.database}.* TO {user}"))
    engine.dispose()
    db = open_db(replicas=parsed.set(username=user, password="Reader-7x"))
    db.queue(name).enqueue("welcome")
    assert db.queue(name).stats().available == 1
    assert "its lag is unknown: its user needs the right REPLICATION CLIENT" in caplog.text


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
def test_another_kind_of_database_is_refused(open_db: Open) -> None:
    with pytest.raises(ConfigurationError, match=r"^sqlite:///other\.db cannot be a replica of "):
        open_db(replicas="sqlite:///other.db")


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_dashboard_and_the_metrics_show_it(open_db: Open, url: str, name: str) -> None:
    db = open_db(replicas=url)
    db.queue(name).stats()
    with serving(db, Settings(closed=False)) as base, httpx2.Client(base_url=base, timeout=PATIENCE, verify=False) as client:
        assert "replica: not read: it does not replicate" in client.get("/", follow_redirects=True).text
        shown = client.get("/metrics").text
    assert "\nqueue_db_replica_lag_seconds +Inf\n" in shown
    assert "\nqueue_db_replica_fallbacks_total 1.0\n" in shown


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_command_line_takes_them(ask_at: Callable[..., Any], fresh_url: str) -> None:
    ask_at(fresh_url, "migrate")
    report = ask_at(fresh_url, "doctor", "--replicas", fresh_url, "--json").record
    assert report["facts"]["replica"].endswith(", not read: it does not replicate")
    assert [one for one in report["warnings"] if one.startswith("the replica ")]
    assert ask_at(fresh_url, "top", "--once", "--replicas", fresh_url, "--json").record
