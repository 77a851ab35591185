"""The transaction of a handler that also completes its job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from queue_db.slices import type_hint

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from queue_db.leased_job import LeasedJob
else:
    Connection, AsyncConnection = type_hint("sqlalchemy", "Connection"), type_hint("sqlalchemy.ext.asyncio", "AsyncConnection")
    LeasedJob = type_hint("queue_db.leased_job", "LeasedJob")


class JobTransaction:
    """The transaction that :meth:`LeasedJob.transaction` returns, for ``with``, or for ``async with`` in a coroutine.

    ``with`` gives a Connection of the database object. ``async with`` gives an AsyncConnection to the same database, which belongs
    to the running event loop. ``async with`` needs the asyncio driver of the database.
    """

    def __init__(self, job: LeasedJob) -> None:
        self._job = job
        self._block: AbstractContextManager[Connection] | None = None
        self._task_block: AbstractAsyncContextManager[AsyncConnection] | None = None

    def __enter__(self) -> Connection:
        self._block = self._of_thread()
        return self._block.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        return None if self._block is None else self._block.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncConnection:
        self._task_block = self._of_task()
        return await self._task_block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return None if self._task_block is None else await self._task_block.__aexit__(kind, error, trace)

    @contextmanager
    def _of_thread(self) -> Iterator[Connection]:
        with self._job.source.transaction() as connection:
            yield connection
            self._job.complete(using=connection).require(self._job)
        confirm(self._job)

    @asynccontextmanager
    async def _of_task(self) -> AsyncIterator[AsyncConnection]:
        async with self._job.source.transaction_on_loop() as connection:
            yield connection
            (await self._job.complete(using=connection)).require(self._job)
        confirm(self._job)


def confirm(job: LeasedJob) -> None:
    """Note that the handler's transaction in which a verb has settled the job was committed. Only now the verb is counted."""
    count, job.unconfirmed = job.unconfirmed, None
    if count is not None:
        count()
