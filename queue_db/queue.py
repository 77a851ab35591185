"""One queue: enqueue, claim, settle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from sqlalchemy import Connection

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import ATTEMPTS
from queue_db.dialects.borrowed import Using
from queue_db.errors import LeaseLostError
from queue_db.group_administration import GroupAdministration
from queue_db.leased_job import LeasedJob
from queue_db.model import (
    DeathReason,
    Job,
    OnDuplicate,
    ProgressReport,
    StoredResult,
    Verdict,
)
from queue_db.queue_administration import QueueAdministration
from queue_db.slices import load, type_hint
from queue_db.store import unique_key_ttl
from queue_db.store.portions import portions
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS, KEY_LENGTH, QUEUE_LENGTH, WORKER_LENGTH
from queue_db.verbs import new_jobs
from queue_db.verbs.claim import MAX_CLAIM, ClaimCall, ClaimLoop
from queue_db.verbs.claim_round import ClaimedBatch
from queue_db.verbs.enqueue import Enqueue
from queue_db.verbs.fenced_change import FencedChange, Kept
from queue_db.verbs.job_rows import popped
from queue_db.verbs.progress import report_progress
from queue_db.verbs.settle import (
    ADJUST_ATTEMPTS,
    BURY,
    CANCEL,
    DEFER,
    EXTEND,
    EXTEND_UNLOCKED,
    FAIL,
    RELEASE,
    SNOOZE,
    burials,
    complete_and_keep,
    completion,
    deferrals,
    failures,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.orm import Session
else:
    AsyncConnection = type_hint("sqlalchemy.ext.asyncio", "AsyncConnection")
    Session = type_hint("sqlalchemy.orm", "Session")

# The lease of popped jobs, microseconds. Its length does not matter: the transaction that leases the jobs also deletes them.
_POP_LEASE = 60_000_000


class Queue(QueueAdministration, GroupAdministration):
    """One queue: enqueue, claim, settle, inspect. Safe to share between threads; get it from :meth:`QueueDB.queue`."""

    def __init__(self, core: Core, name: str, db: Any) -> None:
        self.core = core
        self.name = name
        #: The :class:`~queue_db.QueueDB` of this queue.
        self.db = db
        self._builder = new_jobs.JobBuilder(name, core.codec, core.max_payload, core.schemas)
        self._enqueue = Enqueue(core, name)
        self._complete = completion(core.removal)
        self._claims = ClaimLoop(core, name, self._bury_exhausted)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self.core.database.url}>"

    # --- enqueue ----------------------------------------------------------------------------------------------------

    @overload
    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        delay: float = 0.0,
        run_at: datetime | None = None,
        priority: int = 0,
        unique_key: str | None = None,
        unique_for: float | None = None,
        on_duplicate: Literal["raise", "replace", "debounce"] = "raise",
        group: str | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | None = None,
        using: Using | None = None,
    ) -> int: ...

    @overload
    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        delay: float = 0.0,
        run_at: datetime | None = None,
        priority: int = 0,
        unique_key: str | None = None,
        unique_for: float | None = None,
        on_duplicate: OnDuplicate,
        group: str | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | None = None,
        using: Using | None = None,
    ) -> int | None: ...

    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        delay: float = 0.0,
        run_at: datetime | None = None,
        priority: int = 0,
        unique_key: str | None = None,
        unique_for: float | None = None,
        on_duplicate: OnDuplicate = "raise",
        group: str | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        headers: Mapping[str, Any] | None = None,
        using: Using | None = None,
    ) -> int | None:
        """Add a job and return its id. With ``on_duplicate="skip"`` return None if a live job has the key.

        :param delay: seconds until the job is due.
        :param run_at: when the job is due (aware datetime); if ``delay`` is also given, the later time counts.
        :param priority: jobs with a lower number are claimed first; with equal numbers, due time and then id decide.
        :param unique_key: at most one live job of this queue has this key, also with concurrent enqueues.
        :param unique_for: the key stays taken for this many seconds from now, even if the job is done earlier.
        :param on_duplicate: what to do if a live job has the key. ``raise``: raise an error. ``skip``: add no job. ``replace``: the
            live job keeps its row and id and gets the new content; a worker that runs the old job loses its lease. ``debounce``:
            as ``replace``, but a running job keeps its lease and loses its key, and the new job is added.
        :param group: jobs with the same group run in the order of their enqueues, one at a time, or as many as :meth:`limit`
            allows. A job that waits for its due time or its next attempt blocks the later jobs of its group.
        :param max_attempts: after this many failed attempts the job is dead.
        :param headers: a small mapping that JSON can store, for example for tracing.
        :param using: a Connection or Session: the job commits or rolls back with the caller's own data.
        :raises ArgumentError: an argument is out of range.
        :raises PayloadError: the payload cannot be stored, or does not fit the handler's schema.
        :raises DuplicateJobError: a live job has the key.
        """
        if self.core.header_provider is not None and (provided := self.core.headers()):
            headers = {**provided, **(headers or {})}
        job = self._builder.job(
            kind,
            payload,
            delay=delay,
            run_at=run_at,
            priority=priority,
            unique_key=unique_key,
            unique_for=unique_for,
            group=group,
            max_attempts=max_attempts,
            headers=headers,
        )
        return self._enqueue.one(job, on_duplicate, using)

    @overload
    def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: Literal["raise", "replace", "debounce"] = "raise",
        ids: Literal[True] = True,
        using: Using | None = None,
    ) -> list[int]: ...

    @overload
    def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate,
        ids: Literal[True] = True,
        using: Using | None = None,
    ) -> list[int | None]: ...

    @overload
    def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate = "raise",
        ids: Literal[False],
        using: Using | None = None,
    ) -> int: ...

    @overload
    def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate = "raise",
        ids: bool = True,
        using: Using | None = None,
    ) -> list[int] | list[int | None] | int: ...

    def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate = "raise",
        ids: bool = True,
        using: Using | None = None,
    ) -> list[int] | list[int | None] | int:
        """Add jobs from any iterable of ``(kind, payload)`` or ``(kind, payload, options)``; return their ids by position.

        ``options`` are the arguments of :meth:`enqueue` for one job. The iterable is read in chunks of 1000. One
        transaction adds all jobs or none. The id of a job that ``on_duplicate="skip"`` skipped is None.

        :param ids: False: return the number of jobs that were added or replaced another job, instead of their ids. On PostgreSQL
            this takes less time.
        """
        policy = new_jobs.policy(on_duplicate)
        number = None
        if type(jobs) in (list, tuple):
            # Copy the list, since the caller may change it. Reading the copy never waits, so a driver may read it during a load.
            jobs = tuple(jobs)
            number = len(jobs)
        read = partial(self._builder.chunks, jobs, self.core.headers())
        added = self._enqueue.many(read, policy, using, ids=ids, number=number)
        return list(added.ids) if ids else added.number

    @overload
    def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: Literal["raise"] = "raise",
        using: Using | None = None,
    ) -> tuple[int, list[int]]: ...

    @overload
    def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: Literal["raise", "skip"],
        using: Using | None = None,
    ) -> tuple[int, list[int | None]]: ...

    def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: Literal["raise", "skip"] = "raise",
        using: Using | None = None,
    ) -> tuple[int, list[int]] | tuple[int, list[int | None]]:
        """Add jobs as :meth:`enqueue_many` does, and a callback job that is enqueued when all these jobs have left the queue.

        The callback job is enqueued once, in the transaction in which the last job is completed, dies or is cancelled.
        Its headers count the jobs: ``{"batch": {"id": …, "jobs": …, "dead": …, "cancelled": …}}``. A redriven job counts once.

        :param then: the callback job; its ``options`` may be ``priority``, ``max_attempts`` and ``headers``.
        :param on_duplicate: ``raise`` or ``skip``; the batch does not wait for skipped jobs.
        :return: the batch's id, for :meth:`QueueDB.batch`, and the jobs' ids by position.
        """
        return self.core.groups.enqueue_batch(self._enqueue, self._builder, jobs, then, on_duplicate, using)

    def unique_key_holders(self, unique_keys: Iterable[str]) -> dict[str, int]:
        """The ids of the jobs that have taken these keys with ``unique_for``, by key. Free keys are left out.

        A job that is done may still hold its key.
        """
        keys = [arguments.name("unique_key", key, KEY_LENGTH) for key in arguments.members("unique_keys", unique_keys, "keys")]
        found: dict[str, int] = {}
        for some in portions(keys):
            found |= self.core.read("unique_key_ttl.holders", unique_key_ttl.holders, self.name, some)
        return found

    # --- claim ------------------------------------------------------------------------------------------------------

    def claim(self, limit: int = 1, lease: float = 60.0, *, delete: bool = False, worker: str | None = None) -> list[LeasedJob]:
        """Lease up to ``limit`` due jobs for ``lease`` seconds, lowest priority number first, then longest due.

        The list may be shorter than ``limit``, or empty. A claim that lost every candidate to other workers is repeated a few
        times, after short random pauses. If no repetition wins a job, the list is empty and the claim counts as ``contended``.

        :param delete: delete the jobs from the table, as :meth:`pop` does. Every verb of such a job returns LOST.
        :param worker: the worker name that the jobs show, for a program that claims on behalf of workers; default: ``db.worker``.
        """
        micros = arguments.seconds("lease", lease, zero=False)
        if worker is not None:
            arguments.name("worker", worker, WORKER_LENGTH)
        codec, claims, jobs = self.core.codec, self._claims, []
        for rows, token in claims.claim(ClaimCall(claims, limit, micros, delete, (), worker)):
            for row in rows:
                jobs.append(LeasedJob(row, self, codec, token, worker))  # noqa: PERF401 - faster for a single row
        return jobs

    def lease_from_token(self, job_id: int, version: int, token: str) -> LeasedJob:
        """Make the object of a leased job again, for example in another process. The version alone could be guessed.

        :raises LeaseLostError: the job is gone, or has another version or token: another worker may have it.
        """
        (job,) = self.leases_from_tokens([(job_id, version, token)])
        if job is None:
            raise LeaseLostError(job_id, version)
        return job

    def leases_from_tokens(self, leases: Iterable[tuple[int, int, str]]) -> list[LeasedJob | None]:
        """:meth:`lease_from_token` for many ``(id, version, token)`` in one read. None: the lease is lost, and counted as lost."""
        given = arguments.members("leases", leases, "leases: (id, version, token)")
        return self.core.administration.leases(self, given)

    def claim_if_idle(self, due: Iterable[str], limit: int, lease: float, *, delete: bool = False) -> list[LeasedJob]:
        """Claim as :meth:`claim` does, but claim nothing while a job is due in one of the queues ``due``.

        The statement of the claim also checks these queues. The check overlooks jobs of priorities that this process has not seen,
        jobs in queues with more than 32 priorities, and jobs beyond the first 16 priorities of these queues, counted in the order
        of ``due``. ``db.next_due`` finds these jobs too.
        """
        micros = arguments.seconds("lease", lease, zero=False)
        claims = self._claims
        return self._leased(claims.claim(ClaimCall(claims, limit, micros, delete, _queues("due", due))))

    def complete_and_claim(
        self, jobs: Sequence[LeasedJob], limit: int = 1, lease: float = 60.0, *, if_idle: Iterable[str] = ()
    ) -> tuple[list[Verdict], list[LeasedJob]]:
        """:meth:`complete_many`, then :meth:`claim`; return one verdict per completed job, and the jobs won.

        Both are one transaction on SQLite. On PostgreSQL they are one statement when the last claim won all that it wanted and the
        queue has one known priority. There are two exceptions: once a second a claim also looks for jobs below the low-water mark,
        and after waiting in vain for a locked row the two parts stay apart for 10 s. The two parts are always separate transactions
        on MySQL and MariaDB, for jobs with a group or a batch, with a removal that is not :class:`~queue_db.removal.Delete` itself,
        and on PostgreSQL with ``Pessimistic``. Only completion can be combined with a claim.

        Each part takes effect without the other. A lost lease does not prevent the claim. If the claim fails after the jobs have
        been completed, the list of jobs won is empty and the error is logged. So claim once more before you conclude that the queue
        is empty. A completed job whose lease was over may count as a miss of the claim.

        :param limit: the most jobs to claim; 0: only complete.
        :param lease: the length of the leases, seconds.
        :param if_idle: the same as ``due`` of :meth:`claim_if_idle`.
        :raises ArgumentError: ``jobs`` is not a list of leased jobs of this queue, or another argument is out of range.
        :raises StorageError: the completion failed, or there was nothing to complete and the claim failed. Nothing was won.
        """
        micros = arguments.seconds("lease", lease, zero=False)
        if type(limit) is not int or not 0 <= limit <= MAX_CLAIM:
            limit = arguments.whole("limit", limit, 0, MAX_CLAIM)
        others = [] if if_idle == () else _queues("if_idle", if_idle)
        if not limit:
            return self.complete_many(jobs), []
        change = FencedChange(self.core, self, self._complete, jobs)
        if not change.jobs:
            return [], self.claim_if_idle(others, limit, lease)
        claims = self._claims
        verdicts, won = claims.complete_and_claim(change, ClaimCall(claims, limit, micros, False, others))
        return verdicts, self._leased(won)

    def pop(self, limit: int = 1) -> list[Job]:
        """Claim up to ``limit`` due jobs and delete them in the same transaction: *at most once*.

        A crash after this call loses the jobs: use :meth:`pop` for work that is better skipped than done twice. A call needs one
        commit, while a claim and a completion need two.
        """
        won = self._claims.claim(ClaimCall(self._claims, limit, _POP_LEASE, True))
        return popped([row for rows, _ in won for row in rows], self.core.codec, queue=self.name, worker=self.core.worker)

    def _leased(self, won: Iterable[ClaimedBatch]) -> list[LeasedJob]:
        codec = self.core.codec
        return [LeasedJob(row, self, codec, token) for rows, token in won for row in rows]

    def _bury_exhausted(self, won: ClaimedBatch) -> None:
        self.bury_many(self._leased([won]), [row.exhaustion for row in won[0]], reason=DeathReason.EXHAUSTED)

    # --- settle -----------------------------------------------------------------------------------------------------

    def complete_many(
        self,
        jobs: Sequence[LeasedJob],
        *,
        using: Using | None = None,
        results: Sequence[StoredResult | None] | None = None,
    ) -> list[Verdict]:
        """Complete these jobs, in one or two statements; return one verdict per job.

        :param results: for each job, by position, the result that :meth:`QueueDB.finished` returns later, or None.
        """
        if results is not None:
            return complete_and_keep(self.core, self, self._complete, jobs, results, using)
        return FencedChange(self.core, self, self._complete, jobs).settle(using=using)

    def fail_many(
        self,
        jobs: Sequence[LeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        retry_in: float | Sequence[float | None] | None = None,
        last: Sequence[bool] | None = None,
    ) -> list[Verdict]:
        """Fail the attempts of these jobs, all with one error or each with its own.

        Jobs without attempts left go to the dead table.

        :param retry_in: seconds until the next attempt, one number for all jobs or one for each; None: the backoff decides.
        :param last: for each job, whether this was its last attempt; default: ``max_attempts`` of the job decides.
        """
        change = FencedChange(self.core, self, FAIL, jobs)
        return change.settle(failures(self.core, change.jobs, error, retry_in, last))

    def snooze_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        """Make these jobs due again in ``seconds``; the attempt is not counted."""
        delay = arguments.seconds("seconds", seconds)
        return FencedChange(self.core, self, SNOOZE, jobs).settle(delay)

    def release_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """Make these jobs due again now; the attempt is not counted."""
        return FencedChange(self.core, self, RELEASE, jobs).settle(self.name)

    def extend_many(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        """Extend the leases of these jobs to ``seconds`` from now; their versions go up by one."""
        lease = Kept(arguments.seconds("seconds", seconds, zero=False))
        return FencedChange(self.core, self, EXTEND, jobs).settle(lease)

    def extend_unlocked(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict | None]:
        """:meth:`extend_many` without retries and waits for locks; the verdict None: another transaction has locked the row."""
        lease = Kept(arguments.seconds("seconds", seconds, zero=False))
        change = FencedChange(self.core, self, EXTEND_UNLOCKED, jobs)
        verdicts = zip(change.jobs, change.settle(lease), strict=True)
        return [None if not verdict and job.id in lease.locked else verdict for job, verdict in verdicts]

    def adjust_attempts(self, jobs: Sequence[LeasedJob], by: int) -> list[Verdict]:
        """Add ``by`` to the attempts of leased jobs, which a worker delays. They stay leased; their versions go up by one."""
        return FencedChange(self.core, self, ADJUST_ATTEMPTS, jobs).settle(Kept(by))

    def cancel_many(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """Cancel these jobs: they leave the queue."""
        return FencedChange(self.core, self, CANCEL, jobs).settle()

    def bury_many(
        self,
        jobs: Sequence[LeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        reason: DeathReason = DeathReason.REJECTED,
    ) -> list[Verdict]:
        """Send these jobs to the dead table, all with one error text or each with its own.

        :param reason: the reason of the deaths that log records, events and metrics show.
        """
        change = FencedChange(self.core, self, BURY, jobs)
        return change.settle(burials(change.jobs, error, reason))

    def retry_unknown_kinds(self, jobs: Sequence[LeasedJob], error: BaseException | str, *, grace: float) -> list[Verdict]:
        """Give back jobs whose kinds have no handler in this worker; the attempt is not counted.

        Another worker may have a handler, so the jobs become due again: at first after a second, later after up to a minute. A job
        without a handler ``grace`` seconds after it was first given back goes to the dead table, with ``error`` as the text.
        """
        micros = arguments.seconds("grace", grace)
        change = FencedChange(self.core, self, DEFER, jobs)
        return change.settle(deferrals(change.jobs, error, micros))

    def progress_of(self, job: LeasedJob, report: ProgressReport) -> Verdict:
        """Write the progress of a leased job at once. Outside a worker, :meth:`LeasedJob.progress` calls this method."""
        found = report_progress(self.core, {job: report}, attempts=ATTEMPTS)
        return Verdict.APPLIED if found else Verdict.LOST

    def records_of(self, job: LeasedJob) -> Any:
        """Where the steps of a leased job are kept."""
        return load("steps.records", "records_of")(self.core, job)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction for ``using=``: committed at the end of the block, rolled back if the block raises."""
        self.core.ready()
        with self.core.database.begin("transaction") as connection:
            yield connection

    def transaction_on_loop(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction as by :meth:`transaction`, for a handler that is a coroutine, on a connection of the handler's loop."""
        self.core.ready()
        return self.core.on_loops.transaction()


def _queues(what: str, names: Iterable[str]) -> list[str]:
    # Check the names before anything runs: a driver would refuse a wrong name only in the claim, after the jobs were completed.
    return [arguments.name(what, name, QUEUE_LENGTH) for name in arguments.members(what, names, "queue names")]
