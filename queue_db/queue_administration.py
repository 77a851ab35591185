"""What people and programs do with a queue as a whole, and with jobs that they have not claimed."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from queue_db.core import Core
from queue_db.dialects.borrowed import Using
from queue_db.model import UNCHANGED, Controls, Job, PresentState, State, Unchanged, Verdict
from queue_db.slices import load, type_hint
from queue_db.store import controls

if TYPE_CHECKING:
    from queue_db.monitoring.model import JobPage, QueueStats
else:
    JobPage, QueueStats = (type_hint("queue_db", name) for name in ("JobPage", "QueueStats"))


class QueueAdministration:
    """The part of a :class:`~queue_db.Queue` that looks at jobs, changes them and controls the workers."""

    core: Core
    name: str

    # --- inspect ----------------------------------------------------------------------------------------------------

    def get(self, job_id: int) -> Job:
        """The job as it is now, live or dead.

        :raises JobNotFoundError: the job was completed, cancelled or purged, or never existed.
        """
        return self.core.administration.get(job_id, self.name)

    def peek(self, limit: int = 10) -> list[Job]:
        """The due jobs, in claim order, without claiming them."""
        return self.core.inspection.peek(self.name, limit)

    def jobs(
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
        return self.core.inspection.page(self.name, state, kind=kind, group=group, after=after, limit=limit)

    def stats(self, *, most: int | None = None) -> QueueStats:
        """Counts by state and kind, and the age of the oldest due job. Reads the whole queue.

        :param most: count at most this many jobs of each state. This takes milliseconds, however many jobs there are. ``capped``
            names the states that may have more jobs. In a queue with more than 32 priorities only the first 32 are counted.
        """
        return self.core.inspection.stats(self.name, most)

    def reschedule(
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
        reschedule = self.core.administration.reschedule
        return reschedule(job_id, self.name, run_at=run_at, delay=delay, priority=priority, version=version)

    # --- control ----------------------------------------------------------------------------------------------------

    def pause(self, *, wait: float | None = None) -> bool:
        """Stop all workers from claiming from this queue until :meth:`resume`, also across restarts.

        :param wait: the most seconds to wait until no job of the queue runs. Workers notice the pause within 1.5 s, so the queue is
            at rest when no job has run for 1.5 s. The call may take 1.5 s longer than ``wait``.
        :return: whether no job runs; True if ``wait`` is not given.
        """
        return self.core.administration.pause(self.name, wait)

    def resume(self) -> None:
        """Let workers claim from this queue again."""
        self.core.administration.set_paused(self.name, paused=False)

    def limit(
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
        load("limits.verbs", "change")(self.core, self.name, concurrency=concurrency, rate=rate, per=per, per_group=per_group)

    def controls(self) -> Controls:
        """The pause and the limits of this queue."""
        return self.core.read("controls.read", controls.read, [self.name]).get(self.name, Controls())

    # --- remove -----------------------------------------------------------------------------------------------------

    def cancel(self, job_id: int, *, version: int | None = None) -> Verdict:
        """Cancel a live job in any state. A worker that runs the job loses its lease.

        :param version: cancel the job only if it still has this version.
        :return: LOST: the job has another version, a stream holds the job and cannot give it back, or the job was changed during
            each of five tries.
        :raises JobNotFoundError: there is no such live job.
        """
        return self.core.administration.cancel(job_id, self.name, version)

    def purge(self, *, using: Using | None = None) -> int:
        """Delete all due, scheduled and blocked jobs, in portions; return the number of deleted jobs. Running jobs stay.

        :param using: a transaction of yours, in which all are deleted at once.
        """
        return self.core.administration.purge(self.name, using)
