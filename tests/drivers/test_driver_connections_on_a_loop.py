"""``using=`` of an AsyncQueueDB takes the open connections of asyncpg and of psycopg for asyncio."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import make_url

from queue_db import ConfigurationError, QueueDB, Verdict
from queue_db.aio import AsyncQueueDB
from queue_db.worker import Worker
from tests.aio.loop import for_asyncio, on_the_loop
from tests.drivers.lenders import LENDERS, opened

pytestmark = pytest.mark.parametrize("kind", ["postgresql"])


def address(url: str, database: str) -> dict[str, Any]:
    parsed = make_url(url)
    found = {"host": parsed.host, "port": parsed.port, "user": parsed.username, "password": parsed.password}
    return {**found, database: parsed.database}


@asynccontextmanager
async def asyncpg(url: str) -> AsyncIterator[Any]:
    import asyncpg

    pool = await asyncpg.create_pool(**address(url, "database"), min_size=1)
    async with pool.acquire() as connection:
        yield connection
    await pool.close()


@asynccontextmanager
async def psycopg(url: str) -> AsyncIterator[Any]:
    import psycopg

    wishes: Any = {"row_factory": psycopg.rows.dict_row, "autocommit": True}
    async with await psycopg.AsyncConnection.connect(**address(url, "dbname"), **wishes) as connection:
        yield connection


on_each_driver = pytest.mark.parametrize("connect", [asyncpg, psycopg])
Connect = Callable[[str], Any]


@on_each_driver
def test_jobs_commit_with_the_transaction_of_the_driver(url: str, name: str, connect: Connect) -> None:
    async def use() -> None:
        async with AsyncQueueDB(for_asyncio(url)) as db, connect(url) as connection:
            queue = db.queue(name)
            with suppress(KeyError):
                async with connection.transaction():
                    await queue.enqueue("lost", using=connection)
                    raise KeyError
            async with connection.transaction():
                await queue.enqueue_many([("k", number) for number in range(1100)], using=connection)
                with suppress(KeyError):
                    async with connection.transaction():
                        await queue.enqueue("inner", using=connection)
                        raise KeyError
                await queue.enqueue("k", 1100, unique_key="a", using=connection)
            jobs = await queue.claim(2000)
            assert [job.payload for job in jobs] == list(range(1101))
            await jobs[0].release()
            async with connection.transaction():
                assert await jobs[0].complete(using=connection) is Verdict.LOST
                assert await queue.complete_many(jobs[1:], using=connection) == [Verdict.APPLIED] * 1100
            assert (await queue.stats()).available == 1

    on_the_loop(use())


@on_each_driver
def test_nothing_is_left_on_the_connection(url: str, name: str, connect: Connect) -> None:
    async def use() -> None:
        async with AsyncQueueDB(for_asyncio(url)) as db, connect(url) as connection:
            for _ in range(20):
                async with connection.transaction():
                    await db.queue(name).enqueue("k", using=connection)
            prepared = "SELECT count(*) AS number FROM pg_prepared_statements WHERE statement LIKE '%INSERT%'"
            if connect is asyncpg:
                assert await connection.fetchval(prepared) <= 1  # the last one is closed with the next statement
                assert not connection.is_in_transaction()
            else:
                assert await (await connection.execute(prepared)).fetchone() == {"number": 0}
                assert connection.info.transaction_status == 0

    on_the_loop(use())


@on_each_driver
def test_a_connection_without_a_transaction_or_closed_is_refused_on_a_loop(url: str, name: str, connect: Connect) -> None:
    async def use() -> None:
        async with AsyncQueueDB(for_asyncio(url)) as db:
            async with connect(url) as connection:
                with pytest.raises(ConfigurationError, match=r"no open transaction.*async with connection\.transaction\(\)"):
                    await db.queue(name).enqueue("k", using=connection)
                await connection.close()
                if connect is psycopg:
                    with pytest.raises(ConfigurationError, match="is closed"):
                        await db.queue(name).enqueue("k", using=connection)
            assert (await db.queue(name).stats()).available == 0

    on_the_loop(use())


@on_each_driver
def test_connections_of_the_other_sort_are_refused(db: QueueDB, url: str, name: str, connect: Connect) -> None:
    async def use() -> None:
        async with AsyncQueueDB(for_asyncio(url)) as other, connect(url) as connection, connection.transaction():
            with pytest.raises(ConfigurationError, match="is for asyncio.*AsyncQueueDB"):
                db.queue(name).enqueue("k", using=connection)
            with opened(LENDERS[0], url) as of_threads, pytest.raises(ConfigurationError, match="is not for asyncio"):
                await other.queue(name).enqueue("k", using=of_threads)
            with pytest.raises(ConfigurationError, match="is not for asyncio"):
                await other.queue(name).enqueue("k", using=sqlite3.connect(":memory:"))  # type: ignore[arg-type]
            with pytest.raises(
                ConfigurationError, match="using= takes a SQLAlchemy AsyncConnection or AsyncSession, or .* not int"
            ):
                await other.queue(name).enqueue("k", using=5)  # type: ignore[arg-type]

    on_the_loop(use())


@on_each_driver
def test_a_coroutine_of_a_worker_completes_on_its_own_connection(db: QueueDB, url: str, name: str, connect: Connect) -> None:
    """The QueueDB is not for asyncio, the connection is."""
    worker, verdicts = Worker(db, name), list[Verdict]()

    @worker.handles("k")
    async def handle(job: Any) -> None:
        async with connect(url) as connection, connection.transaction():
            verdicts.append(await job.complete(using=connection))

    db.queue(name).enqueue("k")
    worker.run(until_empty=True)
    assert verdicts == [Verdict.APPLIED]
    assert db.queue(name).stats().available == 0
