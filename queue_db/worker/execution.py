"""Calls handlers: functions on threads, some of them in processes, coroutines on an event loop. Ends calls early when it must."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason
from queue_db.outcomes import Dead, checked
from queue_db.worker.acknowledger import Acknowledger
from queue_db.worker.events import EventType
from queue_db.worker.executors import Assignment, Loop, Threads
from queue_db.worker.handlers import Handler, Handling, Stoppable, timeout_error
from queue_db.worker.in_flight import InFlight
from queue_db.worker.lease_check import LeaseCheck
from queue_db.worker.logs import about, current
from queue_db.worker.process_pool import ProcessPool
from queue_db.worker.results import Results, log_failure
from queue_db.worker.settling import Done, LeaseLost, is_last

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

# Seconds: the longest pause between two checks of the timeouts of functions.
_CHECK_TIMEOUTS = 0.5


class Execution:
    """The handler calls of one run.

    :param slot_freed: called from any thread, when a slot is free again, with the seconds that its handler took if it was called.
    """

    def __init__(
        self,
        worker: Worker,
        in_flight: InFlight,
        results: Results,
        acknowledger: Acknowledger,
        slot_freed: Callable[[float | None], None],
    ) -> None:
        self._worker = worker
        self._at_most_once = worker.options.at_most_once
        self._in_flight = in_flight
        self._results = results
        self._acknowledger = acknowledger
        self._slot_freed = slot_freed
        self.lease_check = LeaseCheck(worker.db.core, in_flight, self.lose, enabled=not self._at_most_once)
        # Until when each function may run that has a timeout.
        self._deadlines: dict[LeasedJob, tuple[float, Handling]] = {}
        self._wrapped: dict[Handling, Handler] = {}
        self._processes = ProcessPool()
        self._threads: Threads | None = None
        self._loop: Loop | None = None

    # --- the thread in Worker.run() and the claimer's -----------------------------------------------------------------

    def start(self) -> None:
        """Start the threads and the event loop that the handlers need."""
        worker = self._worker
        handlings = worker.handlers.all()
        if any(not one.asynchronous for one in handlings):
            self._threads = Threads(worker.shares.total, self._call, worker.names, worker.shares.urgency())
        if any(one.asynchronous for one in handlings):
            self._loop = Loop(self._await, self._cancelled_early, worker.names)

    def begin(self, assignments: Iterable[Assignment]) -> None:
        """Call the handlers of these jobs as soon as slots are free."""
        functions: list[Assignment] = []
        coroutines: list[Assignment] = []
        for one in assignments:
            (coroutines if one[1].asynchronous else functions).append(one)
        if functions and self._threads is not None:
            self._threads.begin(functions)
        if coroutines and self._loop is not None:
            self._loop.begin(coroutines)

    def unstarted(self) -> list[LeasedJob]:
        """Take back the jobs that wait for a slot; they are no longer in flight."""
        return [] if self._threads is None else [job for job in self._threads.unstarted() if self._in_flight.remove(job)]

    def stop(self) -> list[LeasedJob]:
        """Take the jobs in flight from their handlers and stop these, as far as that is possible; return the jobs."""
        jobs = [job for job in self._in_flight.jobs() if self._in_flight.abandon(job)]
        if jobs:
            for job in jobs:
                self.cancel(job)
            for handling in self._worker.handlers.all():
                function: Any = handling.function
                if isinstance(function, Stoppable):
                    function.stop()
        # Before the jobs are released: their next attempts must not begin while these processes run.
        self._processes.close()
        return jobs

    def close(self) -> None:
        """End the threads and the event loop."""
        for executor in (self._threads, self._loop):
            if executor is not None:
                executor.close()

    # --- handlers' threads ------------------------------------------------------------------------------------------

    def _call(self, job: LeasedJob, handling: Handling) -> None:
        outcome: object
        began: float | None = None
        try:
            if not (self.lease_check.valid(job) or self.lease_check.wait_until_valid(job)):
                self.returned(job)  # its lease was lost while it waited here
                return
            if handling.timeout is not None and handling.watched:
                self._deadlines[job] = (time.monotonic() + handling.timeout, handling)
            began = self._started(job)
            current.set(job)
            if handling.schema is not None:
                handling.read(job)
            outcome = checked((self._wrapped.get(handling) or self._wrapped_handler(handling))(job))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises fails its job only, and the thread goes on
            outcome = error
        current.set(None)
        if handling.timeout is not None:
            self._deadlines.pop(job, None)
        self.finish(job, handling, outcome, began)

    async def _await(self, job: LeasedJob, handling: Handling) -> None:
        outcome: object
        began: float | None = None
        clock: asyncio.Timeout | None = None
        try:
            if not self.lease_check.valid(job) and not await asyncio.to_thread(self.lease_check.wait_until_valid, job):
                self.returned(job)
                return
            began = self._started(job)
            current.set(job)  # of this task
            handling.read(job)
            async with asyncio.timeout(handling.timeout) as clock:
                outcome = checked(await self._wrapped_handler(handling)(job))
        except TimeoutError as error:
            outcome = timeout_error(handling) if clock is not None and clock.expired() else error
        except BaseException as error:  # noqa: BLE001 - CancelledError too: we cancelled it, after its job was abandoned
            outcome = error
        self.finish(job, handling, outcome, began)

    def call(self, job: LeasedJob, handling: Handling) -> object:
        """Call a handler and wait for it; return its outcome, or what it raised. For messages: they are not in flight."""
        current.set(job)
        try:
            if handling.schema is not None:
                handling.read(job)
            function = self._wrapped.get(handling) or self._wrapped_handler(handling)
            if handling.asynchronous and self._loop is not None:
                return self._loop.call(job, within_timeout(handling, function, job))
            return checked(function(job))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises fails its message only
            return error
        finally:
            current.set(None)

    def _cancelled_early(self, job: LeasedJob) -> None:
        """A coroutine was cancelled before its first step; if we cancelled it, its job was abandoned before."""
        self.finish(job, None, asyncio.CancelledError("cancelled before it began"))

    def _started(self, job: LeasedJob) -> float:
        self._results.started(job)
        return time.monotonic()

    def _wrapped_handler(self, handling: Handling) -> Handler:
        """The handler with the wrappers around it."""
        made = self._wrapped.get(handling)
        if made is None:
            function = None if handling.apart is None else partial(self._processes.call, handling)
            made = handling.wrapped(self._worker.wrappers, function)
            self._wrapped[handling] = made
        return made

    # --- the end of a job, in any thread ------------------------------------------------------------------------------

    def finish(
        self,
        job: LeasedJob,
        handling: Handling | None,
        outcome: object,
        began: float | None = None,
        reason: DeathReason | None = None,
    ) -> None:
        """The handler of a job has ended, or was not called; report the outcome, unless the job was abandoned before.

        :param began: when the handler was called, by ``time.monotonic``; None: it was not.
        :param reason: why the job is dead, if it is and its handler has not decided that.
        """
        seconds = job.ran = None if began is None else time.monotonic() - began
        if outcome is not None and outcome is job.misfit:
            outcome, reason = Dead(f"parked: {outcome}"), DeathReason.PAYLOAD
        ticket = self._acknowledger.expect()
        if self._in_flight.remove(job):
            done = Done(job, handling, outcome, ticket, seconds, self._worker.keeps(handling), reason)
            verb = job.settled_by  # read before the report, which settles the job
            self._report(done)
            if isinstance(outcome, BaseException) and (verb is not None or not self._is_last(job)):
                log_failure(job, outcome, verb, seconds)
        else:
            self._acknowledger.withdraw(ticket)
            self._in_flight.returned(job)
            if began is not None:
                message = "%r: the handler ended after its job was abandoned; the result does not count"
                log.warning(message, job, extra=about(job, seconds=seconds))
        self._slot_freed(seconds)

    def returned(self, job: LeasedJob) -> None:
        """An abandoned job has left its slot: its handler will not be called."""
        self._in_flight.returned(job)
        self._slot_freed(None)

    def lose(self, job: LeasedJob) -> None:
        """The lease of a job is lost. In the thread that extends leases, or that claims: neither waits for hooks and logs."""
        self._end_early(job, None, LeaseLost())

    def watch_timeouts(self, stopped: threading.Event) -> None:
        """Fail the attempts of functions that run longer than their timeouts; a thread of its own, until ``stopped``."""
        shortest = min(one.timeout for one in self._worker.handlers.all() if one.timeout is not None and one.watched)
        while not stopped.wait(min(shortest / 4, _CHECK_TIMEOUTS)):
            now = time.monotonic()
            for job, (until, handling) in list(self._deadlines.items()):
                if now < until or self._deadlines.pop(job, None) is None:
                    continue
                if self._end_early(job, handling, timeout_error(handling), handling.timeout) and not self._is_last(job):
                    message = "%r: no result after %g s; its thread keeps a slot until it returns"
                    log.warning(message, job, handling.timeout, extra=about(job, EventType.FAILED, handling.timeout))

    def _end_early(self, job: LeasedJob, handling: Handling | None, outcome: object, seconds: float | None = None) -> bool:
        """Abandon a job whose handler runs, and report this outcome; False: the job was removed before."""
        ticket = self._acknowledger.expect()
        if not self._in_flight.abandon(job):
            self._acknowledger.withdraw(ticket)
            return False
        job.ran = seconds
        self.cancel(job)
        self._report(Done(job, handling, outcome, ticket))
        return True

    def _is_last(self, job: LeasedJob) -> bool:
        return self._at_most_once or is_last(job)

    def _report(self, done: Done) -> None:
        if self._at_most_once:
            try:
                self._results.ended_at_most_once(done)
            finally:
                self._acknowledger.withdraw(done.ticket)
        else:
            self._results.ended(done)
            self._acknowledger.put(done)

    def cancel(self, job: LeasedJob) -> None:
        """Let the handler of an abandoned job end, as far as that is possible."""
        job.lost.set()
        if self._loop is not None:
            self._loop.cancel(job)
        self._processes.cancel(job)


async def within_timeout(handling: Handling, function: Handler, job: LeasedJob) -> object:
    """Await a coroutine of a handler, no longer than its timeout."""
    current.set(job)  # of this task
    clock = asyncio.timeout(handling.timeout)
    try:
        async with clock:
            return checked(await function(job))
    except TimeoutError as error:
        if clock.expired():
            raise timeout_error(handling) from error
        raise
