"""Messages of a feed as jobs: the job that a handler gets for a message, and how its outcome settles the message."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection

from queue_db import arguments
from queue_db.db import QueueDB
from queue_db.dialects.borrowed import Using
from queue_db.errors import ConfigurationError
from queue_db.feeds import Message, Span
from queue_db.feeds.shared import Failure
from queue_db.feeds.store.messages import MessageRow
from queue_db.leased_job import UNREAD, LeasedJob, claimant
from queue_db.model import ClaimedRow, DeathReason, ProgressReport, Verdict
from queue_db.notifications.deaths import Death
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS
from queue_db.verbs.settle import backoff_of, error_text
from queue_db.worker import completer
from queue_db.worker.completer import JobResult, Unknown

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy.ext.asyncio import AsyncConnection


# The most attempts of a message, including the attempts of the job that it becomes.
_MOST = DEFAULT_MAX_ATTEMPTS

# Outcomes that do not complete a message.
_NOT_COMPLETED = (BaseException, Snooze, Retry, Cancel, Dead, Unknown)


class LeasedMessage(LeasedJob):
    """A message as the job that a handler gets. Its id is the message's number."""

    __slots__ = ()

    def __init__(self, message: MessageRow, source: MessageSource) -> None:
        # LeasedJob.__init__ is not called, to save time: a span has hundreds of messages, and most of their values are the same.
        span, ends, (number, kind, payload, headers, key, _, at) = source.span, source.lease_ends, message
        columns = (number, kind, payload, headers, 0, ends, at, span.version, span.attempts, _MOST, None, at, None, key, None)
        self._row = ClaimedRow._make(columns)
        self._limit = None
        self._codec = source.codec
        self._payload = UNREAD
        self._lost = []
        self._report_to = None
        self._claimed_at = None
        self.worker = None
        self.queue = source.name
        self.id = number
        self.source = source
        self.token = source.fence
        self.version = span.version
        self.has_dependents = False
        self.lease_ends = ends
        self.settled = False
        self.settled_by = None
        self.unconfirmed = None
        self.dead = False
        self.misfit = None
        self.ran = None
        self.claimant = source.claimant

    def rolled_back(self) -> None:
        """Tell that the transaction of ``complete(using=…)`` was rolled back."""
        super().rolled_back()
        cast("MessageSource", self.source).settled.discard(self.id)


class MessageSource:
    """Settles the messages of a span one by one, for the verbs of the jobs that handlers get.

    :param name: feed and cursor, as the jobs show it.
    """

    def __init__(self, span: Span, name: str, db: QueueDB) -> None:
        self.name = name
        self.db = db
        self.core = db.core
        self.span = span
        #: Whether messages may be unsettled although each has a result. A handler may have settled one in a transaction that was
        #: rolled back, or results could not be reported.
        self.used = False
        #: The end of the lease by the database's clock, microseconds.
        self.lease_ends = 0
        self.fence = span.fence
        self.codec = db.core.codec
        self.claimant = claimant()
        #: Numbers of the messages that their handlers have settled, or settle now.
        self.settled: set[int] = set()
        self._messages = {message.seq: message for message in span.messages}
        self._began = time.monotonic()

    def __repr__(self) -> str:
        return repr(self.span)

    def extended(self, at: float, lease: float) -> None:
        """The lease ends ``lease`` seconds after ``at``, by ``time.monotonic``."""
        self.lease_ends = self.span.claimed_after + round((at - self._began + lease) * 1_000_000)

    def job(self, message: Message) -> LeasedMessage:
        """The message as a job."""
        return LeasedMessage(message.row, self)

    def message(self, job: LeasedJob) -> Message:
        """The message that a handler got as this job."""
        return self._messages[job.id]

    def failure(self, done: JobResult) -> tuple[str, Failure | None]:
        """The verb for this outcome, and the job that the message becomes; None: it becomes no job."""
        if not isinstance(done.outcome, _NOT_COMPLETED):
            return "complete", None
        done, verb, detail = completer.name_of_verb(done)
        job, message = done.job, self._messages[done.job.id]
        most = job.max_attempts
        match verb:
            case "snooze":
                return verb, Failure(message, None, arguments.seconds("seconds", detail), max_attempts=most)
            case "defer":
                return verb, Failure(message, None)  # a handler of all kinds has no say in the attempts of an unknown one
            case "bury":
                return verb, Failure(message, completer.reason_of(done.outcome), attempted=True, dead=True, max_attempts=most)
            case "fail":
                return verb, self._failed(job, completer.reason_of(done.outcome), completer.retry_in(done))
        return verb, None

    def _failed(self, job: LeasedJob, error: BaseException | str, retry_in: float | None) -> Failure:
        most = job.max_attempts
        dead = most <= 1 or retry_in == math.inf  # its handler gives up
        after = backoff_of(self.core, 1, job) if dead or retry_in is None else arguments.seconds("retry_in", retry_in)
        return Failure(self._messages[job.id], error, after, attempted=True, dead=dead, max_attempts=most)

    def died(self, job: LeasedJob, error: BaseException | str, reason: DeathReason) -> None:
        """Report that a message has become a dead job."""
        job.dead = True
        self.db.deaths.record([Death(job, reason, error_text(error), error, self.span.cursor.queue)])

    # --- verbs of the jobs --------------------------------------------------------------------------------------------

    def complete_many(self, jobs: Sequence[LeasedJob], *, using: Using | None = None) -> list[Verdict]:
        """Settle the messages; they do not become jobs."""
        return [self._settle(job, "complete", using=using) for job in jobs]

    def cancel_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """Settle the messages; they do not become jobs."""
        return [self._settle(job, "cancel") for job in jobs]

    def fail_many(self, jobs: Sequence[LeasedJob], error: BaseException | str, *, retry_in: float | None = None) -> list[Verdict]:
        """Turn the messages into jobs with one attempt counted; without attempts left into dead jobs."""
        return [self._settle(job, "fail", self._failed(job, error, retry_in)) for job in jobs]

    def snooze_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        """Turn the messages into jobs that are due later."""
        after = arguments.seconds("seconds", seconds)
        return [
            self._settle(job, "snooze", Failure(self._messages[job.id], None, after, max_attempts=job.max_attempts)) for job in jobs
        ]

    def release_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """Turn the messages into jobs that are due now."""
        return [self._settle(job, "release", Failure(self._messages[job.id], None, max_attempts=job.max_attempts)) for job in jobs]

    def bury_many(self, jobs: Sequence[LeasedJob], error: BaseException | str) -> list[Verdict]:
        """Turn the messages into dead jobs."""
        return [
            self._settle(
                job, "bury", Failure(self._messages[job.id], error, attempted=True, dead=True, max_attempts=job.max_attempts)
            )
            for job in jobs
        ]

    def extend_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        """Extend the lease of the span."""
        return [self.span.extend(seconds) for _ in jobs]

    def progress_of(self, job: LeasedJob, report: ProgressReport) -> Verdict:
        """Ignore the progress: messages have no column for it."""
        return Verdict.LOST if job.settled else Verdict.APPLIED

    def records_of(self, job: LeasedJob) -> Any:
        """Refuse: a message is not leased by itself, so that nothing could be stored under its fence."""
        raise ConfigurationError(f"{job!r} is a message, which has no steps: let a route or feed.forward make a job of it")

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction for a handler's own SQL."""
        with self.core.database.begin("transaction") as connection:
            yield connection

    def transaction_on_loop(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """The same for a handler that is a coroutine."""
        return self.core.on_loops.transaction()

    def _settle(self, job: LeasedJob, verb: str, failure: Failure | None = None, *, using: Any = None) -> Verdict:
        self.used = True
        self.settled.add(job.id)
        verdict = Verdict.LOST
        try:
            verdict = self.span.settle([job.id] if failure is None else [], [] if failure is None else [failure], using=using)
        finally:
            if not verdict and not job.settled:
                self.settled.discard(job.id)
        if verdict:
            job.settled, job.settled_by = True, verb
            job.unconfirmed = None if using is None else _confirmed
            if failure is not None and failure.dead and failure.error is not None:
                self.died(job, failure.error, DeathReason.REJECTED if verb == "bury" else DeathReason.FAILED)
        return verdict


def _confirmed() -> None:
    """Count nothing: the verbs of messages are not counted."""
