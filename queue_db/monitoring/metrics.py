"""``db.metrics``: the numbers of each queue, now and over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Row

from queue_db import arguments
from queue_db.core import Core, observe
from queue_db.errors import ArgumentError
from queue_db.model import from_micros
from queue_db.monitoring.operations import Operations
from queue_db.monitoring.sampling import MOST, STATES, Sampling, write_rows
from queue_db.monitoring.store import metrics
from queue_db.monitoring.store.metrics import FINE
from queue_db.monitoring.tables import COUNTS, DEPTHS
from queue_db.store.schema import QUEUE_LENGTH

# ``latest`` counts what happened in this many seconds.
_RECENT = 60

# Greatest ``width`` of the history, seconds.
_WIDEST = 86_400


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """Numbers of one queue: its jobs at the time ``at``, and what happened in ``duration`` seconds."""

    queue: str
    at: datetime
    available: int
    scheduled: int
    blocked: int
    running: int
    dead: int
    held: int  #: claimed by streams
    oldest: float | None  #: seconds since the longest waiting due job became due; None: nothing is due
    completed: int
    failed: int  #: failed attempts of jobs that are tried again
    died: int  #: jobs that went to the dead table
    lost: int  #: settles that found a lost lease
    missed: int  #: candidates that claims lost to other workers
    duration: float  #: seconds
    capped: tuple[str, ...] = ()  #: states that may have more jobs: the latest numbers stop at 10,000
    workers: int | None = None  #: workers that claim from the queue; None in the history
    paused: bool | None = None
    unknown: int | None = None  #: jobs that wait because no worker has had a handler for their kind


class Metrics:
    """The numbers of each queue: the last day in steps of ten seconds, thirty days in steps of ten minutes.

    Workers and the service write them; a program that runs neither calls :meth:`take` every ten seconds. One process at a time
    counts the jobs, up to 10,000 of each queue and state, and at most 1 % of the time: after a count that took s seconds, the next
    count comes 100 · s seconds later. For the history, larger queues are also counted whole, in the background and with their own
    rest between counts.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._sampling = Sampling(core)

    def latest(self) -> list[QueueMetrics]:
        """The newest numbers of each queue that had jobs within a day, by name; ``at`` is when the jobs were counted.

        The counts of what happened cover the last ``duration`` seconds: a minute or a little more. Reads one row, and the rows of
        this time.
        """
        found = self._sampling.latest()
        if found is None:
            return []
        taken_at, now, data = found
        since, counts = self._core.read("monitoring.recent", metrics.recent, _RECENT)
        names = {*data["jobs"], *data.get("seen", ()), *counts}
        nothing = dict.fromkeys(STATES, 0)
        operations = Operations.of(data.get("operations", {}))
        return [
            QueueMetrics(
                queue=name,
                at=from_micros(taken_at),
                **data["jobs"].get(name, nothing),
                held=data.get("held", {}).get(name, 0),
                oldest=data["oldest"].get(name) if data["jobs"].get(name, nothing)["available"] else None,
                **{count: int(getattr(counts[name], count)) if name in counts else 0 for count in COUNTS},
                duration=max(0.0, (now - since) / 1_000_000),
                capped=tuple(data.get("capped", {}).get(name, ())),
                workers=operations.workers.get(name, 0),
                paused=name in operations.paused,
                unknown=data.get("unknown", {}).get(name, 0),
            )
            for name in sorted(names)
        ]

    def history(self, queue: str | None = None, *, since: datetime, width: int = FINE) -> list[QueueMetrics]:
        """The numbers of a queue, or of all queues, from ``since`` on, by queue and time. An item covers ``width`` seconds from
        ``at``.

        Jobs by state are means of the counts in this time, and ``oldest`` is the maximum. If the jobs were not counted in this
        time, the item repeats those of the previous item. States with more than 10,000 jobs are counted less often than others.
        There is no item for a time in which a queue had no jobs and nothing happened.

        :param width: a multiple of 10 seconds: for the last day; a multiple of 600: for the last 30 days.
        """
        if queue is not None:
            arguments.name("queue", queue, QUEUE_LENGTH)
        first = arguments.moment("since", since)
        if first is None:
            raise ArgumentError("since=None: must be a datetime with a time zone")
        if arguments.whole("width", width, FINE, _WIDEST) % FINE:
            raise arguments.wrong("width", width, f": must be a multiple of {FINE} seconds")
        rows = observe(self._core, "monitoring.history", metrics.history, queue=queue, since=max(first, 0), width=width)
        return [one for _, some in groupby(rows, lambda row: str(row.queue)) for one in _filled(some, width)]

    def take(self) -> bool:
        """Write what this process did since the last call, and count the jobs of all queues if a count is due.

        Call it every ten seconds. False: the count is not due, or another process counts.

        :raises StorageError: the count failed; the next one begins after a rest.
        """
        self.flush()
        return self._sampling.take_if_due()

    def flush(self) -> None:
        """Write what this process did since the last call.

        :raises StorageError: the write failed. The next call writes the counts, unless this write may have been committed.
        """
        counts = self._core.queue_counters.take()
        if not counts:
            return
        try:
            write_rows(self._core, "monitoring.add", metrics.add, counts)
        except BaseException as error:
            if not getattr(error, "outcome_unknown", False):
                self._core.queue_counters.put_back(counts)
            raise


def _filled(rows: Iterable[Row[Any]], width: int) -> Iterator[QueueMetrics]:
    """Merge the rows of one queue that have the same time. A row without counted jobs gets the jobs of the previous row."""
    depths: dict[str, Any] = {**dict.fromkeys(DEPTHS, 0), "oldest": None}
    for start, same in groupby(rows, lambda row: int(row.start)):
        found = list(same)
        parts = [metrics.numbers(row) for row in found]
        for part in parts:
            if part["held"] is not None:
                # A count that was cut off has None for the state: there are at least MOST jobs. The last whole count may say more.
                depths = {name: max(depths[name], MOST) if part[name] is None and name in STATES else part[name] for name in DEPTHS}
        oldest = None if depths["oldest"] is None else depths["oldest"] / 1_000_000
        counts: dict[str, Any] = {name: sum(part[name] or 0 for part in parts) for name in COUNTS}
        jobs = {**depths, "oldest": oldest}
        yield QueueMetrics(queue=found[0].queue, at=from_micros(start), **jobs, **counts, duration=float(width))
