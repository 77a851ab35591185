"""The loop: claim, call the handler, settle; and how it ends."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from queue_db import arguments
from queue_db.errors import ArgumentError, QueueDBError, StorageError
from queue_db.leased import LeasedJob
from queue_db.outcomes import Cancel, Dead, Outcome, Snooze
from queue_db.queue import MAX_CLAIM, Queue
from queue_db.worker.handlers import Handler, Stoppable, one_handler
from queue_db.worker.held import Heartbeat, Held
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")

#: Seconds between the first two looks at an empty queue; they double up to ``Worker(poll=…)``.
FIRST_POLL = 0.01

#: Seconds between tries while the database does not answer: first, longest.
TROUBLE = (0.1, 10.0)

#: How long a thread tries to report a finished job while the database does not answer, seconds.
SETTLE_FOR = 600.0

#: Seconds between two sweeps under ``removal="delete_mark"``, and the most jobs that one deletes.
SWEEP_EVERY = 5.0
SWEEP_LIMIT = 10_000

# How long leaving waits for claims that are under way, seconds: their jobs would otherwise be stuck until the lease is over.
_CLAIMS = 5.0


@dataclass(slots=True)
class Summary:
    """What became of the jobs that a worker claimed."""

    completed: int = 0
    failed: int = 0  #: the attempt failed: to be tried again, or dead after the last one
    snoozed: int = 0
    cancelled: int = 0
    dead: int = 0  #: given up by the handler
    released: int = 0  #: given back unfinished when the worker stopped
    lost: int = 0  #: the lease was lost, or the result could not be reported: another worker gets the job
    signal: int | None = None  #: number of the signal that stopped the worker


@dataclass(frozen=True, slots=True)
class _Stop:
    grace: float | None = None
    signal: int | None = None


class _Ended:
    """A thread has ended."""


class Worker:
    """Works on the jobs of one queue with threads, until it is stopped.

    Each thread claims, calls the handler, and settles the job by what the handler returned: nothing completes it, Snooze, Retry,
    Cancel and Dead do as they say, an exception fails the attempt. A heartbeat extends the leases of all jobs in hand. While the
    database does not answer the worker waits and tries again.

    :param handler: a function of one :class:`~queue_db.LeasedJob`, or a mapping from kind to such functions.
    :param workers: threads, each with one handler call at a time.
    :param lease: seconds for which jobs are claimed and extended; how long a job is stuck when this process is killed.
    :param batch: jobs that a thread claims at once and handles one after the other.
    :param poll: longest pause between two looks at an empty queue, seconds.
    :param grace: how long a stop waits for running handlers, seconds; then their jobs are released.
    :raises ArgumentError: a value is outside its allowed range, or the handler cannot be called.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler | Mapping[str, Handler],
        *,
        workers: int = 1,
        lease: float = 60.0,
        batch: int = 1,
        poll: float = 1.0,
        grace: float = 30.0,
    ) -> None:
        self.queue = queue
        self.workers = arguments.whole("workers", workers, 1, 1000)
        self.batch = arguments.whole("batch", batch, 1, MAX_CLAIM)
        for what, seconds, zero in (("lease", lease, False), ("poll", poll, False), ("grace", grace, True)):
            arguments.seconds(what, seconds, zero=zero)
        self.lease, self.poll, self.grace = float(lease), float(poll), float(grace)
        given: Any = handler
        self._stoppable: Stoppable | None = given if isinstance(given, Stoppable) else None
        self._handler = one_handler(handler)
        self._lock = threading.Lock()
        # The thread in run() reads it; a signal handler may put into it at any moment, which no lock or event allows.
        self._mail: SimpleQueue[_Stop | _Ended] = SimpleQueue()
        self._begin()

    def _begin(self) -> None:
        self.summary = Summary()
        self._held = Held()
        self._stopping = threading.Event()
        self._left = threading.Event()
        self._ended = threading.Event()
        self._resting = 0

    def run(self, until_empty: bool = False) -> Summary:
        """Work until :meth:`stop`, or SIGTERM or SIGINT if this is the main thread, whose handlers are restored afterwards.

        The first signal stops as :meth:`stop` does, the second leaves at once.

        :param until_empty: return when nothing is due and no thread of this worker has a job. Jobs that are scheduled for later,
            and those that other workers have, are not waited for.
        :raises SchemaOutOfDateError: the tables are missing or of another version.
        """
        self.queue.db.ready()
        self._begin()
        heartbeat = Heartbeat(self.queue, self._held, self.lease, lost=lambda: self._count("lost", 1))
        with self._signals():
            threads = [self._thread(f"worker {number + 1}", self._work, until_empty) for number in range(self.workers)]
            helpers = [self._thread("heartbeat", heartbeat.run, self._ended)]
            if self.queue.db.removal.name == "delete_mark":
                helpers.append(self._thread("sweeper", self._sweep))
            log.info("working on queue %r: %d threads, lease %g s", self.queue.name, self.workers, self.lease)
            self._wait(len(threads))
            self._leave()
            self._ended.set()
            for helper in helpers:
                helper.join(1.0)
        log.info("stopped working on queue %r: %s", self.queue.name, self.summary)
        return self.summary

    def stop(self, grace: float | None = None) -> None:
        """Claim no more, let running handlers finish, then :meth:`run` returns. From any thread or signal handler.

        :param grace: seconds to wait for the handlers instead of the worker's own; 0 releases their jobs at once.
        """
        self._mail.put(_Stop(grace))

    # --- the thread in run() ----------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def tell(number: int, frame: object) -> None:
            self._mail.put(_Stop(signal=number))

        before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, signal.SIG_DFL if old is None else old)

    def _thread(self, name: str, target: Any, *args: Any) -> threading.Thread:
        # Daemons: a handler that does not come back must not keep the process from ending.
        thread = threading.Thread(target=target, args=args, name=f"queue_db {name} of {self.queue.name}", daemon=True)
        thread.start()
        return thread

    def _wait(self, alive: int) -> None:
        """Until all threads have ended, or the grace time of a stop is over."""
        deadline: float | None = None
        while alive:
            try:
                mail = self._mail.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except Empty:
                return
            if isinstance(mail, _Ended):
                alive -= 1
                continue
            grace = self.grace if mail.grace is None else mail.grace
            if mail.signal is not None:
                if self.summary.signal is not None:
                    grace = 0.0
                self.summary.signal = mail.signal
                name = signal.Signals(mail.signal).name
                how = f"up to {grace:g} s for running jobs, a second signal leaves at once" if grace else "leaving"
                log.info("%s: no more claims, %s", name, how)
            self._stopping.set()
            end = time.monotonic() + grace
            deadline = end if deadline is None else min(deadline, end)

    def _leave(self) -> None:
        """Give back what is still held."""
        self._left.set()
        jobs = self._held.close(_CLAIMS)
        if not jobs:
            return
        if self._stoppable is not None:
            self._stoppable.stop()
        self._release(jobs)

    def _release(self, jobs: list[LeasedJob]) -> None:
        try:
            verdicts = self.queue.release_many(jobs)
        except StorageError as error:
            log.warning("%d jobs could not be released and come back when their leases run out: %s", len(jobs), error)
            self._count("lost", len(jobs))
            return
        given = sum(1 for verdict in verdicts if verdict)
        log.info("released %d unfinished jobs", given)
        self._count("released", given)
        self._count("lost", len(jobs) - given)

    # --- the working threads ----------------------------------------------------------------------------------------

    def _work(self, until_empty: bool) -> None:
        idle = Pause(FIRST_POLL, self.poll)
        trouble = Pause(*TROUBLE)
        while not self._stopping.is_set():
            try:
                jobs = self._claim()
                # A claim also comes back empty when every due job was lost to faster workers.
                empty = until_empty and not jobs and not self.queue.peek(1)
            except Exception as error:
                wait = trouble.next()
                # What the database says fits in a line; anything else is a mistake and needs its traceback.
                expected = isinstance(error, QueueDBError)
                log.warning(
                    "claiming from queue %r failed, next try in %.1f s: %s", self.queue.name, wait, error, exc_info=not expected
                )
                self._stopping.wait(wait)
                continue
            trouble.reset()
            if jobs:
                idle.reset()
                self._handle_all(jobs)
            else:
                self._rest(idle.next(), empty=empty)
        self._mail.put(_Ended())

    def _claim(self) -> list[LeasedJob]:
        jobs: list[LeasedJob] = []
        if self._held.claiming():
            try:
                jobs = self.queue.claim(self.batch, self.lease)
            finally:
                self._held.claimed(jobs)
        return jobs

    def _rest(self, seconds: float, *, empty: bool) -> None:
        if not empty:
            self._stopping.wait(seconds)
            return
        with self._lock:
            self._resting += 1
            # Whoever rests has found nothing after its last job: with all of them here, no handler can have added one since.
            everybody = self._resting == self.workers
        if everybody:
            self._mail.put(_Stop())
        self._stopping.wait(seconds)
        with self._lock:
            self._resting -= 1

    def _handle_all(self, jobs: list[LeasedJob]) -> None:
        for place, job in enumerate(jobs):
            if self._stopping.is_set():
                unstarted = [one for one in jobs[place:] if self._held.drop(one)]
                if unstarted:
                    self._release(unstarted)
                return
            self._handle(job)

    def _handle(self, job: LeasedJob) -> None:
        if not self._held.holds(job):
            return  # lost while it waited for the jobs before it in its batch
        log.debug("begin %r", job)
        outcome: Outcome | BaseException
        try:
            outcome = self._handler(job)
        except BaseException as error:
            log.warning("%r failed: %s: %s", job, type(error).__name__, error, exc_info=error)
            outcome = error
        if self._held.drop(job):
            self._settle(job, outcome)
        else:
            log.warning("%r: the handler ended after the lease was given up; the result does not count", job)

    def _settle(self, job: LeasedJob, outcome: Outcome | BaseException) -> None:
        """Report the outcome, for as long as it takes the database to answer; the fence decides whether it still counts."""
        trouble = Pause(*TROUBLE)
        until = time.monotonic() + SETTLE_FOR
        while True:
            try:
                verdict = job.fail(outcome) if isinstance(outcome, BaseException) else job.settle(outcome)
            except StorageError as error:
                wait = trouble.next()
                if time.monotonic() + wait > until or self._left.wait(wait):
                    log.error("%r could not be settled and comes back when its lease runs out: %s", job, error)  # noqa: TRY400
                    self._count("lost", 1)
                    return
                log.warning("settling %r failed, trying again: %s", job, error)
            except Exception as error:
                if isinstance(outcome, BaseException):
                    log.exception("%r could not be settled and comes back when its lease runs out", job)
                    self._count("lost", 1)
                    return
                # The handler returned something that is no outcome, or one with an impossible value.
                log.warning("%r failed: %s", job, error, exc_info=None if isinstance(error, ArgumentError) else error)
                outcome = error
            else:
                break
        if verdict:
            log.debug("%s: %r", _counted_as(outcome), job)
            self._count(_counted_as(outcome), 1)
        else:
            log.warning("%r: the lease was lost before the handler ended; the result does not count", job)
            self._count("lost", 1)

    def _count(self, what: str, number: int) -> None:
        with self._lock:
            setattr(self.summary, what, getattr(self.summary, what) + number)

    # --- the sweeper ------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Delete what was marked as done, from the start on: a worker that runs for a second each minute sweeps too."""
        pause = Pause(SWEEP_EVERY, SWEEP_EVERY)
        while True:
            try:
                self.queue.db.sweep(limit=SWEEP_LIMIT)
            except Exception as error:  # noqa: BLE001 - the next sweep finds the same rows
                log.warning("sweeping failed: %s", error)
            if self._ended.wait(pause.next()):
                return


def _counted_as(outcome: Outcome | BaseException) -> str:
    match outcome:
        case None:
            return "completed"
        case Snooze():
            return "snoozed"
        case Cancel():
            return "cancelled"
        case Dead():
            return "dead"
    return "failed"
