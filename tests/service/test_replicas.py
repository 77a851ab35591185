"""Replicas by URL, with a server that is its own: what is accepted, what is shown. For standbys see tests/clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from sqlalchemy import create_engine, make_url, text

from queue_db import ConfigurationError, QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.service import Settings
from tests.aio.loop import for_asyncio, on_the_loop
from tests.patience import PATIENCE
from tests.servers import over_tls
from tests.service.conftest import serving

Open = Callable[..., QueueDB]


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_a_server_that_is_no_replica_is_not_behind(open_db: Open, url: str, name: str) -> None:
    db = open_db(replicas=url)
    db.queue(name).enqueue("welcome")
    assert db.queue(name).stats().available == 1
    assert db.core.replicas is not None
    assert db.core.replicas.words == "0.0 s behind"


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_one_is_read_on_an_event_loop(open_db: Open, url: str, name: str) -> None:
    open_db().queue(name).enqueue("welcome")
    asynchronous = for_asyncio(url)

    async def lag() -> float:
        async with AsyncQueueDB(asynchronous, replicas=asynchronous) as db:
            assert (await db.queue(name).stats()).available == 1
            assert db._db.core.replicas is not None
            return db._db.core.replicas.lag

    assert on_the_loop(lag()) == 0


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
def test_the_dashboard_shows_the_lag(open_db: Open, url: str, name: str) -> None:
    db = open_db(replicas=url)
    db.queue(name).stats()
    with serving(db, Settings(closed=False)) as base, httpx2.Client(base_url=base, timeout=PATIENCE, verify=False) as client:
        assert "replica: 0.0 s behind" in client.get("/", follow_redirects=True).text
        assert "\nqueue_db_replica_lag_seconds 0.0\n" in client.get("/metrics").text


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_command_line_takes_them(ask_at: Callable[..., Any], fresh_url: str) -> None:
    ask_at(fresh_url, "migrate")
    report = ask_at(fresh_url, "doctor", "--replicas", fresh_url, "--json").record
    assert report["facts"]["replica"].endswith(", 0.0 s behind")
    assert ask_at(fresh_url, "top", "--once", "--replicas", fresh_url, "--json").record
