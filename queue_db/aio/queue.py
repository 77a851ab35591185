# Generated from queue_db/queue.py, queue_db/queue_administration.py, queue_db/group_administration.py.
# Do not change it: `make aio` writes it anew.
"""Queue for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from sqlalchemy.ext.asyncio import AsyncConnection

from queue_db.aio.bases import QueueTwin, settled
from queue_db.aio.leased import AsyncLeasedJob
from queue_db.concurrency.greenlets import joined, run, within
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.model import (
    UNCHANGED,
    Controls,
    DeathReason,
    GroupLimit,
    Job,
    OnDuplicate,
    PresentState,
    State,
    StoredResult,
    Unchanged,
    Verdict,
)
from queue_db.slices import type_hint
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS

if TYPE_CHECKING:
    from queue_db.monitoring.model import JobPage, QueueStats
else:
    JobPage = type_hint("queue_db.monitoring.model", "JobPage")
    QueueStats = type_hint("queue_db.monitoring.model", "QueueStats")


class AsyncQueue(QueueTwin):
    """One queue: enqueue, claim, settle, inspect. For the tasks of one event loop; get it from :meth:`AsyncQueueDB.queue`."""

    @overload
    async def enqueue(
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
        using: AsyncUsing | None = None,
    ) -> int: ...

    @overload
    async def enqueue(
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
        using: AsyncUsing | None = None,
    ) -> int | None: ...

    async def enqueue(
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
        using: AsyncUsing | None = None,
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
        :param using: an AsyncConnection or AsyncSession: the job commits or rolls back with the caller's own data.
        :raises ArgumentError: an argument is out of range.
        :raises PayloadError: the payload cannot be stored, or does not fit the handler's schema.
        :raises DuplicateJobError: a live job has the key.
        """
        return await run(
            self._sync.enqueue,
            kind,
            payload,
            delay=delay,
            run_at=run_at,
            priority=priority,
            unique_key=unique_key,
            unique_for=unique_for,
            on_duplicate=on_duplicate,
            group=group,
            max_attempts=max_attempts,
            headers=headers,
            using=joined(using),
        )

    @overload
    async def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: Literal["raise", "replace", "debounce"] = "raise",
        ids: Literal[True] = True,
        using: AsyncUsing | None = None,
    ) -> list[int]: ...

    @overload
    async def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate,
        ids: Literal[True] = True,
        using: AsyncUsing | None = None,
    ) -> list[int | None]: ...

    @overload
    async def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate = "raise",
        ids: Literal[False],
        using: AsyncUsing | None = None,
    ) -> int: ...

    @overload
    async def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate = "raise",
        ids: bool = True,
        using: AsyncUsing | None = None,
    ) -> list[int] | list[int | None] | int: ...

    async def enqueue_many(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        *,
        on_duplicate: OnDuplicate = "raise",
        ids: bool = True,
        using: AsyncUsing | None = None,
    ) -> list[int] | list[int | None] | int:
        """Add jobs from any iterable of ``(kind, payload)`` or ``(kind, payload, options)``; return their ids by position.

        ``options`` are the arguments of :meth:`enqueue` for one job. The iterable is read in chunks of 1000. One
        transaction adds all jobs or none. The id of a job that ``on_duplicate="skip"`` skipped is None.

        :param ids: False: return the number of jobs that were added or replaced another job, instead of their ids. On PostgreSQL
            this takes less time.
        """
        return await run(self._sync.enqueue_many, jobs, on_duplicate=on_duplicate, ids=ids, using=joined(using))

    @overload
    async def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: Literal["raise"] = "raise",
        using: AsyncUsing | None = None,
    ) -> tuple[int, list[int]]: ...

    @overload
    async def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: Literal["raise", "skip"],
        using: AsyncUsing | None = None,
    ) -> tuple[int, list[int | None]]: ...

    async def enqueue_batch(
        self,
        jobs: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]],
        then: tuple[str, Any] | tuple[str, Any, Mapping[str, Any]],
        *,
        on_duplicate: Literal["raise", "skip"] = "raise",
        using: AsyncUsing | None = None,
    ) -> tuple[int, list[int]] | tuple[int, list[int | None]]:
        """Add jobs as :meth:`enqueue_many` does, and a callback job that is enqueued when all these jobs have left the queue.

        The callback job is enqueued once, in the transaction in which the last job is completed, dies or is cancelled.
        Its headers count the jobs: ``{"batch": {"id": …, "jobs": …, "dead": …, "cancelled": …}}``. A redriven job counts once.

        :param then: the callback job; its ``options`` may be ``priority``, ``max_attempts`` and ``headers``.
        :param on_duplicate: ``raise`` or ``skip``; the batch does not wait for skipped jobs.
        :return: the batch's id, for :meth:`QueueDB.batch`, and the jobs' ids by position.
        """
        return await run(self._sync.enqueue_batch, jobs, then, on_duplicate=on_duplicate, using=joined(using))

    async def unique_key_holders(self, unique_keys: Iterable[str]) -> dict[str, int]:
        """The ids of the jobs that have taken these keys with ``unique_for``, by key. Free keys are left out.

        A job that is done may still hold its key.
        """
        return await run(self._sync.unique_key_holders, unique_keys)

    async def claim(
        self, limit: int = 1, lease: float = 60.0, *, delete: bool = False, worker: str | None = None
    ) -> list[AsyncLeasedJob]:
        """Lease up to ``limit`` due jobs for ``lease`` seconds, lowest priority number first, then longest due.

        The list may be shorter than ``limit``, or empty. A claim that lost every candidate to other workers is repeated a few
        times, after short random pauses. If no repetition wins a job, the list is empty and the claim counts as ``contended``.

        :param delete: delete the jobs from the table, as :meth:`pop` does. Every verb of such a job returns LOST.
        :param worker: the worker name that the jobs show, for a program that claims on behalf of workers; default: ``db.worker``.
        """
        found = await run(self._sync.claim, limit, lease, delete=delete, worker=worker)
        return [AsyncLeasedJob(each, self) for each in found]

    async def lease_from_token(self, job_id: int, version: int, token: str) -> AsyncLeasedJob:
        """Make the object of a leased job again, for example in another process. The version alone could be guessed.

        :raises LeaseLostError: the job is gone, or has another version or token: another worker may have it.
        """
        found = await run(self._sync.lease_from_token, job_id, version, token)
        return AsyncLeasedJob(found, self)

    async def leases_from_tokens(self, leases: Iterable[tuple[int, int, str]]) -> list[AsyncLeasedJob | None]:
        """:meth:`lease_from_token` for many ``(id, version, token)`` in one read. None: the lease is lost, and counted as lost."""
        found = await run(self._sync.leases_from_tokens, leases)
        return [None if each is None else AsyncLeasedJob(each, self) for each in found]

    async def complete_and_claim(
        self, jobs: Sequence[AsyncLeasedJob], limit: int = 1, lease: float = 60.0, *, if_idle: Iterable[str] = ()
    ) -> tuple[list[Verdict], list[AsyncLeasedJob]]:
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
        found = await run(self._sync.complete_and_claim, settled(jobs), limit, lease, if_idle=if_idle)
        return found[0], [AsyncLeasedJob(each, self) for each in found[1]]

    async def pop(self, limit: int = 1) -> list[Job]:
        """Claim up to ``limit`` due jobs and delete them in the same transaction: *at most once*.

        A crash after this call loses the jobs: use :meth:`pop` for work that is better skipped than done twice. A call needs one
        commit, while a claim and a completion need two.
        """
        return await run(self._sync.pop, limit)

    async def complete_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
        *,
        using: AsyncUsing | None = None,
        results: Sequence[StoredResult | None] | None = None,
    ) -> list[Verdict]:
        """Complete these jobs, in one or two statements; return one verdict per job.

        :param results: for each job, by position, the result that :meth:`QueueDB.finished` returns later, or None.
        """
        return await run(self._sync.complete_many, settled(jobs), using=joined(using), results=results)

    async def fail_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
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
        return await run(self._sync.fail_many, settled(jobs), error, retry_in=retry_in, last=last)

    async def snooze_many(self, jobs: Sequence[AsyncLeasedJob], seconds: float) -> list[Verdict]:
        """Make these jobs due again in ``seconds``; the attempt is not counted."""
        return await run(self._sync.snooze_many, settled(jobs), seconds)

    async def release_many(self, jobs: Sequence[AsyncLeasedJob]) -> list[Verdict]:
        """Make these jobs due again now; the attempt is not counted."""
        return await run(self._sync.release_many, settled(jobs))

    async def extend_many(self, jobs: Sequence[AsyncLeasedJob], seconds: float) -> list[Verdict]:
        """Extend the leases of these jobs to ``seconds`` from now; their versions go up by one."""
        return await run(self._sync.extend_many, settled(jobs), seconds)

    async def cancel_many(self, jobs: Sequence[AsyncLeasedJob]) -> list[Verdict]:
        """Cancel these jobs: they leave the queue."""
        return await run(self._sync.cancel_many, settled(jobs))

    async def bury_many(
        self,
        jobs: Sequence[AsyncLeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        reason: DeathReason = DeathReason.REJECTED,
    ) -> list[Verdict]:
        """Send these jobs to the dead table, all with one error text or each with its own.

        :param reason: the reason of the deaths that log records, events and metrics show.
        """
        return await run(self._sync.bury_many, settled(jobs), error, reason=reason)

    async def retry_unknown_kinds(
        self, jobs: Sequence[AsyncLeasedJob], error: BaseException | str, *, grace: float
    ) -> list[Verdict]:
        """Give back jobs whose kinds have no handler in this worker; the attempt is not counted.

        Another worker may have a handler, so the jobs become due again: at first after a second, later after up to a minute. A job
        without a handler ``grace`` seconds after it was first given back goes to the dead table, with ``error`` as the text.
        """
        return await run(self._sync.retry_unknown_kinds, settled(jobs), error, grace=grace)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction for ``using=``: committed at the end of the block, rolled back if the block raises."""
        async with within(self._sync.transaction()) as connection:
            yield connection

    async def get(self, job_id: int) -> Job:
        """The job as it is now, live or dead.

        :raises JobNotFoundError: the job was completed, cancelled or purged, or never existed.
        """
        return await run(self._sync.get, job_id)

    async def peek(self, limit: int = 10) -> list[Job]:
        """The due jobs, in claim order, without claiming them."""
        return await run(self._sync.peek, limit)

    async def jobs(
        self,
        state: PresentState | State,
        *,
        kind: str | None = None,
        group: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """A page of the jobs in one state: ``available``, ``scheduled``, ``blocked``, ``running`` or ``dead``.

        Live jobs come in the order of claims (priority, due time, id), or by id if ``group`` is given. Dead jobs come in the
        order of their deaths. A running job is due when its lease ends. One page reads at most 1,000 entries of an index, however
        many jobs there are. Therefore some pages have fewer jobs than ``limit``, or none, although more jobs follow: pages of
        scheduled or running jobs, and pages by ``kind`` or ``group``. A job that changes between two pages may be left out or come
        twice.

        :param kind: only jobs of this kind.
        :param group: only jobs of this group.
        :param after: the ``after`` of the previous page; the form of this text may change with the version of the package.
        :param limit: most jobs of the page, 1 to 1,000.
        :raises ArgumentError: there is no such state, or ``after`` is from a page of another state or group.
        """
        return await run(self._sync.jobs, state, kind=kind, group=group, after=after, limit=limit)

    async def stats(self, *, most: int | None = None) -> QueueStats:
        """Counts by state and kind, and the age of the oldest due job. Reads the whole queue.

        :param most: count at most this many jobs of each state. This takes milliseconds, however many jobs there are. ``capped``
            names the states that may have more jobs. In a queue with more than 32 priorities only the first 32 are counted.
        """
        return await run(self._sync.stats, most=most)

    async def reschedule(
        self,
        job_id: int,
        *,
        run_at: datetime | None = None,
        delay: float | None = None,
        priority: int | None = None,
        version: int | None = None,
    ) -> Verdict:
        """Give a waiting job another due time or priority. A job that waits for its next attempt can be rescheduled too.

        A time in the past, such as ``delay=0``, makes the job due now; a job that is already due keeps its place. A due job that
        gets another priority counts as due since now. The job's version goes up by one. In a group only the first jobs have a due
        time. The jobs behind them stay blocked until their turn; only their priority can be changed.

        :param run_at: when the job is due (aware datetime); if ``delay`` is also given, the later time counts.
        :param delay: seconds until the job is due.
        :param priority: jobs with a lower number are claimed first.
        :param version: change the job only if it still has this version.
        :return: LOST: the job has another version, or it was changed during each of five tries.
        :raises ArgumentError: neither a time nor a priority is given.
        :raises JobNotFoundError: there is no such live job.
        :raises JobStateError: the job is running, or the job is blocked in its group and a time was given.
        """
        return await run(self._sync.reschedule, job_id, run_at=run_at, delay=delay, priority=priority, version=version)

    async def pause(self, *, wait: float | None = None) -> bool:
        """Stop all workers from claiming from this queue until :meth:`resume`, also across restarts.

        :param wait: the most seconds to wait until no job of the queue runs. Workers notice the pause within 1.5 s, so the queue is
            at rest when no job has run for 1.5 s. The call may take 1.5 s longer than ``wait``.
        :return: whether no job runs; True if ``wait`` is not given.
        """
        return await run(self._sync.pause, wait=wait)

    async def resume(self) -> None:
        """Let workers claim from this queue again."""
        await run(self._sync.resume)

    async def limit(
        self,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate: int | Unchanged | None = UNCHANGED,
        per: float | Unchanged | None = UNCHANGED,
        per_group: int | Unchanged | None = UNCHANGED,
    ) -> None:
        """Change limits of this queue, for all workers together. A limit that is not given stays; None removes it.

        ``limit(concurrency=None, rate=None, per_group=None)`` removes all limits. :meth:`controls` reads them. Workers, claims by
        REST and Spark drains obey ``concurrency`` and ``rate`` within 1.5 s; a program's own :meth:`claim` ignores them.

        :param concurrency: the most jobs that run at once.
        :param rate: the most jobs that start in ``per`` seconds. After an idle time ``rate`` jobs may start at once.
        :param per: the seconds of ``rate``; None: one second, as for a queue that had no rate.
        :param per_group: the most jobs of one group that run at once, without a limit one. Every claim obeys it.
        :raises ArgumentError: no limit is given, a limit is out of range, or ``per`` is given and the queue has no rate.
        """
        await run(self._sync.limit, concurrency=concurrency, rate=rate, per=per, per_group=per_group)

    async def controls(self) -> Controls:
        """The pause and the limits of this queue."""
        return await run(self._sync.controls)

    async def cancel(self, job_id: int, *, version: int | None = None) -> Verdict:
        """Cancel a live job in any state. A worker that runs the job loses its lease.

        :param version: cancel the job only if it still has this version.
        :return: LOST: the job has another version, a stream holds the job and cannot give it back, or the job was changed during
            each of five tries.
        :raises JobNotFoundError: there is no such live job.
        """
        return await run(self._sync.cancel, job_id, version=version)

    async def purge(self, *, using: AsyncUsing | None = None) -> int:
        """Delete all due, scheduled and blocked jobs, in portions; return the number of deleted jobs. Running jobs stay.

        :param using: a transaction of yours, in which all are deleted at once.
        """
        return await run(self._sync.purge, using=joined(using))

    async def fair(self, enabled: bool = True, *, weights: Mapping[str, int] | None = None) -> None:
        """Let claims take turns among the groups that have due jobs: each group has one job in a turn, or as many as its weight.

        The jobs of a group in a fair queue do not wait for each other; a group is a tenant, a customer or a host. Priorities come
        first, and groups take turns within a priority. Claims of all kinds obey, other processes within a second. Jobs without a
        group are taken when no other is due, and by one claim in 64.

        :param enabled: False: the queue is as any other again, after two seconds, in which processes learn it. Its jobs that wait
            stay due; groups order those that are added.
        :param weights: the weights of some groups, 1 to 1,000; those of other groups stay. 1 is the weight of all others.
        :raises ArgumentError: an argument is out of range.
        """
        await run(self._sync.fair, enabled, weights=weights)

    async def limit_groups(
        self,
        *,
        group: str | None = None,
        prefix: str | None = None,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate: int | Unchanged | None = UNCHANGED,
        per: float | Unchanged | None = UNCHANGED,
    ) -> None:
        """Change limits of the groups of a fair queue, over all workers. A limit that is not given stays; None removes it.

        Without ``group`` and ``prefix`` it is the limit of each group that has none of its own. All claims obey, in other processes
        within a second. No job is above a limit while its lease lasts.

        :param group: limit this group.
        :param prefix: a limit that all groups share whose names begin so, beside those of the groups.
        :param concurrency: the most jobs that run at once.
        :param rate: the most jobs that start in ``per`` seconds. After an idle time ``rate`` jobs may start at once.
        :param per: the seconds of ``rate``; None: one second.
        :raises ArgumentError: the queue is not fair, no limit is given, or an argument is out of range.
        """
        await run(self._sync.limit_groups, group=group, prefix=prefix, concurrency=concurrency, rate=rate, per=per)

    async def group_limits(self) -> list[GroupLimit]:
        """The weights and limits of groups that :meth:`fair` and :meth:`limit_groups` have set."""
        return await run(self._sync.group_limits)

    async def repair_groups(self) -> int:
        """Unblock the groups of this queue whose next job waits for no other job; return the number of groups.

        A group gets into this state when one of its jobs is deleted by hand. Workers call this method once a minute.
        """
        return await run(self._sync.repair_groups)
