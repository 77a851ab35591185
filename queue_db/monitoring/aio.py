# Generated from queue_db/monitoring/actions.py, queue_db/monitoring/metrics.py. Do not change it: `make aio` writes it anew.
"""Actions, Metrics for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import joined, run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.monitoring.actions import Action, Actions
from queue_db.monitoring.metrics import Metrics, QueueMetrics
from queue_db.monitoring.store.metrics import FINE


class AsyncActions(Twin[Actions]):
    """The action log of one database: who changed what, how much and when. Workers delete entries after 90 days."""

    async def add(
        self,
        who: str,
        action: str,
        target: str,
        number: int | None = None,
        detail: Mapping[str, Any] | None = None,
        *,
        using: AsyncUsing | None = None,
    ) -> None:
        """Record an action that was done.

        :param who: a user, or the name of a token; at most 100 characters.
        :param action: such as ``purge``; at most 40 characters.
        :param target: such as the name of a queue or the id of a job; cut to 250 characters.
        :param number: how many jobs or other things were changed.
        :param detail: further data, stored as JSON; at most 10,000 characters. No passwords and no payloads.
        :param using: an AsyncConnection or AsyncSession: the entry commits or rolls back with its transaction.
        """
        await run(self._sync.add, who, action, target, number, detail, using=joined(using))

    async def list(self, *, limit: int = 100, after: int | None = None) -> list[Action]:
        """The actions, newest first. ``after``: the id of the last action of the previous page."""
        return await run(self._sync.list, limit=limit, after=after)


class AsyncMetrics(Twin[Metrics]):
    """The numbers of each queue: the last day in steps of ten seconds, thirty days in steps of ten minutes.

    Workers and the service write them; a program that runs neither calls :meth:`take` every ten seconds. One process at a time
    counts the jobs, up to 10,000 of each queue and state, and at most 1 % of the time: after a count that took s seconds, the next
    count comes 100 · s seconds later. For the history, larger queues are also counted whole, in the background and with their own
    rest between counts.
    """

    async def latest(self) -> list[QueueMetrics]:
        """The newest numbers of each queue that had jobs within a day, by name; ``at`` is when the jobs were counted.

        The counts of what happened cover the last ``duration`` seconds: a minute or a little more. Reads one row, and the rows of
        this time.
        """
        return await run(self._sync.latest)

    async def history(self, queue: str | None = None, *, since: datetime, width: int = FINE) -> list[QueueMetrics]:
        """The numbers of a queue, or of all queues, from ``since`` on, by queue and time. An item covers ``width`` seconds from
        ``at``.

        Jobs by state are means of the counts in this time, and ``oldest`` is the maximum. If the jobs were not counted in this
        time, the item repeats those of the previous item. States with more than 10,000 jobs are counted less often than others.
        There is no item for a time in which a queue had no jobs and nothing happened.

        :param width: a multiple of 10 seconds: for the last day; a multiple of 600: for the last 30 days.
        """
        return await run(self._sync.history, queue, since=since, width=width)

    async def take(self) -> bool:
        """Write what this process did since the last call, and count the jobs of all queues if a count is due.

        Call it every ten seconds. False: the count is not due, or another process counts.

        :raises StorageError: the count failed; the next one begins after a rest.
        """
        return await run(self._sync.take)

    async def flush(self) -> None:
        """Write what this process did since the last call.

        :raises StorageError: the write failed. The next call writes the counts, unless this write may have been committed.
        """
        await run(self._sync.flush)
