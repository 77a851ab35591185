"""Run the handlers of a worker in a test: one job after the other, in the calling thread where that can be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

from queue_db.errors import UnknownKindError
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason
from queue_db.outcomes import Dead, checked
from queue_db.worker import Worker
from queue_db.worker.execution import within_timeout
from queue_db.worker.handlers import Handler, Handling, timeout_error
from queue_db.worker.settling import Done, Unknown, settle

#: More jobs than this in one call probably mean that a handler enqueues its own kind.
MOST = 10_000


def drain(worker: Worker, *, raises: bool = True) -> list[LeasedJob]:
    """Run all due jobs of the worker's queues, including those that its handlers enqueue; return them in the order of execution.

    Jobs that are due later stay: advance the clock (:class:`~queue_db.testing.SettableClock`). Functions run in this thread; those
    with a ``timeout``, and coroutines while an event loop runs here, in a thread of their own.

    :param raises: True: raise the exception of a handler, after its job was failed; False: go on.
    :raises RuntimeError: more than 10,000 jobs ran.
    :raises ConfigurationError: the worker has no handlers.
    """
    worker.handlers.require(worker.names)
    done: list[LeasedJob] = []
    while job := _next(worker):
        if len(done) >= MOST:
            raise RuntimeError(f"more than {MOST:,} jobs: does {job!r} enqueue itself?")
        done.append(job)
        handling, outcome, reason = _call(worker, job)
        settle(Done(job, handling, outcome, None, keep=worker.keeps(handling), reason=reason))
        if raises and isinstance(outcome, BaseException):
            raise outcome
    return done


@contextmanager
def inline(worker: Worker, *, raises: bool = True) -> Iterator[None]:
    """Inside the block a job that is enqueued through the worker's QueueDB object runs before ``enqueue`` returns.

    A job that is enqueued with ``using=`` runs with the next one that is not, or with :func:`drain`: its commit is not seen here.
    """
    busy = False

    def wake(queue: str) -> None:
        nonlocal busy
        if busy or queue not in worker.shares.queues:
            return  # called from a running handler: the jobs that it adds run after it
        busy = True
        try:
            drain(worker, raises=raises)
        finally:
            busy = False

    worker.db.notifications.add(wake)
    try:
        yield
    finally:
        worker.db.notifications.remove(wake)


def _next(worker: Worker) -> LeasedJob | None:
    for name in worker.shares.queues:
        for job in worker.db.queue(name).claim(1, worker.options.lease):
            return job
    return None


def _call(worker: Worker, job: LeasedJob) -> tuple[Handling | None, Any, DeathReason | None]:
    try:
        handling = worker.handlers.of(job)
    except UnknownKindError as error:
        if worker.options.unknown == "wait":
            return None, Unknown(error, worker.options.unknown_grace), None
        return None, Dead(f"parked: {error}"), DeathReason.UNKNOWN_KIND
    try:
        handling.read(job)
        return handling, _returned(handling, handling.wrapped(worker.wrappers), job), None
    except Exception as error:  # noqa: BLE001 - it is the job's
        if error is job.misfit:
            return handling, Dead(f"parked: {error}"), DeathReason.PAYLOAD
        return handling, error, None


def _returned(handling: Handling, function: Handler, job: LeasedJob) -> Any:
    """What a handler returns, as a worker calls it.

    :raises TimeoutError: its timeout has passed.
    """
    if handling.asynchronous:
        run = partial(asyncio.run, within_timeout(handling, function, job))
        return _in_thread(run).result() if _loop_runs() else run()
    if handling.timeout is None:
        return checked(function(job))
    returned = _in_thread(partial(function, job))
    if not wait([returned], handling.timeout).done:
        job.lost.set()
        raise timeout_error(handling)
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
