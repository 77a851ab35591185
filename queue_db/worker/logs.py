"""What a worker logs: the fields of records about jobs, the line of its start, and outages.

While the database does not answer, all threads of a worker fail. Such an outage has one log line at its start, one each minute,
and one at its end.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from queue_db import __version__
from queue_db.errors import QueueDBError, StorageError
from queue_db.leased_job import LeasedJob
from queue_db.queue import Queue

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

#: The job whose handler runs in this thread or task. The handler's own log lines get the fields of this job.
current: ContextVar[LeasedJob | None] = ContextVar("queue_db_job", default=None)


def about(job: LeasedJob, outcome: str | None = None, seconds: float | None = None) -> dict[str, Any]:
    """The fields of a log record about a job; ``outcome`` and ``seconds`` only if they are known. The payload is never logged.

    :param outcome: a value of :class:`queue_db.worker.events.EventType`.
    :param seconds: how long the job's handler ran.
    """
    queue: Queue = job.source  # type: ignore[assignment]
    fields = {"job_id": job.id, "queue": job.queue, "kind": job.kind, "attempt": job.attempts, "worker": queue.db.worker}
    if outcome is not None:
        fields["outcome"] = str(outcome)
    if seconds is not None:
        fields["seconds"] = round(seconds, 6)
    return fields


def described(worker: Worker) -> tuple[str, dict[str, Any]]:
    """Describe a worker for the log line of its start, as text and as fields. The database's URL is without its password."""
    options, kinds = worker.options, worker.handlers.shown()
    fields = {
        "version": __version__,
        "worker": worker.db.worker,
        "database": worker.db.url,
        "queues": dict(options.limits),
        "feeds": dict(options.feeds),
        "kinds": kinds,
        "slots": options.slots,
        "mode": options.mode,
        "lease": options.lease,
        "strategy": worker.db.strategy.name,
    }
    text = (
        f"{options.names}: {options.slots} at once, {options.mode.replace('_', ' ')}, lease {options.lease:g} s, "
        f"strategy {worker.db.strategy.name}, kinds {', '.join(kinds)}; "
        f"{worker.db.url}, queue_db {__version__}, pid {os.getpid()}"
    )
    return text, fields


#: Seconds between two log lines about one outage.
REPEAT = 60.0


@dataclass(slots=True)
class _Outage:
    since: float
    logged_at: float
    #: The activities that have failed and have not succeeded since.
    failing: set[Activity] = field(default_factory=set)


class Outages:
    """The outages of one database, for all workers of a process. An :class:`Activity` joins an outage when it fails.

    :param clock: returns the time in seconds; tests replace it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.going_on: dict[object, _Outage] = {}


class Activity:
    """Logs the failures of one part of a worker: a thread, a maintenance task or a slot for feeds. Any thread may report them."""

    def __init__(self, outages: Outages | None = None) -> None:
        self._outages = outages or Outages()
        #: Whether no statement has succeeded since the last failure.
        self.fails = False
        self._over = False
        # When :meth:`failed_rarely` last logged each kind of failure.
        self._logged_at: dict[object, float] = {}

    def failed(self, what: str, error: BaseException, wait: float, extra: dict[str, Any] | None = None) -> None:
        """Log that ``what`` failed, unless this outage has been logged within :data:`REPEAT`, by any activity.

        :param wait: seconds until the next try.
        """
        now = self._outages.clock()
        with self._outages.lock:
            if self._over:
                return  # nothing would end the outage
            outage = self._outages.going_on.setdefault(_outage_of(self, error), _Outage(now, -math.inf))
            outage.failing.add(self)
            first, again = outage.logged_at < outage.since, now - outage.logged_at >= REPEAT
            if again:
                outage.logged_at = now
        # One line is enough for a QueueDBError. Any other error is a mistake in the code and needs its traceback.
        expected = isinstance(error, QueueDBError)
        level = logging.WARNING if expected else logging.ERROR
        trace = None if expected else error
        if first:
            log.log(level, "%s failed, trying again: %s", what, error, exc_info=trace, extra=extra)
        elif again:
            log.log(level, "%s still fails, for %.0f s by now: %s", what, now - outage.since, error, exc_info=trace, extra=extra)
        else:
            log.debug("%s failed, trying again in %.1f s: %s", what, wait, error, extra=extra)
        # Set last. Otherwise another thread's success could reset this flag before the activity joins the outage.
        self.fails = True

    def failed_rarely(self, what: str, error: BaseException) -> None:
        """Log that ``what`` failed, unless an outage is logged already, or the same failure was logged within :data:`REPEAT`.

        Tasks that run rarely take no part in outages, because they would report the end of an outage too late.
        """
        if self._over:
            log.debug("%s was interrupted by the end of the worker: %s", what, error)
            return
        now, kind = self._outages.clock(), _kind_of(error)
        logged = _outage_of(self, error) in self._outages.going_on or now - self._logged_at.get(kind, -math.inf) < REPEAT
        if not logged:
            self._logged_at[kind] = now
        log.log(logging.DEBUG if logged else logging.WARNING, "%s failed: %s", what, error)

    def worked(self) -> None:
        """Note that a statement succeeded. Called after each statement: without an outage it costs nothing."""
        if self.fails:
            self.fails = False
            ended = self._leave()
            if ended:
                log.warning("back again after %.0f s", max(ended))

    def gave_up(self) -> None:
        """Note that there is no next try, so that no success need follow. The activity goes on, and may fail again."""
        self._leave()

    def ended(self) -> None:
        """Note that the run ends. A task may still be running: from now on its failures start no outage and log no warning."""
        self._over = True
        self._leave()

    def _leave(self) -> list[float]:
        """Leave all outages; end those in which no other activity fails, and return how many seconds each of these lasted."""
        now = self._outages.clock()
        ended: list[float] = []
        with self._outages.lock:
            for key, outage in list(self._outages.going_on.items()):
                outage.failing.discard(self)
                if not outage.failing:
                    del self._outages.going_on[key]
                    ended.append(now - outage.since)
        return ended


def _outage_of(activity: Activity, error: BaseException) -> object:
    """The key of the outage to which an error belongs. If the server is away, this is None, for the outage of all activities.

    Any other error, such as a lock timeout, concerns this activity and this kind of failure only.
    """
    return None if isinstance(error, StorageError) and error.server_away else (activity, _kind_of(error))


def _kind_of(error: BaseException) -> object:
    return type(error), error.sqlstate if isinstance(error, StorageError) else None


@lru_cache(maxsize=64)
def outages_of(url: str) -> Outages:
    """The outages of this database in this process."""
    return Outages()
