"""The job that a worker's coroutine gets if it asks for an AsyncLeasedJob. Written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from queue_db.aio.leased import AsyncLeasedJob
from queue_db.aio.opening import ForThreads
from queue_db.concurrency.greenlets import joined, run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.errors import ConfigurationError
from queue_db.leased_job import LeasedJob, Payload_co
from queue_db.model import Verdict

_P = ParamSpec("_P")
_T = TypeVar("_T")


class HandledJob(AsyncLeasedJob[Payload_co]):
    """A job of a worker, for its coroutine. It has the fence of the worker's own object, whose lease the heartbeat extends.

    A verb runs in a thread, on a connection of the worker's threads. With ``using``, and in :meth:`transaction`, it runs on a
    connection of the event loop.
    """

    __slots__ = ()

    def __init__(self, leased: LeasedJob[Payload_co]) -> None:
        super().__init__(leased, _source_of(leased))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with self.leased.transaction() as connection:
            yield connection

    async def complete(self, using: AsyncUsing | None = None) -> Verdict:
        if using is None:
            return await self._run(self.leased.complete)
        return await run(self.leased.complete, joined(using))

    async def _run(self, verb: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await asyncio.to_thread(verb, *arguments, **named)


def _source_of(leased: LeasedJob) -> Any:
    """The queue whose methods are awaited; only the worker of an open AsyncQueueDB has one."""
    db = getattr(leased.source, "db", None)
    if isinstance(db, ForThreads):
        with suppress(ConfigurationError):  # it is not open
            return db.beside.queue(leased.queue)
    return leased.source
