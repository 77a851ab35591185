"""Brokers of Taskiq on the databases of the suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from taskiq import AckableMessage, AsyncBroker

from queue_db.contrib.taskiq import QueueBroker
from tests.aio.loop import on_the_loop

OpenBroker = Callable[..., Coroutine[Any, Any, QueueBroker]]


@pytest.fixture(autouse=True)
def own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks belong to one test."""
    monkeypatch.setattr(AsyncBroker, "global_task_registry", {})


@pytest.fixture
def open_broker(async_url: str, name: str) -> Iterator[OpenBroker]:
    """``await open_broker(lease=1)``: a broker of the shared database and a queue of its own, started; shut down after the test."""
    opened: list[QueueBroker] = []

    async def open_it(**options: Any) -> QueueBroker:
        opened.append(QueueBroker(async_url, **{"queues": [name]} | options))
        await opened[-1].startup()
        return opened[-1]

    yield open_it
    for broker in opened:
        on_the_loop(broker.shutdown())


@pytest.fixture
def broker(open_broker: OpenBroker) -> QueueBroker:
    return on_the_loop(open_broker())


@asynccontextmanager
async def listening(broker: QueueBroker) -> AsyncGenerator[AsyncGenerator[AckableMessage, None], None]:
    """The generator of ``listen``, closed at the end of the block."""
    messages = broker.listen()
    try:
        yield messages
    finally:
        await messages.aclose()
