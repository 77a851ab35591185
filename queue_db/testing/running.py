"""Run the handlers of a worker in a test: one job after the other, in the calling thread where that can be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, event
from sqlalchemy.pool import ConnectionPoolEntry, Pool
from sqlalchemy.util import await_
from sqlalchemy.util.concurrency import in_greenlet

from queue_db.db import QueueDB
from queue_db.leased_job import LeasedJob, claimed_by
from queue_db.model import DeathReason
from queue_db.outcomes import Suspended, checked
from queue_db.resumable import Claimant
from queue_db.worker import Worker
from queue_db.worker.completer import JobResult, parked, settle
from queue_db.worker.executor import within_timeout
from queue_db.worker.handlers import Handler, HandlerSpec, timeout_error
from queue_db.worker.lists import of_one

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB

# Marks a connection that has added jobs in a transaction of its owner.
_JOINED = "queue_db.testing.joined"

#: More jobs than this in one call probably mean that a handler enqueues its own kind.
MOST = 10_000


def drain(worker: Worker, *, raises: bool = True) -> list[LeasedJob]:
    """Run all due jobs of the worker's queues, including those that its handlers enqueue; return them in the order of execution.

    Jobs that are due later stay: advance the clock (:class:`~queue_db.testing.SettableClock`). Functions run in this thread; those
    with a ``timeout``, and coroutines while an event loop runs here, in a thread of their own.

    :param raises: True: raise the exception of a handler, after its job was failed, and the reason why none was called: there is
        none for the kind, or the payload does not fit; False: go on.
    :raises UnknownKindError: a job has no handler.
    :raises PayloadError: a payload does not fit the schema of its handler.
    :raises RuntimeError: more than 10,000 jobs ran.
    :raises ConfigurationError: the worker has no handlers.
    """
    worker.handlers.require(worker.options.names)
    done: list[LeasedJob] = []
    while job := _next(worker):
        if len(done) >= MOST:
            raise RuntimeError(f"more than {MOST:,} jobs: does {job!r} enqueue itself?")
        done.append(job)
        spec, outcome, reason, error = _call(worker, job)
        result_ttl = worker.options.result_ttl if spec is None or spec.result_ttl is None else spec.result_ttl
        settle(JobResult(job, spec, outcome, result_ttl=result_ttl, reason=reason))
        if raises and error is not None:
            raise error
    return done


@contextmanager
def inline(worker: Worker, *others: QueueDB | AsyncQueueDB, raises: bool = True) -> Iterator[None]:
    """Inside the block a job that is enqueued through the worker's QueueDB object runs before ``enqueue`` returns.

    A job that is enqueued with ``using=`` runs when its transaction has ended and the connection goes back to its pool: at the end
    of ``session.commit()`` or of ``with engine.begin()``. On an event loop the handlers run in a thread, and the loop goes on.

    :param others: more objects of the same database through which jobs are enqueued, such as an open AsyncQueueDB.
    :param raises: True: ``enqueue`` raises what :func:`drain` does, after its job was settled; with ``using=`` the end of the block
        raises the first one. False: neither does.
    """
    jobs = _Inline(worker, raises=raises)
    places = [one.notifications for one in (worker.db, *others)]
    event.listen(Pool, "checkin", jobs.ended)
    for one in places:
        one.add(jobs.wake)
        one.joining = jobs.join
    try:
        yield
    finally:
        event.remove(Pool, "checkin", jobs.ended)
        for one in places:
            one.remove(jobs.wake)
            one.joining = None
    if jobs.late:
        raise jobs.late[0]


class _Inline:
    """Runs the jobs of a worker as soon as they are enqueued."""

    def __init__(self, worker: Worker, *, raises: bool) -> None:
        self._worker = worker
        self._raises = raises
        self._running = self._again = False
        #: What handlers raised where it cannot be raised.
        self.late: list[Exception] = []

    def wake(self, queue: str) -> None:
        """Jobs of this queue are enqueued and committed."""
        self._again = self._again or queue in self._worker.options.limits
        if self._running:
            return  # called from a running handler, or while another task waits for one: the jobs run after that
        self._running = True
        try:
            while self._again:
                self._again = False
                _drained(self._worker, raises=self._raises)
        finally:
            self._running = False

    def join(self, connection: Connection, queue: str) -> None:
        """Jobs of this queue are enqueued in a transaction of the connection's owner."""
        info = connection.connection.record_info
        if info is not None and queue in self._worker.options.limits:
            info[_JOINED] = queue

    def ended(self, _connection: object, entry: ConnectionPoolEntry) -> None:
        """A connection goes back to its pool."""
        queue = entry.record_info.pop(_JOINED, None) if entry.record_info else None
        if queue is not None:
            try:
                self.wake(queue)
            except Exception as error:  # noqa: BLE001 - raised here it would keep the connection from its pool
                self.late.append(error)


def _drained(worker: Worker, *, raises: bool) -> None:
    """:func:`drain`; for a task in a thread, so that its event loop goes on."""
    if _loop_runs() and in_greenlet():
        await_(asyncio.to_thread(drain, worker, raises=raises))
    else:
        drain(worker, raises=raises)


def _next(worker: Worker) -> LeasedJob | None:
    with claimed_by(Claimant(at_most_once=worker.options.at_most_once)):
        for name in worker.options.limits:
            for job in worker.db.queue(name).claim(1, worker.options.lease):
                return job
    return None


def _call(worker: Worker, job: LeasedJob) -> tuple[HandlerSpec | None, Any, DeathReason | None, Exception | None]:
    """The handler, its outcome, the reason of a death, and what a test shall see raised."""
    spec = None
    try:
        spec = worker.handlers.of(job)
        spec.read(job)
        function = spec.wrapped(worker.wrappers)
        return spec, _returned(spec, function if spec.many is None else of_one(spec, function), job), None, None
    except Suspended:
        if not job.settled:
            raise
        return spec, None, None, None
    except Exception as error:  # noqa: BLE001 - it is the job's
        return spec, *parked(job, error, worker.options), error


def _returned(spec: HandlerSpec, function: Handler, job: LeasedJob) -> Any:
    """What a handler returns, as a worker calls it.

    :raises TimeoutError: its timeout has passed.
    """
    if spec.asynchronous:
        run = partial(asyncio.run, within_timeout(spec, function, job))
        outcome = _in_thread(run).result() if _loop_runs() else run()
        if isinstance(outcome, TimeoutError):
            raise outcome
        return outcome
    if spec.timeout is None:
        return checked(function(job))
    returned = _in_thread(partial(function, job))
    if not wait([returned], spec.timeout).done:
        job.lost.set()
        raise timeout_error(spec)
    return checked(returned.result())


def _in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Call this in a thread of its own, which does not keep the process from ending."""
    future: Future[Any] = Future()
    context = copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            future.set_exception(error)

    threading.Thread(target=run, name="queue_db drain", daemon=True).start()
    return future


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
