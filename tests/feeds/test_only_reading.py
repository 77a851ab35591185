"""Readers that the database lets only read: they get what has a number, and what others number later."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import make_url

from queue_db import PermanentStorageError, QueueDB
from queue_db.feeds import Feed
from tests.servers import over_tls

servers = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")


@pytest.fixture
def feed(fresh_url: str) -> Iterator[Feed]:
    """Of a process that may do everything. One message has a number and one has none."""
    with QueueDB(fresh_url) as db:
        db.migrate()
        db.feeds.set("orders", ordering="ranked")
        feed = db.feed("orders")
        feed.publish("n", "numbered")
        feed.rank()
        _waits(feed, "waits")
        yield feed


def _waits(feed: Feed, text: str) -> None:
    with feed.core.database.begin() as connection:
        feed.publish("n", text, using=connection)


@pytest.fixture
def reader(feed: Feed, fresh_url: str, kind: str) -> Iterator[QueueDB]:
    """A process whose role may only read."""
    name, url = f"reader_{uuid.uuid4().hex[:8]}", make_url(over_tls(fresh_url))
    if kind == "postgresql":
        begin = [f"CREATE ROLE {name} LOGIN PASSWORD 'Reader-7x'", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"]
        end = [f"DROP OWNED BY {name}", f"DROP ROLE {name}"]
    else:
        user = f"{name}@'%%'"
        begin = [f"CREATE USER {user} IDENTIFIED BY 'Reader-7x'", f"GRANT SELECT ON {url.database}.* TO {user}"]
        end = [f"DROP USER {user}"]
    _execute(feed, begin)
    with QueueDB(url.set(username=name, password="Reader-7x").render_as_string(hide_password=False)) as db:
        yield db
    _execute(feed, end)


def _execute(feed: Feed, commands: list[str]) -> None:
    with feed.core.database.engine.begin() as connection:
        for command in commands:
            connection.exec_driver_sql(command)


def texts(feed: Feed, *after: str) -> list[Any]:
    return [message.payload for message in feed.read(*after).messages]


@servers
def test_a_role_that_may_only_read(feed: Feed, reader: QueueDB, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "queue_db.feeds")
    seen = reader.feed("orders")
    assert texts(seen) == ["numbered"]
    end = seen.end()
    assert texts(seen) == ["numbered"]
    assert len([one for one in caplog.records if "are not numbered here" in one.getMessage()]) == 1
    with pytest.raises(PermanentStorageError):
        seen.rank()
    assert feed.rank() == 1
    assert texts(seen) == ["numbered", "waits"]
    assert texts(seen, end) == ["waits"]


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_transactions_that_only_read(feed: Feed, fresh_url: str) -> None:
    """As on a standby."""
    url = make_url(fresh_url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    with QueueDB(url.render_as_string(hide_password=False)) as db:
        seen = db.feed("orders")
        assert texts(seen) == ["numbered"]
        end = seen.end()
        assert feed.rank() == 1
        assert texts(seen, end) == ["waits"]
