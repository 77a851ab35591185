"""Periodic tasks of a worker: schedules, pruning, repair. They run on the threads maintenance, cleanup and scheduler."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from queue_db.concurrency.pauses import Pause
from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.feeds.retention import trim_all
from queue_db.worker.outages import Activity

log = logging.getLogger("queue_db.worker")

PeriodicTask = Callable[[], float]
"""Does its work and returns how many seconds to wait until its next run."""

# Seconds until the next run of a task that has raised: the other tasks of the thread go on.
_AFTER_EXCEPTION = 5.0

#: Seconds between two ticks of the scheduler: with schedules in the database, and without.
SCHEDULE_EVERY = (1.0, 5.0)

#: Seconds between two runs of pruning and of the repair of groups.
PRUNE_EVERY = 60.0

#: Seconds between two reports of what a process did.
METRICS_EVERY = 10.0

#: Seconds between two sweeps of a removal that marks completed jobs, and the most jobs that one deletes.
SWEEP_EVERY = 5.0
SWEEP_LIMIT = 10_000

#: The most dead jobs of a queue deleted at a time.
PRUNE_DEAD_LIMIT = 1000

#: Seconds until the next run of a task that has deleted a part only, so that other tasks run too.
AGAIN = 0.1


def run_periodically(tasks: Sequence[tuple[float, PeriodicTask]], stopped: threading.Event) -> None:
    """Run each task, first after the seconds beside it, until ``stopped``."""
    now = time.monotonic()
    due = {task: now + first for first, task in tasks}
    while due:
        task = min(due, key=due.__getitem__)
        if stopped.wait(max(0.0, due[task] - time.monotonic())):
            return
        try:
            wait = task()
        except Exception:
            log.exception("%r failed", task)
            wait = _AFTER_EXCEPTION
        due[task] = time.monotonic() + wait


def enqueue_scheduled(db: QueueDB, retry: tuple[float, float], outage: Activity) -> PeriodicTask:
    """Enqueues the jobs of schedules that are due."""
    pause = Pause(*retry)

    def tick() -> float:
        try:
            enqueued, wait = db.schedules.tick()
        except Exception as error:  # noqa: BLE001 - logged by the outage, an unexpected one with its traceback
            seconds = pause.next() if isinstance(error, QueueDBError) else SCHEDULE_EVERY[1]
            outage.failed("enqueueing the jobs of schedules", error, seconds)
            return seconds
        pause.reset()
        outage.worked()
        if enqueued:
            log.debug("enqueued %d jobs of schedules", enqueued)
        with_schedules, without = SCHEDULE_EVERY
        return without if wait is None else min(wait, with_schedules)

    return tick


def take_metrics(db: QueueDB, outage: Activity | None = None) -> PeriodicTask:
    """Writes what this process did, and counts the jobs of all queues if that is due and no other process does."""

    def take() -> float:
        try:
            db.metrics.take()
        except Exception as error:  # noqa: BLE001 - the next run writes the same
            (outage or Activity()).failed_rarely("writing metrics", error)
        return _spread(METRICS_EVERY)

    return take


def repair_groups(db: QueueDB, queues: Iterable[str], outage: Activity | None = None) -> PeriodicTask:
    """Unblocks groups whose first jobs were deleted by hand."""

    def repair() -> float:
        try:
            for queue in queues:
                db.queue(queue).repair_groups()
        except Exception as error:  # noqa: BLE001 - the next run finds the same groups
            (outage or Activity()).failed_rarely("repairing groups", error)
        return _spread(PRUNE_EVERY)

    return repair


def prune_expired(db: QueueDB, outage: Activity | None = None) -> PeriodicTask:
    """Deletes expired results and old errors, and releases streams without readers."""

    def prune() -> float:
        try:
            db.prune()
            for name in db.streams.expire():
                log.warning("stream %r has expired without a reader: its jobs are back in their queue", name)
        except Exception as error:  # noqa: BLE001 - the next run finds the same rows
            (outage or Activity()).failed_rarely("pruning expired rows", error)
        return _spread(PRUNE_EVERY)

    return prune


def prune_dead(
    db: QueueDB, queues: Collection[str], dead_for: float | None, dead_at_most: int | None, outage: Activity | None = None
) -> PeriodicTask:
    """Deletes jobs of these queues that died more than ``dead_for`` seconds ago, and the oldest above ``dead_at_most``."""

    def prune() -> float:
        more = False
        try:
            for queue in queues:
                for limit in ({"older_than": dead_for}, {"keep": dead_at_most}):
                    if None in limit.values():
                        continue
                    deleted = db.dead.purge(queue, limit=PRUNE_DEAD_LIMIT, **limit)
                    more = more or deleted == PRUNE_DEAD_LIMIT
                    if deleted:
                        log.info("deleted %d dead jobs of %r", deleted, queue)
        except Exception as error:  # noqa: BLE001 - the next run finds the same rows
            (outage or Activity()).failed_rarely("deleting dead jobs", error)
            more = False
        return AGAIN if more else _spread(PRUNE_EVERY)

    return prune


def trim_feeds(db: QueueDB, outage: Activity | None = None) -> PeriodicTask:
    """Deletes the messages of feeds that their retention does not keep."""

    def trim() -> float:
        more = False
        try:
            trimmed, more = trim_all(db.core)
        except Exception as error:  # noqa: BLE001 - the next run finds the same rows
            (outage or Activity()).failed_rarely("trimming feeds", error)
        else:
            for name, gone in trimmed.items():
                log.info("trimmed %d messages of feed %r", gone, name)
        return AGAIN if more else _spread(PRUNE_EVERY)

    return trim


def sweep_completed(db: QueueDB, outage: Activity | None = None) -> PeriodicTask:
    """Deletes jobs that are marked as completed, first at the start: a worker that runs a second each minute sweeps too."""
    pause = Pause(SWEEP_EVERY, SWEEP_EVERY)

    def sweep() -> float:
        try:
            db.sweep(limit=SWEEP_LIMIT)
        except Exception as error:  # noqa: BLE001 - the next sweep finds the same rows
            (outage or Activity()).failed_rarely("sweeping completed jobs", error)
        return pause.next()

    return sweep


def _spread(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.25)
