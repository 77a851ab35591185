"""``db.dead``: the jobs that were given up, and the way back."""

from __future__ import annotations

from collections.abc import Iterable

from queue_db.aio.running import run
from queue_db.dead import DeadJobs, JobIds
from queue_db.model import Job


class AsyncDeadJobs:
    """Jobs whose attempts are used up, or that a handler gave up. They stay until redriven or purged."""

    def __init__(self, dead: DeadJobs) -> None:
        self._dead = dead

    async def list(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        limit: int = 100,
        after: Job | None = None,
    ) -> list[Job]:
        """Dead jobs, longest dead first; ``available_at`` is when they died. ``after``: the last job of the page before."""
        return await run(self._dead.list, queue, kind=kind, limit=limit, after=after)

    async def redrive(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        queue: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> JobIds:
        """Bring dead jobs back, due now, untried, under their old ids; return these.

        All of them, or those of the given ids, queue and kind, at most ``limit``. A job whose unique key a live job has stays dead.

        :raises JobNotFoundError: an id was given that is not dead, or not of that queue and kind. None of the others came back.
        :raises DuplicateJobError: one id was given, and a live job has its unique key.
        """
        return await run(self._dead.redrive, ids, queue=queue, kind=kind, limit=limit)

    async def purge(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        older_than: float | None = None,
        keep: int | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete dead jobs for good, in batches, those of one queue longest dead first; return how many.

        :param older_than: only those dead for so many seconds.
        :param keep: not those that died last, so many of the queue and kind, or of all.
        :param limit: at most so many.
        """
        return await run(self._dead.purge, queue, kind=kind, older_than=older_than, keep=keep, limit=limit)
