"""Reports deaths of jobs: writes a log record, counts the death for the process and the queue, and calls each listener.

Every death is reported here, for any reason. If a transaction makes a job dead, the death is reported after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from queue_db import arguments
from queue_db.concurrency.queue_counters import QueueCounters
from queue_db.database.database import Database
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason

log = logging.getLogger("queue_db.dead")

# The most characters of an error text in a log line.
_MAX_ERROR = 500


@dataclass(frozen=True, slots=True)
class UnleasedJob:
    """A dead job that had no lease: a slice held the job, or made it from a message."""

    id: int
    queue: str
    kind: str
    attempts: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Death:
    """A job that is dead now."""

    job: LeasedJob | UnleasedJob
    reason: DeathReason
    #: The error text that the dead table shows.
    error: str
    #: The exception or the text from which :attr:`error` was made. If it is an exception, its traceback is logged.
    cause: BaseException | str | None = None
    #: The queue whose metrics count the death; None: the queue of the job.
    queue: str | None = None


Listener = Callable[[Death], None]
"""Called with each death, in the thread that caused it. Its exceptions are logged and have no effect."""


class Deaths:
    """Reports the deaths caused through one :class:`QueueDB`.

    :param worker: returns the name of the worker for log records. The name changes after a fork.
    """

    def __init__(self, database: Database, counters: QueueCounters, worker: Callable[[], str]) -> None:
        self._database = database
        self._counters = counters
        self._worker = worker
        self._listeners: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        """Call ``listener`` with each death from now on.

        :raises ArgumentError: ``listener`` is an ``async def``.
        """
        arguments.plain("listener", listener)
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Do not call ``listener`` any more."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def record(self, deaths: Iterable[Death], *, kept: bool = True) -> None:
        """Log and count each death, and call the listeners.

        :param kept: whether the jobs are in the dead table. False: the jobs are lost, and their deaths are not counted.
        """
        for death in deaths:
            job = death.job
            if kept:
                self._counters.add(death.queue or job.queue, died=1)
                counters = self._database.counters
                with self._database.counting:
                    counters.dead += 1
            error = death.error if len(death.error) <= _MAX_ERROR else death.error[: _MAX_ERROR - 1] + "…"
            fields = self._fields(death, kept=kept)
            log.warning(
                "job %d %r in %r is %s after attempt %d/%d (%s): %s",
                job.id,
                job.kind,
                job.queue,
                "dead" if kept else "lost",
                fields["attempt"],
                job.max_attempts,
                death.reason,
                error,
                # An exception that was never raised, such as a timeout, has no traceback.
                exc_info=death.cause if isinstance(death.cause, BaseException) and death.cause.__traceback__ else None,
                extra=fields,
            )
            for listener in self._listeners:
                try:
                    arguments.done("the listener", listener(death))
                except (Exception, SystemExit):  # the thread goes on
                    log.exception("the listener %r failed at the death of %r", listener, job)

    def _fields(self, death: Death, *, kept: bool) -> dict[str, Any]:
        job = death.job
        leased = isinstance(job, LeasedJob)
        # The claim that found an exhausted job does not count as an attempt.
        no_attempt = kept and leased and death.reason is DeathReason.EXHAUSTED
        ran = job.ran if isinstance(job, LeasedJob) else None
        return {
            "job_id": job.id,
            "queue": job.queue,
            "kind": job.kind,
            "attempt": max(0, job.attempts - no_attempt),
            "max_attempts": job.max_attempts,
            "worker": self._worker(),
            "outcome": "dead",
            "reason": death.reason.value,
            **({} if ran is None else {"seconds": round(ran, 6)}),
        }
