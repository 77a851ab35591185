"""Periodic tasks of a worker, and the thread that runs those that may wait for locks: schedules, pruning, repair, its own row."""

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
from queue_db.worker.logs import Activity

log = logging.getLogger("queue_db.worker")

PeriodicTask = Callable[[], float]
"""Does its work and returns how many seconds to wait until its next run."""

# Seconds until the next run of a task that has raised: the other tasks of the thread go on.
_AFTER_EXCEPTION = 5.0

#: A task that has run for this many seconds waits for something, perhaps a lock: another thread goes on with the other tasks.
PATIENCE = 0.5

#: Most threads of periodic tasks at a time, each with a connection: the heartbeat needs one too.
MOST_THREADS = 4

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
        due[task] = time.monotonic() + _run_task(task)


def _run_task(task: PeriodicTask) -> float:
    """Run it; return how many seconds to wait until its next run."""
    try:
        return task()
    except Exception:
        log.exception("%r failed", task)
        return _AFTER_EXCEPTION


class Upkeep:
    """Runs periodic tasks that may wait for locks, or for long statements, so that none of them holds up the others for long.

    One thread runs them, one after the other. While one takes longer than :data:`PATIENCE`, :meth:`relieve` starts another thread,
    which goes on with the others; the thread of the long one ends after it. So there is one thread as long as nothing waits, and
    at most :data:`MOST_THREADS`.

    :param tasks: each with the seconds until its first run; one that is due runs before those behind it.
    :param stopped: set when nothing more is to run.
    :param start: starts a thread that calls a function with an argument.
    """

    def __init__(
        self,
        tasks: Sequence[tuple[float, PeriodicTask]],
        stopped: threading.Event,
        start: Callable[[Callable[[object], None], object], threading.Thread],
    ) -> None:
        now = time.monotonic()
        # When each task is due that does not run.
        self._due = {task: now + first for first, task in tasks}
        self._stopped = stopped
        self._start = start
        self._lock = threading.Lock()
        # The thread that takes the next task; and since when it runs one.
        self._turn = object()
        self._began: float | None = None
        #: Those that were started, the latest last.
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the thread."""
        with self._lock:
            self._hand_over()

    def relieve(self) -> None:
        """Let another thread go on if a task takes long. By one thread, now and then."""
        with self._lock:
            late = self._began is not None and time.monotonic() - self._began >= PATIENCE
            if late and self._due and sum(one.is_alive() for one in self.threads) < MOST_THREADS:
                self._hand_over()

    def _hand_over(self) -> None:
        turn = object()
        thread = self._start(self._run, turn)  # waits for the lock
        self.threads = [*(one for one in self.threads if one.is_alive()), thread]
        self._turn, self._began = turn, None

    def _run(self, turn: object) -> None:
        goes_on = True
        while goes_on and (task := self._next()) is not None:
            wait = _run_task(task)
            with self._lock:
                self._due[task] = time.monotonic() + wait
                goes_on = self._turn is turn
                if goes_on:
                    self._began = None

    def _next(self) -> PeriodicTask | None:
        """Wait for the next task; None: nothing more is to run."""
        while not self._stopped.is_set():
            with self._lock:
                task = min(self._due, key=self._due.__getitem__)
                now = time.monotonic()
                left = self._due[task] - now
                if left <= 0:
                    del self._due[task]
                    self._began = now
                    return task
            # Not longer: a thread that was relieved may put back a task that is due before.
            self._stopped.wait(min(left, 1.0))
        return None


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
