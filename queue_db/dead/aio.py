# Generated from queue_db/dead/dead_jobs.py. Do not change it: `make aio` writes it anew.
"""DeadJobs for asyncio."""

from __future__ import annotations

from collections.abc import Iterable

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.dead.dead_jobs import MOST_COUNTED, DeadJobs, JobIds
from queue_db.model import Job


class AsyncDeadJobs(Twin[DeadJobs]):
    """Dead jobs: out of attempts, or buried. They stay until they are redriven or purged."""

    async def list(
        self,
        queue: str | None = None,
        *,
        kind: str | None = None,
        error_class: str | None = None,
        limit: int = 100,
        after: Job | None = None,
        newest: bool = False,
    ) -> list[Job]:
        """Dead jobs, longest dead first; ``available_at`` is when they died. ``after``: the last job of the previous page.

        Without a queue there are two statements or more for each queue that has dead jobs. If more than 100 have some, there are
        about 100 statements for their names, and one or two that read and sort all dead jobs.

        :param newest: those that died last come first; also the pages after it are read with ``newest``.
        :param error_class: only jobs that died by an exception of this class; empty: by a failure with a reason in its place.
            ``last_error`` begins with the class, so a reason that begins with the same word and ``: `` also matches.
        """
        return await run(self._sync.list, queue, kind=kind, error_class=error_class, limit=limit, after=after, newest=newest)

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

        It redrives all dead jobs, or the dead jobs with the given ids, queue, kind and error class (see :meth:`list`), at most
        ``limit``. A dead job stays dead if a live job has its unique key.

        :param dry_run: change nothing; return the ids of the jobs that would be redriven.
        :raises JobNotFoundError: a given id is not the id of a dead job of that queue, kind and error class. No job was redriven.
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
        """Delete dead jobs in batches, longest dead first within each queue; return how many.

        :param error_class: as for :meth:`list`.
        :param older_than: only jobs dead for at least this many seconds.
        :param keep: keep this many of the matching jobs, those that died last.
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

        To learn what :meth:`redrive` or :meth:`purge` would change, call it with ``dry_run``.

        :param error_class: as for :meth:`list`.
        """
        return await run(self._sync.count, queue, kind=kind, error_class=error_class, most=most)
