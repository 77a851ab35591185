"""Jobs that a program holds outside a :class:`~queue_db.worker.Worker`: a thread extends their leases."""

from __future__ import annotations

import logging
import threading
from itertools import count
from types import TracebackType
from typing import Self

from queue_db import arguments
from queue_db.concurrency.forks import reset_after_fork
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.leased_job import LeasedJob
from queue_db.queue import Queue
from queue_db.worker.leases import Heartbeat, Reports

__all__ = ["HeldJobs"]

log = logging.getLogger("queue_db.held_jobs")

# Seconds for which close() waits for a beat that runs.
_LAST = 5.0

# The tags of all objects of the process: a fence may be that of another database's job, too.
_tags = count(1)


class HeldJobs:
    """Extends the leases of claimed jobs every third of a lease, until they are taken out or it is closed. A context manager.

    ::

        with HeldJobs(lease=60) as held:
            tags = [held.add(job) for job in queue.claim(10, lease=60)]
            ...  # hours later, in any thread
            if job := held.take(tags[0]):
                job.complete()

    A job whose lease was lost leaves: a warning names it, and its event ``lost`` is set. Any thread may call the methods. After a
    fork the child holds nothing: the jobs are its parent's. Take out what you settle, and close it: until then it holds the rest.

    :param lease: seconds, from each extension on. The first one comes after up to a third of it: claim with at least this lease.
    :param outage: hears of failures, in place of the log.
    :raises ArgumentError: ``lease`` is not a number of seconds above 0.
    """

    def __init__(self, lease: float, *, outage: Reports | None = None) -> None:
        arguments.seconds("lease", lease, zero=False)
        #: Seconds, from each extension on.
        self.lease = lease
        self._outage = outage
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Begin without jobs and without a thread."""
        # Each change is one atomic method of the dict. So only the start of the thread needs a lock.
        self._by_tag: dict[str, LeasedJob] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, job: LeasedJob) -> str:
        """Extend the lease of a job from now on. Return its tag, which no other job of the process gets.

        A job of ``claim(delete=True)`` has no row to extend: it counts as lost at the first beat.

        :raises ArgumentError: it is no leased job of a :class:`~queue_db.Queue`, or is settled.
        :raises ConfigurationError: this object is closed.
        """
        if not isinstance(job, LeasedJob) or not isinstance(job.source, Queue):
            raise ArgumentError(f"add() takes a LeasedJob, as Queue.claim() returns it, not an object of {type(job).__name__}")
        if job.settled:
            raise ArgumentError(f"job {job.id} has no lease to extend: {job.settled_by} has ended it")
        if self._closed.is_set():
            raise ConfigurationError("these HeldJobs are closed, and extend no leases: make others")
        tag = str(next(_tags))
        self._by_tag[tag] = job
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="queue_db held jobs", daemon=True)
                    self._thread.start()
        return tag

    def get(self, tag: str) -> LeasedJob | None:
        """The job, which stays; None: it is not held, or its lease was lost."""
        return self._by_tag.get(tag)

    def take(self, tag: str) -> LeasedJob | None:
        """The job, whose lease is no longer extended; None: it is not held, or its lease was lost."""
        return self._by_tag.pop(tag, None)

    def tags(self) -> list[str]:
        """The tags of the jobs that are held."""
        return list(self._by_tag)

    def jobs(self) -> list[LeasedJob]:
        """The jobs that are held, queue by queue."""
        return sorted(self._by_tag.copy().values(), key=lambda job: (job.queue, id(job.source)))

    def close(self) -> None:
        """End the thread. What is still held is due again when its lease ends."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        closed, wait = self._closed, self.lease / 3
        beat = Heartbeat(self, self.lease, self._lose, self._outage).beat
        while not closed.wait(wait):
            # Without jobs the database is not asked: then nothing is known of an outage.
            wait = beat() if self._by_tag else self.lease / 3

    def _lose(self, job: LeasedJob) -> None:
        if [tag for tag, held in self._by_tag.copy().items() if held is job and self.take(tag)]:
            job.lost.set()
            log.warning("the lease of job %d (%s) in %r was lost: another consumer gets it", job.id, job.kind, job.queue)
