"""Base classes of the generated classes, written by hand: what a generated class needs and its synchronous class does not have.

The other classes of this package are generated from synchronous classes (see CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from sqlalchemy.ext.asyncio import AsyncConnection

from queue_db.concurrency.greenlets import run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.leased_job import JobData, LeasedJob, Payload_co
from queue_db.queue import Queue
from queue_db.slices import load, type_hint

if TYPE_CHECKING:
    from queue_db.aio.db import AsyncQueueDB
    from queue_db.aio.queue import AsyncQueue
    from queue_db.steps.resumption import AsyncJobState, AsyncLoop, Resumption
else:
    AsyncQueue, AsyncQueueDB = (type_hint("queue_db.aio", name) for name in ("AsyncQueue", "AsyncQueueDB"))
    AsyncJobState, AsyncLoop = (type_hint("queue_db.steps.resumption", name) for name in ("AsyncJobState", "AsyncLoop"))

Sync = TypeVar("Sync")
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Twin(Generic[Sync]):
    """An object for asyncio, with the synchronous object whose verbs it runs in greenlets."""

    def __init__(self, sync: Sync) -> None:
        self._sync = sync


class QueueTwin(Twin[Queue]):
    """One queue: enqueue, claim, settle, inspect. For the tasks of one event loop; get it from :meth:`AsyncQueueDB.queue`."""

    def __init__(self, db: AsyncQueueDB, queue: Queue) -> None:
        super().__init__(queue)
        self.db = db
        self.name = queue.name

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.name!r} of {self.db.url}>"


class LeasedJobTwin(JobData, Generic[Payload_co]):
    """The data of a claimed job for asyncio."""

    __slots__ = ("leased", "source", "token", "worker")

    if TYPE_CHECKING:

        async def _run(self, verb: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
            """Run a verb of the synchronous job."""

    else:
        _run = staticmethod(run)  # mypy cannot say this

    def __init__(self, leased: LeasedJob[Payload_co], source: AsyncQueue) -> None:
        super().__init__(leased.snapshot_row(), leased.queue)
        #: The queue object that claimed the job.
        self.source = source
        #: The same job, for synchronous code in a greenlet.
        self.leased = leased
        #: Random text of the claim. :meth:`AsyncQueue.lease_from_token` makes this object again from id, version and token.
        self.token = leased.token
        #: The worker name that was given to the claim; None: ``db.worker``.
        self.worker = leased.worker

    @property
    def state(self) -> AsyncJobState:
        """What the job keeps from run to run: ``await job.state.load()`` and ``.save(value)``, JSON of at most 64 KB."""
        made: AsyncJobState = load("steps.resumption", "AsyncJobState")(_resumption(self.leased))
        return made

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, _T]],
        /,
        *args: Any,
        using: AsyncUsing,
        **kwargs: Any,
    ) -> _T: ...

    @overload
    async def step(
        self, name: str, function: Callable[_P, Coroutine[Any, Any, _T]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...

    async def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, Any]],
        /,
        *args: Any,
        using: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Await ``function`` and store its result; when the job runs again, return the stored result without the call.

        The call is *at least once*: a process that dies between the call and the store calls again. For the job's own SQL give
        ``using``, or let :meth:`step_transaction` open the transaction.

        :param name: one name for each step of the job, at most 100 characters.
        :param using: a transaction of yours, in which ``function`` writes: the result is stored if it is committed, *exactly-once
            effect*. The function does not get it. The row of the job is locked until its end, so end it before other verbs.
        :raises ArgumentError: this run has used the name before, or was ended by :meth:`sleep` or :meth:`wait_for`; or ``function``
            is no ``async def``.
        :raises HandlerResultError: the result is no JSON, or longer than 64 KB.
        :raises LeaseLostError: the lease was lost; nothing was stored. With ``using`` let it roll back the transaction.
        """
        return await _resumption(self.leased).async_step(name, function, args, kwargs, using)

    async def step_transaction(
        self,
        name: str,
        function: Callable[Concatenate[AsyncConnection, _P], Coroutine[Any, Any, _T]],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """:meth:`step` with SQL of its own: ``function(connection, …)`` runs in the transaction that stores its result.

        Both are committed or neither: *exactly-once effect*.

        :raises LeaseLostError: the lease was lost; what the function wrote is rolled back.
        """
        result: _T = await _resumption(self.leased).async_step_transaction(name, function, args, kwargs)
        return result

    async def loop(
        self,
        name: str,
        function: Callable[Concatenate[AsyncLoop, _P], Coroutine[Any, Any, _T]],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """:meth:`step` that stores where it is: ``function(loop, …)`` begins at ``loop.cursor`` and calls ``loop.advance(cursor)``.

        While the worker stops, ``advance`` ends the run, and the attempt is not counted.
        """
        result: _T = await _resumption(self.leased).async_loop(name, function, args, kwargs)
        return result


def _resumption(job: LeasedJob) -> Resumption:
    found: Resumption = load("steps.resumption", "resumption_of")(job)
    return found


def settled(jobs: Any) -> Any:
    """The synchronous jobs behind jobs for asyncio. Anything but a list of jobs is returned: the synchronous verb refuses it."""
    if isinstance(jobs, Iterable) and not isinstance(jobs, str | bytes | Mapping):
        return [job.leased if isinstance(job, LeasedJobTwin) else job for job in jobs]
    return jobs
