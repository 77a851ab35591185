"""A job in a task's hands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from queue_db.aio.database import Turn
from queue_db.aio.running import joined, run, within
from queue_db.leased_job import JobData, LeasedJob
from queue_db.model import Verdict
from queue_db.outcomes import Outcome

if TYPE_CHECKING:
    from queue_db.aio.queue import AsyncQueue


class AsyncLeasedJob(JobData):
    """A claimed job: its data, and the verbs that settle it.

    Each verb returns a :class:`Verdict`: APPLIED, or LOST when the lease ended and the job may belong to another worker. A lost
    lease is a normal outcome: stop, another worker has the job.
    """

    __slots__ = ("leased", "source")

    def __init__(self, leased: LeasedJob, source: AsyncQueue) -> None:
        super().__init__(leased.snapshot_row(), leased.queue)
        #: The queue object that it was claimed from.
        self.source = source
        #: The same job, for synchronous code in a greenlet.
        self.leased = leased
        # Verbs of one job in two tasks, a heartbeat's extend and the handler's complete, take turns as threads do.
        leased.lock = Turn()

    @property
    def version(self) -> int:
        """The fencing token; goes up when the lease is extended."""
        return self.leased.version

    @property
    def payload(self) -> Any:
        """The payload, decoded when it is first read.

        :raises PayloadError: the codec cannot decode the stored text (an INSERT by hand); ``payload_text`` has it as it is.
        """
        return self.leased.payload

    @property
    def payload_text(self) -> str:
        """The payload as it is stored."""
        return self.leased.payload_text

    @property
    def lease_expires(self) -> datetime:
        """End of the lease by the database's clock; aware, UTC."""
        return self.leased.lease_expires

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction for the handler's own SQL that completes the job with it: both or neither, *exactly-once effect*.

        At the end of the block the job leaves the queue and all is committed. An exception rolls it all back.

        :raises LeaseLostError: the lease was lost; what the block wrote is rolled back.
        """
        async with within(self.leased.transaction()) as connection:
            yield connection

    async def complete(self, using: AsyncConnection | AsyncSession | None = None) -> Verdict:
        """The work is done: the job leaves the queue.

        With ``using`` it leaves in that transaction, together with the caller's own writes: exactly-once effect. Call
        ``.require()`` on the verdict there, so that a lost lease rolls the writes back.
        """
        return await run(self.leased.complete, joined(using))

    async def fail(self, error: BaseException | str, retry_in: float | None = None) -> Verdict:
        """The attempt failed: try again after ``retry_in`` seconds or the backoff; after the last attempt the job is dead."""
        return await run(self.leased.fail, error, retry_in)

    async def snooze(self, seconds: float) -> Verdict:
        """Come back in ``seconds``; this does not count as an attempt."""
        return await run(self.leased.snooze, seconds)

    async def release(self) -> Verdict:
        """Give the job back at once, unworked; this does not count as an attempt."""
        return await run(self.leased.release)

    async def extend(self, seconds: float) -> Verdict:
        """Hold the lease for ``seconds`` from now; ``version``, ``fence`` and ``lease_expires`` change."""
        return await run(self.leased.extend, seconds)

    async def progress(self, fraction: float, note: str | None = None) -> Verdict:
        """Say how far the work is: ``db.get(id).progress`` and ``.progress_note`` show it while this attempt has the job.

        In a worker it costs no statement: what was said last is written once a second, for all its jobs together, and the verdict
        is what the worker knows. Elsewhere it is written at once.

        :param fraction: 0 to 1.
        :param note: a few words, cut at 200 characters.
        """
        return await run(self.leased.progress, fraction, note)

    async def cancel(self) -> Verdict:
        """The work is no longer wanted: the job leaves the queue."""
        return await run(self.leased.cancel)

    async def bury(self, error: BaseException | str) -> Verdict:
        """Trying again is pointless: send the job to the dead table."""
        return await run(self.leased.bury, error)

    async def settle(self, outcome: Outcome) -> Verdict:
        """Do what a handler returned: nothing completes the job, :class:`Snooze`, :class:`Retry` and so on do as they say."""
        return await run(self.leased.settle, outcome)


def settled(jobs: Any) -> Any:
    """The jobs that synchronous verbs settle; what is no job, or no list of jobs, is left for them to refuse."""
    if isinstance(jobs, Iterable) and not isinstance(jobs, str | bytes | Mapping):
        return [job.leased if isinstance(job, AsyncLeasedJob) else job for job in jobs]
    return jobs
