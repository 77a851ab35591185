"""Run the handlers of a worker in a test: in the calling thread, one job after the other, without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from queue_db.errors import UnknownKindError
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason
from queue_db.outcomes import Dead, checked
from queue_db.worker import Worker
from queue_db.worker.handlers import Handling
from queue_db.worker.settling import Done, Unknown, settle

#: More jobs than this in one call probably mean that a handler enqueues its own kind.
MOST = 10_000


def drain(worker: Worker, *, raises: bool = True) -> list[LeasedJob]:
    """Run all due jobs of the worker's queues, including those that its handlers enqueue; return them in the order of execution.

    Jobs that are due later stay: advance the clock (:class:`~queue_db.testing.SettableClock`).

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
        outcome = handling.wrapped(worker.wrappers)(job)
        return handling, checked(asyncio.run(outcome) if handling.asynchronous else outcome), None
    except Exception as error:  # noqa: BLE001 - it is the job's
        if error is job.misfit:
            return handling, Dead(f"parked: {error}"), DeathReason.PAYLOAD
        return handling, error, None
