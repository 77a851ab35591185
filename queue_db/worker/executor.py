"""Calls handlers: functions on threads or in processes, coroutines on an event loop. Ends calls after lost leases and timeouts."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from queue_db.errors import LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason
from queue_db.outcomes import Suspended, checked
from queue_db.slices import load
from queue_db.worker.completer import JobResult, LeaseLost, PendingJob, is_last, parked
from queue_db.worker.events import EventType, log_failure
from queue_db.worker.handlers import Handler, HandlerSpec, Stoppable, timeout_error
from queue_db.worker.interruptions import MAYBE_INTERRUPTED, STOP_FOLLOWS, Interrupted, may_be
from queue_db.worker.leases import LeaseCheck
from queue_db.worker.lists import Calls, Lists, of_one
from queue_db.worker.logs import about, current
from queue_db.worker.threads import Assignment, Threads, urgency_of

if TYPE_CHECKING:
    from queue_db.processes.pool import ProcessPool
    from queue_db.worker.run import Run

log = logging.getLogger("queue_db.worker")

# Seconds: the longest pause between two checks of the timeouts of functions.
_CHECK_TIMEOUTS = 0.5

Work = Callable[[LeasedJob, HandlerSpec], Coroutine[Any, Any, None]]


class UnbegunError(asyncio.CancelledError):
    """A coroutine was cancelled before its first step."""


class Loop:
    """Calls coroutines, all on one event loop in a thread of its own. :class:`HostedLoop` calls them on the application's loop.

    :param work: calls the handler of a job and reports its end, even after a cancellation; raises nothing.
    :param unbegun: reports the end of a job whose coroutine was cancelled before its first step.
    """

    def __init__(self, work: Work, unbegun: Callable[[LeasedJob, HandlerSpec], None], name: str) -> None:
        self._work = work
        self._unbegun = unbegun
        # The tasks of the running coroutines.
        self._tasks: dict[LeasedJob, asyncio.Task[Any] | None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"queue_db event loop of {name}", daemon=True)
        self._thread.start()

    def begin(self, assignments: Sequence[Assignment]) -> None:
        """Call the handlers of these jobs at once."""
        self._loop.call_soon_threadsafe(self._begin, list(assignments))

    def cancel(self, job: LeasedJob) -> None:
        """Cancel the coroutine of this job, if it has begun."""
        self._loop.call_soon_threadsafe(self._cancel, job)

    def call(self, job: LeasedJob, coroutine: Coroutine[Any, Any, object]) -> object:
        """Run a coroutine on the loop, and wait in the calling thread for its result. :meth:`cancel` cancels the coroutine."""
        return asyncio.run_coroutine_threadsafe(self._noted(job, coroutine), self._loop).result()

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine on the loop, and wait for its end in the calling thread."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Cancel the running coroutines and end the loop."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._end)

    def _begin(self, assignments: list[Assignment]) -> None:
        for job, spec in assignments:
            work = self._work(job, spec)
            self._loop.create_task(self._noted(job, work)).add_done_callback(partial(self._ended, job, spec, work))

    def _ended(self, job: LeasedJob, spec: HandlerSpec, work: Coroutine[Any, Any, None], _: asyncio.Task[Any]) -> None:
        if getcoroutinestate(work) == CORO_CREATED:  # the application has cancelled all tasks of its loop, for example
            work.close()
            self._unbegun(job, spec)

    async def _noted(self, job: LeasedJob, coroutine: Coroutine[Any, Any, object]) -> object:
        self._tasks[job] = asyncio.current_task()
        try:
            return await coroutine
        finally:
            del self._tasks[job]

    def _cancel(self, job: LeasedJob) -> None:
        task = self._tasks.get(job)
        if task is not None:
            task.cancel()

    def _end(self) -> None:
        for task in list(self._tasks.values()):
            if task is not None:
                task.cancel()
        self._loop.call_soon(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class Execution:
    """The handler calls of one run."""

    def __init__(self, run: Run) -> None:
        self._worker = worker = run.worker
        self._at_most_once = worker.options.at_most_once
        self._in_flight = run.in_flight
        self._results = run.results
        self._pending = run.completer.pending
        # With at_most_once a claimed job has no row any more: its result is reported at once, before its slot is free.
        self._put = self._end_at_most_once if self._at_most_once else run.completer.put
        # With at_most_once one thread makes the reports of coroutines and timeouts. So a slow listener delays neither the event
        # loop nor the thread in Worker.run().
        self._reports: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._start_thread = run.thread
        self._reporting: threading.Thread | None = None
        self._hooks = worker.hooks
        self._result_ttl = worker.options.result_ttl
        self._slot_freed = run.fetcher.freed
        self.lease_check = LeaseCheck(worker.db.core, run.in_flight, self.lose, enabled=not self._at_most_once)
        # The deadline of each running function that has a timeout.
        self._deadlines: dict[LeasedJob, tuple[float, HandlerSpec]] = {}
        self._wrapped: dict[HandlerSpec, Handler] = {}
        self._wrapping = threading.Lock()
        self._stopping = run.stopping
        self._stopped = False
        self._processes: ProcessPool | None = None  # made for the first handler that needs it
        self._threads: Threads | None = None
        self._loop: Loop | None = None
        self._lists: Lists | None = None  # of the handlers of many jobs
        self._hosted = worker.hosted

    # --- called by the thread in Worker.run() and by the fetcher ------------------------------------------------------

    def start(self) -> None:
        """Start the threads and the event loop that the handlers need."""
        worker = self._worker
        specs = worker.handlers.all()
        if self._at_most_once:
            self._reporting = self._start_thread("reports", self._report_in_turn)
        if any(spec.many is not None for spec in specs):
            calls = Calls(self._in_flight, self.lease_check, self._begun, self._ended, self.returned, within_timeout)
            self._lists = Lists(calls)
        if not all(spec.asynchronous for spec in specs):
            options = worker.options
            self._threads = Threads(options.slots, self._call, options.names, urgency_of(options))
        if any(spec.asynchronous for spec in specs) or worker.ends.need_loop:
            hosted = self._hosted
            named = worker.options.names
            both = self._await, self._unbegun
            self._loop = Loop(*both, named) if hosted is None else hosted.coroutines(*both)

    def begin(self, assignments: Sequence[Assignment]) -> None:
        """Call the handlers of these jobs as soon as slots are free."""
        if self._lists is not None:
            assignments = self._lists.join(assignments)
        functions = assignments
        if self._loop is not None:
            functions = [assignment for assignment in assignments if not assignment[1].asynchronous]
            if len(functions) < len(assignments):
                self._loop.begin([assignment for assignment in assignments if assignment[1].asynchronous])
        if functions and self._threads is not None:
            self._threads.begin(functions)

    def unstarted(self) -> list[LeasedJob]:
        """Return the jobs that wait for slots, or in lists. They are no longer in flight."""
        waiting = [*self._threads.unstarted()] if self._threads is not None else []
        waiting += self._lists.unstarted() if self._lists is not None else []
        return [job for job in waiting if self._in_flight.remove(job)]

    def stop(self, longest: float) -> list[LeasedJob]:
        """Abandon the jobs in flight, and stop the handlers that can be stopped; return the jobs.

        :param longest: seconds to wait for the reports of handlers that have ended.
        """
        if self._reporting is not None:
            self._reports.put(None)
            self._reporting.join(longest)
        jobs = [job for job in self._in_flight.jobs() if self._in_flight.abandon(job)]
        if jobs:
            for job in jobs:
                self.cancel(job)
            for spec in self._worker.handlers.all():
                function: Any = spec.function
                if isinstance(function, Stoppable):
                    function.stop()
        # Close before the caller releases the jobs: their next attempts must not begin while these processes run.
        with self._wrapping:
            self._stopped = True
            processes = self._processes
        if processes is not None:
            processes.close()
        return jobs

    def call_hook(self, hook: Callable[[], object]) -> None:
        """Call a hook of the start or of the end: a function here, a coroutine on the event loop of the handlers."""
        returned = hook()
        if self._loop is not None and isinstance(returned, Coroutine):
            self._loop.run(returned)

    def close(self) -> None:
        """End the threads and the event loop."""
        for executor in (self._threads, self._loop):
            if executor is not None:
                executor.close()

    # --- handlers' threads ------------------------------------------------------------------------------------------

    def _call(self, job: LeasedJob, spec: HandlerSpec) -> None:
        if spec.many is not None and self._lists is not None:
            self._lists.call(job, spec)
            return
        outcome: object
        began: float | None = None
        try:
            if not (self.lease_check.valid(job) or self.lease_check.wait_until_valid(job)):
                self.returned(job)  # the lease was lost before the handler was called
                return
            if spec.timeout is not None and spec.watched:
                self._deadlines[job] = (time.monotonic() + spec.timeout, spec)
            if self._hooks:
                self._results.started(job)
            began = time.monotonic()
            outcome = self.call(job, spec)
        except BaseException as error:  # noqa: BLE001 - a mistake here fails this job only, and the thread goes on
            outcome = error
        if spec.timeout is not None:
            self._deadlines.pop(job, None)
        self.finish(job, spec, outcome, None if began is None else time.monotonic() - began)

    async def _await(self, job: LeasedJob, spec: HandlerSpec) -> None:
        if spec.many is not None and self._lists is not None:
            await self._lists.call_on_loop(job, spec)
            return
        outcome: object
        began: float | None = None
        try:
            check = self.lease_check
            if not check.valid(job) and not (job in self._in_flight and await asyncio.to_thread(check.wait_until_valid, job)):
                self.returned(job)
                return
            self._results.started(job)
            began = time.monotonic()
            current.set(job)  # for the log lines of this task
            spec.read(job)
            outcome = await within_timeout(spec, self._wrapped_handler(spec), job)
        except BaseException as error:  # noqa: BLE001 - also CancelledError, after the job was abandoned
            outcome = error
        self._finish_on_loop(job, spec, outcome, None if began is None else time.monotonic() - began)

    def _finish_on_loop(self, job: LeasedJob, spec: HandlerSpec, outcome: object, seconds: float | None) -> None:
        # With at_most_once there is no row to release: such a job is lost.
        may_return = self._hosted is not None and not self._at_most_once and job in self._in_flight
        if may_return and isinstance(outcome, BaseException) and was_cancelled(outcome):
            log.info("%r: the application has cancelled its coroutine; the attempt does not count", job, extra=about(job))
            outcome = Interrupted(outcome, self._worker.options.max_interruptions)
        if self._at_most_once and outcome is not None and job in self._in_flight:
            self._reports.put(partial(self.finish, job, spec, outcome, seconds))  # the loop does not wait for other reports
        else:
            self.finish(job, spec, outcome, seconds)

    def _unbegun(self, job: LeasedJob, spec: HandlerSpec) -> None:
        if spec.many is not None and self._lists is not None:
            self._lists.unbegun(job, spec, UnbegunError())
        else:
            self._finish_on_loop(job, spec, UnbegunError(), None)

    def _begun(self, jobs: Sequence[LeasedJob], spec: HandlerSpec) -> Handler:
        """Note that the handler of a list is about to be called with these jobs; return its function."""
        if spec.watched and spec.timeout is not None:
            self._deadlines.update(dict.fromkeys(jobs, (time.monotonic() + spec.timeout, spec)))
        for job in jobs:
            self._results.started(job)
        return self._wrapped_handler(spec)

    def _ended(self, job: LeasedJob, spec: HandlerSpec, outcome: object, seconds: float | None) -> None:
        """Report the outcome of a job of a list."""
        self._deadlines.pop(job, None)
        finish = self._finish_on_loop if spec.asynchronous else self.finish
        finish(job, spec, outcome, seconds)

    def call(self, job: LeasedJob, spec: HandlerSpec) -> object:
        """Call a handler; return its outcome, or the exception that it raised. Slots for feeds use this for messages."""
        current.set(job)
        try:
            if spec.schema is not None:
                spec.read(job)
            function = self._wrapped.get(spec) or self._wrapped_handler(spec)
            if spec.many is not None:
                function = of_one(spec, function)
            if spec.asynchronous and self._loop is not None:
                return self._loop.call(job, within_timeout(spec, function, job))
            outcome = function(job)
            return None if outcome is None else checked(outcome)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises fails its job only
            return error
        finally:
            current.set(None)

    def _wrapped_handler(self, spec: HandlerSpec) -> Handler:
        """The handler's function inside the wrappers. It is made at the first call and kept."""
        with self._wrapping:
            if spec not in self._wrapped:
                function = None
                if spec.apart is not None:
                    if self._processes is None:
                        self._processes = load("processes.pool", "ProcessPool")(self._worker.options.max_memory)
                        if self._stopped:  # a hook or a schema has held this thread up
                            self._processes.close()
                    function = partial(self._processes.call, spec)
                self._wrapped[spec] = spec.wrapped(self._worker.wrappers, function)
            return self._wrapped[spec]

    # --- the end of a job, in any thread ------------------------------------------------------------------------------

    def finish(
        self,
        job: LeasedJob,
        spec: HandlerSpec | None,
        outcome: object,
        seconds: float | None = None,
        reason: DeathReason | None = None,
    ) -> None:
        """Report the outcome of a job and free its slot. If the job was abandoned before, the outcome does not count.

        :param seconds: how long the handler ran; None: the handler was not called.
        :param reason: the reason if the worker itself moves the job to the dead table; otherwise None.
        """
        job.ran = seconds
        if isinstance(outcome, Suspended) and job.settled:
            outcome = None  # a verb of the job has ended its run
        if reason is None:
            outcome, reason = parked(job, outcome, self._worker.options)
        if isinstance(outcome, MAYBE_INTERRUPTED):
            outcome = self._as_interrupted(outcome, job)
        pending: PendingJob = object()
        self._pending[pending] = None
        if self._in_flight.remove(job):
            result_ttl = self._result_ttl if spec is None or spec.result_ttl is None else spec.result_ttl
            verb = job.settled_by  # read before the report, which settles the job
            done = JobResult(job, spec, outcome, seconds, result_ttl, reason, pending=pending)
            if self._hooks:
                self._results.ended(done)
            self._put(done)
            if isinstance(outcome, BaseException):
                late = self._is_last(job, spec, outcome) or isinstance(outcome, LeaseLostError)  # logged when the job is settled
                if verb is not None or not late:
                    log_failure(job, outcome, verb, seconds)
        else:
            self._pending.pop(pending, None)
            self._in_flight.returned(job)
            # With another verb the handler has settled its job.
            if seconds is not None and job.settled_by in {None, "fail", "release", "interrupt"}:
                message = "%r: the handler ended after its job was abandoned; the result does not count"
                log.warning(message, job, extra=about(job, seconds=seconds))
        self._slot_freed(seconds)

    def _as_interrupted(self, outcome: object, job: LeasedJob) -> object:
        """The outcome as an interruption, if the stop of the worker may be its cause."""
        if self._at_most_once or job.settled or job not in self._in_flight or not may_be(outcome):
            return outcome
        # A service manager sends the signal to all processes: this program may have ended before the worker knows.
        if not self._stopping.wait(0.0 if isinstance(outcome, asyncio.CancelledError) else STOP_FOLLOWS):
            return outcome
        log.info("%r was interrupted by the stop of the worker", job, extra=about(job, EventType.RELEASED))
        return Interrupted(outcome, self._worker.options.max_interruptions)

    def returned(self, job: LeasedJob) -> None:
        """Free the slot of an abandoned job whose handler will not be called."""
        self._in_flight.returned(job)
        self._slot_freed(None)

    def lose(self, job: LeasedJob) -> None:
        """Abandon a job whose lease is lost. The completer calls the hooks and writes the log, so this returns at once."""
        self._end_early(job, None, LeaseLost())

    @property
    def timeouts_every(self) -> float:
        """Seconds between two checks of timeouts."""
        timeouts = [spec.timeout / 4 for spec in self._worker.handlers.all() if spec.timeout is not None and spec.watched]
        return min([_CHECK_TIMEOUTS, *timeouts])

    def check_timeouts(self) -> None:
        """Fail the attempts of functions that run longer than their timeouts."""
        now = time.monotonic()
        for job, (until, spec) in list(self._deadlines.items()):
            if now < until or self._deadlines.pop(job, None) is None:
                continue
            outcome = None if job.settled else EventType.FAILED
            error = timeout_error(spec)
            if self._end_early(job, spec, error, spec.timeout) and not self._is_last(job, spec, error):
                message = "%r: no result after %g s; its thread keeps a slot until it returns"
                log.warning(message, job, spec.timeout, extra=about(job, outcome, spec.timeout))

    def _end_early(self, job: LeasedJob, spec: HandlerSpec | None, outcome: object, seconds: float | None = None) -> bool:
        """Abandon a job whose handler runs, and report ``outcome``; False: the job was not in flight any more."""
        pending: PendingJob = object()
        try:
            self._pending[pending] = None
            if not self._in_flight.abandon(job):
                self._pending.pop(pending, None)
                return False
            job.ran = seconds
            self.cancel(job)
            done = JobResult(job, spec, outcome, pending=pending)
            if self._at_most_once:
                self._reports.put(partial(self._report, done))
            else:
                self._report(done)
        except BaseException:  # raised by a signal handler in the main thread: the result will not be reported
            self._pending.pop(pending, None)
            raise
        return True

    def _report(self, done: JobResult) -> None:
        if self._hooks:
            self._results.ended(done)
        self._put(done)

    def _report_in_turn(self) -> None:
        while (report := self._reports.get()) is not None:
            try:
                report()
            except BaseException:
                log.exception("an outcome could not be reported")

    def _end_at_most_once(self, done: JobResult) -> None:
        try:
            self._results.ended_at_most_once(done)
        finally:
            self._pending.pop(done.pending, None)

    def _is_last(self, job: LeasedJob, spec: HandlerSpec | None, outcome: object) -> bool:
        return self._at_most_once or is_last(job, spec, outcome)

    def cancel(self, job: LeasedJob) -> None:
        """End the handler of an abandoned job: set ``job.lost``, and cancel its coroutine or stop its process."""
        job.lost.set()
        called = job if self._lists is None else self._lists.to_cancel(job)
        for executor in (self._loop, self._processes):
            if executor is not None and called is not None:
                executor.cancel(called)


async def within_timeout(spec: HandlerSpec, function: Handler, job: LeasedJob) -> object:
    """Await the coroutine of a handler within its timeout; return its outcome, or the error of the timeout."""
    current.set(job)  # for the log lines of this task
    clock = asyncio.timeout(spec.timeout)
    try:
        async with clock:
            return checked(await function(job))
    except TimeoutError:
        if clock.expired():
            return timeout_error(spec)  # not raised: its traceback would show this package only
        raise


def was_cancelled(error: BaseException) -> bool:
    """Whether a task was cancelled by a call of its ``cancel``, and not by a future that it awaits."""
    if isinstance(error, UnbegunError):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
