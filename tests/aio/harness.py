"""Tests on an event loop.

Tests that are coroutine functions run on it. Tests with the mark ``greenlet`` are synchronous code in a greenlet on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

from queue_db import QueueDB
from queue_db.aio import AsyncQueue, AsyncQueueDB
from tests.aio import loop
from tests.aio.loop import for_asyncio, on_the_loop, spawned

OpenAsync = Callable[..., Coroutine[Any, Any, AsyncQueueDB]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "greenlet: the test is synchronous code that runs in a greenlet on the event loop")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        on_the_loop(pyfuncitem.obj(**wanted))
        return True
    if pyfuncitem.get_closest_marker("greenlet"):
        spawned(partial(pyfuncitem.obj, **wanted))
        return True
    return None


def pytest_sessionfinish() -> None:
    loop.close()


@pytest.fixture
def async_url(url: str, db: QueueDB) -> str:
    """The shared database by a driver for asyncio."""
    # `db` is there first: MySQL lets a password in without TLS only once it has seen it with TLS.
    return for_asyncio(url)


@pytest.fixture
def open_async(async_url: str) -> Iterator[OpenAsync]:
    """``await open_async(strategy="skip_locked")``: the shared database, as often as wanted; closed after the test."""
    opened: list[AsyncQueueDB] = []

    async def open_it(**options: Any) -> AsyncQueueDB:
        opened.append(await AsyncQueueDB(async_url, **options).open())
        return opened[-1]

    yield open_it
    for one in opened:
        on_the_loop(one.close())


@pytest.fixture
def adb(open_async: OpenAsync) -> AsyncQueueDB:
    """The shared database with the default strategy and removal."""
    return on_the_loop(open_async())


@pytest.fixture
def mail(adb: AsyncQueueDB, name: str) -> AsyncQueue:
    """An empty queue."""
    return adb.queue(name)
