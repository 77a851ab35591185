"""A URL with several addresses: a connection goes to the first server that works, and to another one when that fails."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner

from queue_db import PermanentStorageError, QueueDB, TransientStorageError
from queue_db.aio import AsyncQueueDB
from queue_db.cli.app import app
from queue_db.compare.engines import autocommitting
from queue_db.database.addresses import Address, follow, parsed, placed
from queue_db.database.database import Database
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_of
from queue_db.spark.target import target_of
from tests.aio.loop import for_asyncio, on_the_loop
from tests.faults.pair import DEMOTE, PROMOTE, Pair, paired
from tests.patience import PATIENCE
from tests.servers import Server, over_tls
from tests.servers.proxy import Proxy
from tests.surviving_worker import works_before_and_after

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="module")

#: Nobody listens here.
NOWHERE = Address("127.0.0.1", "1")


@pytest.fixture(scope="module")
def started(kind: str) -> Iterator[Pair]:
    with paired(kind) as pair:
        yield pair


@pytest.fixture
def pair(started: Pair) -> Pair:
    started.set_first(PROMOTE, read_only=False)
    return started


@pytest.fixture
def both(pair: Pair) -> str:
    """The URL with both servers, the first one first."""
    return at(pair, pair.first, pair.second)


def at(pair: Pair, *places: Server | Address, **options: str) -> str:
    """The URL with these addresses, as people write it."""
    url = make_url(pair.url(pair.first)).update_query_dict(options)
    hosts = ",".join(str(one if isinstance(one, Address) else address_of(one)) for one in places)
    return url.render_as_string(hide_password=False).replace(str(address_of(pair.first)), hosts)


def address_of(server: Server) -> Address:
    url = make_url(server.url())
    return Address(str(url.host), str(url.port))


def found_at(pair: Pair, server: Server, name: str) -> list[object]:
    """The payloads of the jobs on this server."""
    with QueueDB(pair.url(server)) as db:
        return [job.payload for job in db.queue(name).claim(100)]


def ports_of(pair: Pair, db: QueueDB, number: int) -> list[str]:
    """The ports of the servers to which so many connections go."""
    held = [db.database.connections.take() for _ in range(number)]
    asks = "SELECT inet_server_port()" if pair.kind == "postgresql" else "SELECT @@port"
    ports = [str(one.connection.exec_driver_sql(asks).scalar()) for one in held]
    for connection in held:
        db.database.connections.put_back(connection)
    return ports


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """The server accepts connections and says nothing (SIGSTOP of all its processes)."""
    os.killpg(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(server.pid, signal.SIGCONT)


def enqueued(url: str, name: str) -> int:
    """Enqueue with a new object; return its failovers."""
    with QueueDB(url) as db:
        db.queue(name).enqueue("job", 1)
        return db.counters.failovers


def enqueued_on_a_loop(url: str, name: str) -> int:
    async def enqueue() -> int:
        async with AsyncQueueDB(for_asyncio(str(parsed(url).render_as_string(hide_password=False)))) as db:
            await db.queue(name).enqueue("job", 1)
            return db.counters.failovers

    return on_the_loop(enqueue())


WAYS = pytest.mark.parametrize("way", [enqueued, enqueued_on_a_loop])


@WAYS
def test_an_address_that_is_dead_at_the_start_is_left_out_and_counted(
    pair: Pair, name: str, way: Callable[[str, str], int], caplog: pytest.LogCaptureFixture
) -> None:
    assert way(at(pair, NOWHERE, pair.first), name) == 1
    assert found_at(pair, pair.first, name) == [1]
    (line,) = [record.message for record in caplog.records if record.name == "queue_db.database"]
    assert line.startswith(f"new connections go to {address_of(pair.first)}, no longer to {NOWHERE}: ")


@WAYS
def test_a_read_only_server_is_left_out(pair: Pair, both: str, name: str, way: Callable[[str, str], int]) -> None:
    pair.set_first(DEMOTE, read_only=True)
    assert way(both, name) == 0
    assert found_at(pair, pair.second, name) == [1]


@WAYS
def test_a_silent_server_is_left_out_within_the_timeout_of_a_connection(
    pair: Pair, name: str, way: Callable[[str, str], int]
) -> None:
    # Without a limit on the server's first message, PyMySQL would wait for it as long as for a statement: an hour.
    waits = {"read_timeout": "3600"} if pair.kind != "postgresql" and way is enqueued else {}
    with stopped(pair.first):
        assert way(at(pair, pair.first, pair.second, **waits), name) == 1
    assert found_at(pair, pair.second, name) == [1]


def test_statements_wait_as_long_as_on_one_address(pair: Pair, both: str) -> None:
    with QueueDB(pair.url(pair.first)) as one, QueueDB(both) as db:
        limits = set()
        for database in (one.database, db.database):
            with database.connections.one() as connection:
                limits.add(getattr(connection.connection.driver_connection, "_read_timeout", None))
    assert len(limits) == 1


def test_a_read_only_server_is_left_for_the_next_and_counted_once(
    pair: Pair, both: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with QueueDB(both) as db:
        queue = db.queue(name)
        held = [db.database.connections.take() for _ in range(4)]
        for connection in held:
            db.database.connections.put_back(connection)
        queue.enqueue("job", "before")
        pair.set_first(DEMOTE, read_only=True)
        with caplog.at_level(logging.WARNING, "queue_db.database"):
            for number in range(4):
                queue.enqueue("job", number)
        assert db.counters.failovers == 1
        # It stays there when the first one takes changes again.
        pair.set_first(PROMOTE, read_only=False)
        db.database.engine.dispose()
        queue.enqueue("job", 4)
    (line,) = [record.message for record in caplog.records if "no longer" in record.message]
    assert str(address_of(pair.first)) in line
    assert str(address_of(pair.second)) in line
    assert "app-Pw1" not in caplog.text
    assert sorted(map(str, found_at(pair, pair.second, name))) == ["0", "1", "2", "3", "4"]


def test_threads_that_lose_their_server_at_once_count_one_failover(pair: Pair, name: str) -> None:
    with Proxy.before(pair.first.url()) as proxy, QueueDB(at(pair, Address("127.0.0.1", str(proxy.port)), pair.second)) as db:
        queue = db.queue(name)
        ready = threading.Barrier(6)

        def work() -> None:
            queue.stats()
            ready.wait(PATIENCE)
            ready.wait(PATIENCE)
            queue.enqueue("job", 1, unique_key=f"{threading.get_ident()}", on_duplicate="skip")

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        ready.wait(PATIENCE)
        proxy.refuse()
        proxy.cut()
        ready.wait(PATIENCE)
        for thread in threads:
            thread.join(PATIENCE)
        assert db.counters.failovers == 1
    assert found_at(pair, pair.second, name) == [1] * 5


def test_a_worker_goes_on_with_the_next_server_when_its_own_is_killed(pair: Pair, name: str) -> None:
    try:
        with QueueDB(at(pair, pair.second, pair.first)) as db, QueueDB(pair.url(pair.first)) as other:
            works_before_and_after(db, name, pair.second.kill, other)
            assert db.counters.failovers == 1
    finally:
        pair.second.start()
        QueueDB(over_tls(pair.url(pair.second))).close()  # as after its first start


def test_all_nodes_in_turn_and_twice_the_one_that_is_named_twice(pair: Pair, name: str) -> None:
    with QueueDB(at(pair, pair.first, pair.second, pair.second, nodes="all")) as db:
        ports = ports_of(pair, db, 6)
    assert [ports.count(address_of(server).port) for server in (pair.first, pair.second)] == [2, 4]


def test_an_observer_asks_for_a_server_that_is_read_only(pair: Pair, both: str, name: str) -> None:
    pair.set_first(DEMOTE, read_only=True)
    url = at(pair, pair.second, pair.first, target_session_attrs="read-only")
    with QueueDB(url) as db, pytest.raises(TransientStorageError, match=r"read.only"):
        db.queue(name).enqueue("job")
    pair.set_first(PROMOTE, read_only=False)
    with pytest.raises(TransientStorageError, match="it is not read-only; .*it is not read-only"):
        QueueDB(at(pair, pair.second, pair.first, target_session_attrs="read-only"))
    assert enqueued(at(pair, pair.second, pair.first, target_session_attrs="prefer-standby"), name) == 0


def test_where_no_standby_is_all_nodes_are_used_in_turn_without_a_pause(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(Database, "pause", lambda self, seconds: pauses.append(seconds))
    with QueueDB(at(pair, pair.first, pair.second, nodes="all", target_session_attrs="prefer-standby")) as db:
        assert sorted(ports_of(pair, db, 4)) == sorted([address_of(one).port for one in (pair.first, pair.second)] * 2)
        assert db.counters.failovers == 0
    assert not pauses


def test_one_address_must_fit_too(pair: Pair, name: str) -> None:
    assert enqueued(at(pair, pair.first, target_session_attrs="read-write"), name) == 0
    with pytest.raises(TransientStorageError, match=f"{address_of(pair.first)}: it is no standby"):
        QueueDB(at(pair, pair.first, target_session_attrs="standby"))


@WAYS
def test_the_error_names_each_address_and_its_reason(pair: Pair, name: str, way: Callable[[str, str], int]) -> None:
    pair.set_first(DEMOTE, read_only=True)
    with pytest.raises(TransientStorageError) as refused:
        way(at(pair, NOWHERE, pair.first), name)
    text = str(refused.value)
    assert f"{address_of(pair.first)}: it is read-only" in text
    assert "127.0.0.1:1: " in text
    assert "onnect" in text
    assert "app-Pw1" not in text
    assert "\n" not in text
    assert refused.value.server_away


@WAYS
def test_a_wrong_password_is_no_outage(pair: Pair, name: str, way: Callable[[str, str], int]) -> None:
    wrong = parsed(over_tls(at(pair, pair.first))).set(password="wrong-Pw2")
    with pytest.raises(PermanentStorageError) as refused:
        way(placed(wrong, [address_of(pair.first), NOWHERE]).render_as_string(hide_password=False), name)
    assert "wrong-Pw2" not in str(refused.value)


def test_a_command_takes_the_addresses(pair: Pair, name: str) -> None:
    url = at(pair, NOWHERE, pair.first)
    assert CliRunner().invoke(app, ["enqueue", name, "job", "1", "--url", url]).exit_code == 0
    report = CliRunner().invoke(app, ["doctor", "--url", url])
    assert f"127.0.0.1:1,{address_of(pair.first)}" in report.output
    assert re.search(rf"address {address_of(pair.first)} +answers", report.output)
    assert re.search(r"warning: one of the addresses does not work, .*127\.0\.0\.1:1/", report.output)
    assert "app-Pw1" not in report.output
    assert found_at(pair, pair.first, name) == [1]


def test_a_wait_for_a_failover_is_one_for_restarts_too_but_not_for_another_password(pair: Pair) -> None:
    with Proxy.before(pair.url(pair.first)) as proxy:
        url = placed(parse_url(over_tls(at(pair, pair.first))), [Address("127.0.0.1", str(proxy.port)), NOWHERE])
        engine, wrong = create_engine(url), create_engine(url.set(password="wrong-Pw2"))
        pauses: list[float] = []
        follow(wrong, dialect_of(wrong), pauses.append, failover=PATIENCE)
        with pytest.raises((TransientStorageError, DBAPIError)):
            wrong.connect()
        assert not pauses
        proxy.refuse()
        follow(engine, dialect_of(engine), lambda _: proxy.forward(), failover=PATIENCE)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        engine.dispose()


def test_spark_and_the_comparison_follow_too(pair: Pair, name: str) -> None:
    url = at(pair, NOWHERE, pair.first)
    with target_of(url).open() as db:
        db.queue(name).enqueue("job", 1)
    with autocommitting(url) as engine, engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    assert found_at(pair, pair.first, name) == [1]
