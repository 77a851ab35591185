"""What is wrong before the first job, and what is set on each connection."""

from __future__ import annotations

import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from queue_db import ConfigurationError, PermanentStorageError, QueueDB, QueueDBError, SchemaOutOfDateError, TransientStorageError
from queue_db.aio import AsyncQueueDB
from queue_db.aio.opening import InGreenlets
from queue_db.dialects.server import limit_waits
from tests.aio.loop import for_asyncio

SECRET = "hunter2-Zq"

FAMILIES = {
    "postgresql": ("psycopg2", "asyncpg", "async-postgresql"),
    "mysql": ("pymysql", "aiomysql", "async-mysql"),
    "mariadb": ("pymysql", "aiomysql", "async-mysql"),
    "sqlite": ("pysqlite", "aiosqlite", "async-sqlite"),
}


def full_text(error: BaseException) -> str:
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_driver_that_is_not_installed_is_named_with_its_extra(family: str) -> None:
    _, module, extra = FAMILIES[family]
    program = (
        f"import asyncio, sys; sys.modules[{module!r}] = None\n"
        "from queue_db import ConfigurationError\n"
        "from queue_db.aio import AsyncQueueDB\n"
        f"try: asyncio.run(AsyncQueueDB('{family}://u:{SECRET}@127.0.0.1/d').open())\n"
        "except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f'pip install "queue-db[{extra}]"' in done.stdout
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_driver_of_the_other_sort_is_named_with_what_to_use(family: str) -> None:
    waits, awaits, _ = FAMILIES[family]
    with pytest.raises(ConfigurationError, match=rf"{family}\+{waits} is not for asyncio: use {family}\+{awaits}://"):
        await AsyncQueueDB(f"{family}+{waits}://u:{SECRET}@host/d").open()
    instead = "sqlite" if family == "sqlite" else rf"{family}\+{waits}"
    with pytest.raises(ConfigurationError, match=rf"{family}\+{awaits} is for asyncio: use {instead}://.*AsyncQueueDB"):
        QueueDB(f"{family}+{awaits}://u:{SECRET}@host/d")


async def test_an_engine_of_the_other_sort() -> None:
    engine, async_engine = create_engine("sqlite://"), create_async_engine("sqlite+aiosqlite://")
    with pytest.raises(ConfigurationError, match="an Engine is not for asyncio: use an AsyncEngine here, or queue_db.QueueDB"):
        AsyncQueueDB(engine)  # type: ignore[arg-type]
    for wrong in (async_engine, async_engine.sync_engine):
        with pytest.raises(ConfigurationError, match="is for asyncio: .* or queue_db.aio.AsyncQueueDB"):
            QueueDB(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="this engine is not for asyncio"):
        InGreenlets(engine)
    with pytest.raises(ConfigurationError, match="one connection for all tasks at once"):
        AsyncQueueDB(async_engine)
    await async_engine.dispose()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nosuch://host/database", r"unknown database scheme 'nosuch'; use one of: .*postgresql\+asyncpg, sqlite\+aiosqlite"),
        ("postgresql+nosuch://host/database", r"unknown driver in 'postgresql\+nosuch'; use postgresql\+asyncpg"),
        ("queue.db", "not a database URL"),
    ],
)
async def test_a_url_that_nobody_serves(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await AsyncQueueDB(url).open()


async def test_a_server_that_is_down(kind: str, async_url: str, differs: Any) -> None:
    differs("no server")
    with pytest.raises(TransientStorageError, match=r"cannot open .*:\*\*\*@127\.0\.0\.1:1/") as refused:
        await AsyncQueueDB(make_url(async_url).set(port=1, password=SECRET)).open()
    assert SECRET not in full_text(refused.value)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], scope="session")
async def test_a_wrong_password(async_url: str) -> None:
    with pytest.raises(PermanentStorageError, match=r"(?i)password|denied") as refused:
        await AsyncQueueDB(make_url(async_url).set(password=SECRET)).open()
    assert SECRET not in full_text(refused.value)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
async def test_a_parameter_that_the_driver_does_not_know(async_url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot open .*nosuch"):
        await AsyncQueueDB(make_url(async_url).update_query_dict({"nosuch": "1"})).open()


async def test_a_database_that_is_not_there(kind: str, async_url: str, tmp_path: Path) -> None:
    missing = make_url(async_url).set(database=f"{tmp_path}/nowhere/queue.db" if kind == "sqlite" else "nowhere")
    with pytest.raises(PermanentStorageError, match="nowhere"):
        await AsyncQueueDB(missing).open()


async def test_tables_that_are_not_there(fresh_url: str) -> None:
    with QueueDB(fresh_url):
        pass  # MySQL lets a password in without TLS only once it has seen it with TLS
    async with AsyncQueueDB(for_asyncio(fresh_url)) as db:
        with pytest.raises(SchemaOutOfDateError, match="queue-db migrate --url"):
            await db.queue("q").enqueue("k")
    with pytest.raises(ConfigurationError, match="unknown strategy 'fast'"):
        await AsyncQueueDB(for_asyncio(fresh_url), strategy="fast").open()


async def test_the_password_is_shown_nowhere(async_url: str, differs: Any) -> None:
    differs("no server")
    password = make_url(async_url).password
    assert password
    db = AsyncQueueDB(async_url)
    shown = [repr(db)]
    async with db:
        shown += [repr(db), db.url, repr(db.queue("q"))]
        with pytest.raises(QueueDBError) as refused:
            db.queue("")
        shown.append(full_text(refused.value))
    assert password not in "".join(shown)


#: What each connection is told, and what it says then.
SETTINGS = {
    "sqlite": {"PRAGMA synchronous": "2", "PRAGMA journal_mode": "wal", "PRAGMA busy_timeout": "30000"},
    "postgresql": {
        "SHOW lock_timeout": "10s",
        "SHOW default_transaction_isolation": "read committed",
        "SHOW enable_seqscan": "off",
        "SHOW application_name": "queue_db",
    },
    "mysql": {
        "SELECT @@innodb_lock_wait_timeout": "10",
        "SELECT @@lock_wait_timeout": "10",
        "SELECT @@transaction_isolation": "READ-COMMITTED",
    },
    "mariadb": {
        "SELECT @@innodb_lock_wait_timeout": "10",
        "SELECT @@lock_wait_timeout": "10",
        "SELECT @@tx_isolation": "READ-COMMITTED",
    },
}


async def test_the_settings_of_a_connection(kind: str, adb: AsyncQueueDB) -> None:
    async with adb.queue("q").transaction() as connection:
        for question, answer in SETTINGS[kind].items():
            assert str((await connection.execute(text(question))).scalar()) == answer
        if kind == "sqlite":
            return
        raw: Any = await connection.get_raw_connection()
        driver = raw.driver_connection
        transport = getattr(driver, "_transport", None) or driver._writer.transport
        options = transport.get_extra_info("socket")
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000


def test_a_connection_without_a_socket_of_the_network_is_left_alone() -> None:
    class Connection:
        driver_connection = object()

    limit_waits(Connection(), None)


@pytest.mark.parametrize("kind", ["mysql"], scope="session")
async def test_another_driver_of_mysql(async_url: str, name: str) -> None:
    async with AsyncQueueDB(async_url.replace("aiomysql", "asyncmy")) as db:
        queue = db.queue(name)
        await queue.enqueue_many([("k", number) for number in range(2100)])
        jobs = await queue.claim(2100)
        assert [job.payload for job in jobs] == list(range(2100))
        assert all(await queue.complete_many(jobs))
