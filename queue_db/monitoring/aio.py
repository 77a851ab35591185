# Generated from queue_db/monitoring/actions.py and queue_db/monitoring/metrics.py. Do not change it: `make aio` writes it anew.
"""Actions, Metrics for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import joined, run
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
        using: AsyncConnection | AsyncSession | None = None,
    ) -> None:
        """Record an action that was done.

        :param who: a user, or the name of a token; at most 100 characters.
        :param action: such as ``purge``; at most 40 characters.
        :param target: such as the name of a queue or the id of a job; cut to 250 characters.
        :param number: of how many jobs or other things.
        :param detail: more, as JSON; at most 10,000 characters. No passwords and no payloads.
        :param using: a connection or session with a transaction: the entry is there if it commits.
        """
        await run(self._sync.add, who, action, target, number, detail, using=joined(using))

    async def list(self, *, limit: int = 100, after: int | None = None) -> list[Action]:
        """The actions, newest first. ``after``: the id of the last one of the previous page."""
        return await run(self._sync.list, limit=limit, after=after)


class AsyncMetrics(Twin[Metrics]):
    """The numbers of each queue: the last day in steps of ten seconds, thirty days in steps of ten minutes.

    Workers write them, and so does a service; a program that runs neither calls :meth:`take` every ten seconds. One process of all
    counts the jobs, up to 10,000 of each queue and state, at most 1 % of the time: where a count takes s seconds, the next one
    comes 100 · s seconds later. For the history queues with more jobs are also counted whole, in the background and with a rest of
    their own.
    """

    async def latest(self) -> list[QueueMetrics]:
        """The newest numbers of each queue that had jobs within a day, by name; ``at`` is when the jobs were counted.

        The counts are those of the last minute or little more, ``duration``. Reads one row, and the rows of a minute.
        """
        return await run(self._sync.latest)

    async def history(self, queue: str | None = None, *, since: datetime, width: int = FINE) -> list[QueueMetrics]:
        """The numbers of a queue, or of all, since then, by queue and time; ``at`` is the beginning of ``width`` seconds.

        Where the jobs were not counted in this time, they are those of the row before; more than 10,000 of a state are counted less
        often than others. Jobs by state are means of the counts, and ``oldest`` is the most. There is no row for a time in which a
        queue had no jobs and nothing happened.

        :param width: a multiple of 10 seconds: for the last day; a multiple of 600: for the last 30 days.
        """
        return await run(self._sync.history, queue, since=since, width=width)

    async def take(self) -> bool:
        """Write what this process did since the last call, and count the jobs of all queues if that is due.

        Call it every ten seconds. False: the count is not due, or another process counts.

        :raises StorageError: the count failed; the next one begins after a rest.
        """
        return await run(self._sync.take)

    async def flush(self) -> None:
        """Write what this process did since the last call.

        :raises StorageError: the next call writes it.
        """
        await run(self._sync.flush)
