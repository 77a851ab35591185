"""Periodic tasks of a worker and the threads that run them: pruning, repair, the worker's own row, tasks of slices."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from queue_db import slices
from queue_db.db import QueueDB
from queue_db.slices import Task
from queue_db.worker.logs import Activity
from queue_db.worker.options import Options
from queue_db.worker.registration import RESCUE_EVERY, Registration

log = logging.getLogger("queue_db.worker")

PeriodicTask = Callable[[], float]
"""Does its work and returns how many seconds to wait until its next run."""

# Seconds until the next run of a task that has raised.
_AFTER_EXCEPTION = 5.0

#: When a task has run for this many seconds, another thread goes on with the other tasks. The task perhaps waits for a lock.
PATIENCE = 0.5

#: The most threads of periodic tasks at a time. Each may use a connection, and a connection must be left for the heartbeat.
MOST_THREADS = 4

#: Seconds between two runs of pruning and of the repair of groups.
PRUNE_EVERY = 60.0

#: Seconds between two sweeps of a removal that marks completed jobs.
SWEEP_EVERY = 5.0

#: The most jobs that a sweep deletes.
SWEEP_LIMIT = 10_000


def _run_task(task: PeriodicTask) -> float:
    """Run a task; return how many seconds to wait until its next run."""
    try:
        return task()
    except Exception:
        log.exception("%r failed", task)
        return _AFTER_EXCEPTION


class PeriodicTasks:
    """Runs periodic tasks on one thread, one after the other.

    A task may wait for a lock or a long statement. If it takes longer than :data:`PATIENCE`, :meth:`relieve` starts another thread,
    which goes on with the other tasks. The first thread ends after its task. There are at most :data:`MOST_THREADS` threads.

    :param tasks: each with the seconds until its first run; tasks that are due at the same time run in this order.
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
        # When each task is due, without the tasks that are running.
        self._due = {task: now + first for first, task in tasks}
        self._stopped = stopped
        self._start = start
        self._lock = threading.Lock()
        # Identifies the thread that takes the next task.
        self._turn = object()
        # When the thread of ``_turn`` began its current task; None: it runs no task.
        self._began: float | None = None
        #: The threads that were started, the latest last.
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the thread, if there are tasks."""
        with self._lock:
            if self._due:
                self._hand_over()

    def relieve(self) -> None:
        """Start another thread if a task takes long. One thread calls this from time to time."""
        with self._lock:
            late = self._began is not None and time.monotonic() - self._began >= PATIENCE
            if late and self._due and sum(thread.is_alive() for thread in self.threads) < MOST_THREADS:
                self._hand_over()

    def _hand_over(self) -> None:
        turn = object()
        thread = self._start(self._run, turn)  # the new thread waits for the lock, which this thread holds
        self.threads = [*(other for other in self.threads if other.is_alive()), thread]
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
            # Wait for a second at most: a relieved thread may end a task and make it due earlier than this one.
            self._stopped.wait(min(left, 1.0))
        return None


def maintenance(db: QueueDB, options: Options, own: Registration) -> list[Task]:
    """The maintenance tasks of a worker with these options, including the tasks of the slices."""
    tasks = [
        *slices.tasks(db, options),
        Task("rescuing the jobs of dead processes", RESCUE_EVERY, _whole(own.rescue_dead), at_start=True),
        Task("pruning expired rows", PRUNE_EVERY, _whole(db.prune)),
        *(Task("repairing groups", PRUNE_EVERY, _whole(db.queue(name).repair_groups)) for name in options.limits),
    ]
    if db.removal.marks:
        # At the start too: otherwise a worker that runs for a second each minute would rarely sweep.
        sweep = _whole(partial(db.sweep, limit=SWEEP_LIMIT))
        tasks.append(Task("sweeping completed jobs", SWEEP_EVERY, sweep, at_start=True))
    return tasks


def logged(task: Task, outage: Activity) -> PeriodicTask:
    """Make a periodic task from ``task``: exceptions are logged, and the pauses between runs vary at random."""

    def run() -> float:
        wait = None
        try:
            wait = task.run()
            outage.worked()
        except Exception as error:  # noqa: BLE001 - the next run finds the same to do
            if task.enqueues:
                outage.failed(task.name, error, task.every)
            else:
                outage.failed_rarely(task.name, error)
        return task.every * random.uniform(0.75, 1.25) if wait is None else wait

    return run


def _whole(call: Callable[[], object]) -> Callable[[], None]:
    """Make a function for :class:`Task` from ``call``. Each run does all the work, so the next comes after ``every`` seconds."""

    def run() -> None:
        call()

    return run
