"""The threads of handlers that are functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter, itemgetter
from queue import SimpleQueue

from queue_db.leased_job import LeasedJob, row_of
from queue_db.worker.handlers import HandlerSpec
from queue_db.worker.options import Options

Assignment = tuple[LeasedJob, HandlerSpec]

Urgency = Callable[[LeasedJob], tuple[int, int] | int]
"""A sort key: the job with the lowest key begins first."""


# The sort key by priority. It is computed for each job, and attrgetter is faster than a function in Python.
_PRIORITY: Callable[[LeasedJob], int] = attrgetter("_row.priority")


def urgency_of(options: Options) -> Urgency:
    """The sort key of waiting jobs: queue and priority. With weights it is constant: jobs begin in the order of their claims."""
    if options.weights is not None:
        return lambda job: 0
    if len(options.limits) == 1:
        return _PRIORITY
    ranks = {queue: rank for rank, queue in enumerate(options.limits)}
    return lambda job: (ranks[job.queue], row_of(job).priority)


class Threads:
    """Calls functions, each on one of ``number`` threads.

    A thread that begins a job wakes one more thread if jobs wait. Functions that return at once run mostly on one thread: it takes
    the next job before the other thread is awake. Functions that wait for something run in parallel.

    The threads are daemons: a handler that does not return must not keep the process from ending.

    :param urgency: the sort key of waiting jobs; jobs with equal keys begin in the order in which they came.
    """

    def __init__(self, number: int, work: Callable[[LeasedJob, HandlerSpec], None], name: str, urgency: Urgency) -> None:
        self._work = work
        self._urgency = urgency
        self._heap: list[tuple[tuple[int, int] | int, int, Assignment]] = []
        self._numbers = count()
        # True wakes a thread that has no job, None ends it.
        self._wakes: SimpleQueue[bool | None] = SimpleQueue()
        # Whether a thread is being woken: _wakes contains a True, or a thread has just taken it. One True at a time is enough.
        self._waking = False
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"queue_db handler {index + 1} of {name}", daemon=True)
            for index in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, assignments: Sequence[Assignment]) -> None:
        """Call the handlers of these jobs as soon as threads are free."""
        with self._lock:
            for assignment in assignments:
                heappush(self._heap, (self._urgency(assignment[0]), next(self._numbers), assignment))
            if not self._waking and self._heap:
                self._wake()

    def unstarted(self) -> list[LeasedJob]:
        """Remove and return the jobs that no thread has begun."""
        with self._lock:
            jobs = [assignment[0] for _, _, assignment in sorted(self._heap, key=itemgetter(0, 1))]
            self._heap.clear()
        return jobs

    def close(self) -> None:
        """Let the threads end when they are free."""
        for _ in self._threads:
            self._wakes.put(None)

    def _run(self) -> None:
        while self._wakes.get():
            with self._lock:
                self._waking = False
            # A job that is added after this check wakes a thread, perhaps this one.
            while self._heap and (assignment := self._next()) is not None:
                self._work(*assignment)

    def _next(self) -> Assignment | None:
        """Take the job that begins now, and wake another thread if more jobs wait; None: no job waits."""
        with self._lock:
            heap = self._heap
            if not heap:
                return None
            assignment = heappop(heap)[2]
            if heap and not self._waking:
                self._wake()
            return assignment

    def _wake(self) -> None:
        """Wake a thread for the jobs that wait. The caller holds the lock and has checked that no thread is being woken."""
        self._waking = True
        self._wakes.put(True)
