"""Run a worker's handlers in a test: in the calling thread, one job after the other, with no thread and no wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from queue_db.errors import UnknownKindError
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason
from queue_db.outcomes import Dead
from queue_db.worker import Worker
from queue_db.worker.acknowledger import Done, Unknown, settle
from queue_db.worker.handlers import Handling

#: More jobs than this in one go are most likely a handler that enqueues itself.
MOST = 10_000


def drain(worker: Worker, *, raises: bool = True) -> list[LeasedJob]:
    """Do what is due in the worker's queues, also what its handlers add, and return the jobs in the order in which they were done.

    What is due later stays: set the clock forward (:class:`~queue_db.testing.SettableClock`).

    :param raises: raise what a handler raises, after its attempt was counted as failed; or go on.
    :raises RuntimeError: there was no end of jobs.
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
    """Within the block a job that is enqueued through the worker's database object is done before ``enqueue`` returns.

    One that is enqueued with ``using=`` waits for the next that is not, or for :func:`drain`: nobody knows when it is committed.
    """
    busy = False

    def ring(queue: str) -> None:
        nonlocal busy
        if busy or queue not in worker.shares.queues:
            return  # the handler that runs enqueues: what it adds is done after it
        busy = True
        try:
            drain(worker, raises=raises)
        finally:
            busy = False

    worker.db.hints.add(ring)
    try:
        yield
    finally:
        worker.db.hints.remove(ring)


def _next(worker: Worker) -> LeasedJob | None:
    for name in worker.shares.queues:
        for job in worker.db.queue(name).claim(1, worker.lease):
            return job
    return None


def _call(worker: Worker, job: LeasedJob) -> tuple[Handling | None, Any, DeathReason | None]:
    try:
        handling = worker.handlers.of(job)
    except UnknownKindError as error:
        if worker.unknown == "wait":
            return None, Unknown(error, worker.unknown_grace), None
        return None, Dead(f"parked: {error}"), DeathReason.UNKNOWN_KIND
    try:
        handling.read(job)
        outcome = handling.wrapped(worker.wrappers)(job)
        return handling, asyncio.run(outcome) if handling.asynchronous else outcome, None
    except Exception as error:  # noqa: BLE001 - it is the job's
        if error is job.misfit:
            return handling, Dead(f"parked: {error}"), DeathReason.PAYLOAD
        return handling, error, None
