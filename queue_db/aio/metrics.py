# Generated from queue_db/monitoring/metrics.py. Do not change it here: `make aio` writes it anew.
"""Metrics for asyncio."""

from __future__ import annotations

from datetime import datetime

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.monitoring.metrics import Metrics, QueueMetrics
from queue_db.store.metrics import FINE


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
