# Generated from queue_db/dead.py. Do not change it: `make aio` writes it anew.
"""DeadJobs for asyncio."""

from __future__ import annotations

from collections.abc import Iterable

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.dead import MOST_COUNTED, DeadJobs, JobIds
from queue_db.model import Job


class AsyncDeadJobs(Twin[DeadJobs]):
    """Dead jobs: out of attempts, or buried by a handler. They stay until redriven or purged."""

    async def list(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        error_class: str | None = None,
        limit: int = 100,
        after: Job | None = None,
    ) -> list[Job]:
        """Dead jobs, longest dead first; ``available_at`` is when they died. ``after``: the last job of the previous page.

        :param error_class: only those that died by an exception of this class; empty: by a reason that a handler gave.
            The class is what ``last_error`` begins with, so a reason that begins with the same word and ``: `` counts too.
        """
        return await run(self._sync.list, queue, kind=kind, error_class=error_class, limit=limit, after=after)

    async def redrive(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        queue: str | None = None,
        kind: str | None = None,
        error_class: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> JobIds:
        """Return dead jobs to their queues under their old ids, due now, with no attempts counted; return the ids.

        All dead jobs, or those with the given ids, queue, kind and error class (see :meth:`list`), at most ``limit``. If a live job
        has its unique key, a job stays dead.

        :param dry_run: change nothing; return the ids of those that would return.
        :raises JobNotFoundError: a given id is not dead, or not of that queue, kind and error class. No job was redriven.
        :raises DuplicateJobError: a single id was given, and a live job has its unique key.
        """
        return await run(self._sync.redrive, ids, queue=queue, kind=kind, error_class=error_class, limit=limit, dry_run=dry_run)

    async def purge(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        error_class: str | None = None,
        older_than: float | None = None,
        keep: int | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete dead jobs in batches, within one queue longest dead first; return how many.

        :param error_class: as for :meth:`list`.
        :param older_than: only jobs dead for at least this many seconds.
        :param keep: keep this many, the last to die, of the queue and kind or of all.
        :param limit: delete at most this many.
        :param dry_run: delete nothing; return how many would be deleted.
        """
        return await run(
            self._sync.purge,
            queue,
            kind=kind,
            error_class=error_class,
            older_than=older_than,
            keep=keep,
            limit=limit,
            dry_run=dry_run,
        )

    async def count(
        self, queue: str | None = None, *, kind: str | None = None, error_class: str | None = None, most: int = MOST_COUNTED
    ) -> int:
        """How many dead jobs there are of the queue, kind and error class, at most ``most``.

        What :meth:`redrive` and :meth:`purge` would change, they say with ``dry_run``.

        :param error_class: as for :meth:`list`.
        """
        return await run(self._sync.count, queue, kind=kind, error_class=error_class, most=most)
