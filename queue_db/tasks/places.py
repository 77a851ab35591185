"""Where the enqueues of tasks go: a QueueDB, an AsyncQueueDB, or both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from queue_db import arguments
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, ConfigurationError

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB
    from queue_db.graphs.building import NewGraph
    from queue_db.tasks.task import Batch, NewTask, Task


class Place(Protocol):
    """Takes the enqueues of tasks, and waits for results."""

    def enqueue(self, job: NewTask, /) -> Any: ...
    async def aenqueue(self, job: NewTask, /) -> Any: ...
    def many(self, batch: Batch, /) -> Any: ...
    async def amany(self, batch: Batch, /) -> Any: ...
    def result(self, job_id: int, timeout: float, /) -> Any: ...
    async def aresult(self, job_id: int, timeout: float, /) -> Any: ...  # noqa: ASYNC109 - as AsyncQueueDB.wait
    def graph(self, name: str | None, options: Mapping[str, Any], /) -> NewGraph: ...
    def agraph(self, name: str | None, options: Mapping[str, Any], /) -> NewGraph: ...


class Databases:
    """The databases of a registry of tasks."""

    def __init__(self) -> None:
        self.sync: QueueDB | None = None
        self.asynchronous: AsyncQueueDB | None = None

    def bind(self, db: object, tasks: Mapping[str, Task[..., Any, Any]]) -> None:
        """Send the enqueues to this object.

        :param tasks: the tasks by kind, whose payloads the object is to check at untyped enqueues.
        :raises ArgumentError: ``db`` is no database object.
        """
        if isinstance(db, QueueDB):
            self.sync = db
            self.show(tasks)
            return
        from queue_db.aio import AsyncQueueDB  # needs greenlet, which a program without asyncio may not have

        if not isinstance(db, AsyncQueueDB):
            raise ArgumentError(f"db={arguments.shown(db)}: must be a QueueDB or an AsyncQueueDB")
        self.asynchronous = db
        self.show(tasks)

    def bind_once(self, db: QueueDB | AsyncQueueDB, tasks: Mapping[str, Task[..., Any, Any]]) -> None:
        """:meth:`bind`, unless an object of the same class is bound that is not closed."""
        bound = self.sync if isinstance(db, QueueDB) else self.asynchronous
        if bound is None or (isinstance(bound, QueueDB) and bound.database.closed):
            self.bind(db, tasks)

    def show(self, tasks: Mapping[str, Task[..., Any, Any]]) -> None:
        """Let the databases check the payloads of these tasks."""
        for kind, task in tasks.items():
            if self.sync is not None:
                self.sync.schemas[kind] = task.payloads.schema
            if self.asynchronous is not None:
                self.asynchronous.learn(kind, task.payloads.schema)

    def enqueue(self, job: NewTask) -> Any:
        return self._sync("enqueue").queue(job.queue).enqueue(job.kind, job.payload, **_options(job))

    async def aenqueue(self, job: NewTask) -> Any:
        return await self._async("aenqueue").queue(job.queue).enqueue(job.kind, job.payload, **_options(job))

    def many(self, batch: Batch) -> Any:
        queue = self._sync("many").queue(batch.queue)
        return queue.enqueue_many(batch.items, on_duplicate=batch.on_duplicate, using=batch.using)

    async def amany(self, batch: Batch) -> Any:
        queue = self._async("amany").queue(batch.queue)
        return await queue.enqueue_many(batch.items, on_duplicate=batch.on_duplicate, using=batch.using)

    def result(self, job_id: int, timeout: float) -> Any:
        return self._sync("result").wait(job_id, timeout).result

    async def aresult(self, job_id: int, timeout: float) -> Any:  # noqa: ASYNC109 - as AsyncQueueDB.wait
        return (await self._async("aresult").wait(job_id, timeout)).result

    def graph(self, name: str | None, options: Mapping[str, Any]) -> NewGraph:
        return self._sync("graph").graph(name, **options)

    def agraph(self, name: str | None, options: Mapping[str, Any]) -> NewGraph:
        return self._async("agraph").graph(name, **options)

    def _sync(self, verb: str) -> QueueDB:
        if self.sync is None:
            raise ConfigurationError(f"{verb}() needs a QueueDB: call tasks.bind(QueueDB(…)) first" + _other(self.asynchronous))
        return self.sync

    def _async(self, verb: str) -> AsyncQueueDB:
        if self.asynchronous is None:
            raise ConfigurationError(f"{verb}() needs an AsyncQueueDB: call tasks.bind(async_db) first" + _other(self.sync))
        return self.asynchronous


def _other(bound: object) -> str:
    return "" if bound is None else f"; these tasks have only {bound!r}"


def _options(job: NewTask) -> Mapping[str, Any]:
    return {**job.options(), "on_duplicate": job.on_duplicate, "using": job.using}
