"""One run of a worker: its threads, the jobs in hand, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from queue import Empty
from typing import TYPE_CHECKING, Any

from queue_db.errors import StorageError, UnknownKindError, text_of
from queue_db.leased_job import LeasedJob, claimed_by
from queue_db.model import DeathReason, Verdict
from queue_db.notifications.deaths import Death
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.worker.acknowledger import Acknowledger
from queue_db.worker.alone import Alone
from queue_db.worker.claimer import Claimer
from queue_db.worker.events import EventType, JobEvent
from queue_db.worker.executors import Assignment, Loop, Threads
from queue_db.worker.handlers import Handler, Handling, Stoppable, late
from queue_db.worker.heartbeat import Heartbeat
from queue_db.worker.in_flight import InFlight
from queue_db.worker.lease_check import CHECK_EVERY, LeaseCheck
from queue_db.worker.logs import about
from queue_db.worker.maintenance import (
    PRUNE_EVERY,
    PeriodicTask,
    enqueue_scheduled,
    prune_dead,
    prune_expired,
    repair_groups,
    run_periodically,
    sweep_completed,
)
from queue_db.worker.outages import Activity, outages_of
from queue_db.worker.process_pool import ProcessPool
from queue_db.worker.progress import TELL_EVERY, Progress
from queue_db.worker.registration import Registration, Status, rescue_dead
from queue_db.worker.settling import Done, LeaseLost, Unknown
from queue_db.worker.signals import Ended, Mail, Quiet, Show, Stop, is_hangup, stacks

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

#: Seconds between tries while the database does not answer: first, longest.
TROUBLE = (0.1, 3.0)

# How long leaving waits for a claim that is under way, and for the last results to be reported, seconds.
_CLAIMS = 5.0
_REPORTS = 10.0

# Between two looks whether there was a signal, seconds. Mostly it ends the wait; but one that comes right after a SIGCONT goes to
# any thread, and Python's handler waits for the main thread to wake up.
_SIGNALS = 0.5

# Between two looks whether all is reported, seconds.
_REPORTED = 0.005

# Seconds: the longest pause between two looks at jobs whose time may be over.
_LOOK_AT_TIMES = 0.5

#: A handler is stuck whose job was taken from it so many seconds ago: a coroutine or a process that is stopped ends before.
STUCK_AFTER = 5.0

# Seconds between two looks at how many handlers are stuck.
_LOOK_AT_STUCK = 1.0

# The most kinds without handlers that are logged by name.
_MOST_KINDS = 1000


@dataclass(slots=True)
class Summary:
    """What became of the jobs that a worker claimed."""

    completed: int = 0
    failed: int = 0  #: the attempt failed, and there will be another one
    snoozed: int = 0  #: by the handler; or there is no handler for the kind yet
    cancelled: int = 0
    #: It was the last attempt, for whatever reason: as many as the dead table got from this worker. With ``at_most_once`` that gets
    #: none: these jobs were not done, and do not come back.
    dead: int = 0
    released: int = 0  #: given back unfinished, by the handler or when the worker stopped
    lost: int = 0  #: the lease was lost, or the result could not be reported: another worker gets the job
    signal: int | None = None  #: number of the signal that stopped the worker
    stuck: int = 0  #: slots of handlers that had not come back when ``exit_when_stuck`` stopped the worker


class Run:
    """One run of a worker: its threads and the jobs in hand."""

    def __init__(self, worker: Worker, mail: Mail, lock: threading.Lock) -> None:
        self._worker = worker
        self._mail = mail
        self._lock = lock
        self._at_most_once = worker.mode == "at_most_once"
        self._names = worker.names
        self.in_flight = InFlight(worker.shares.queues)
        self._progress = Progress(worker.db, self.in_flight)
        self._times: dict[LeasedJob, tuple[float, Handling]] = {}
        self._around: dict[Handling, Handler] = {}
        # How handlers ended, while that is being reported.
        self._ends: dict[LeasedJob, Done] = {}
        self._unknown: set[str] = set()
        self._activities: list[Activity] = []
        self._lease_check = LeaseCheck(worker.db, self.in_flight, self._lose, enabled=not self._at_most_once)
        self._acknowledger = Acknowledger(self._told, TROUBLE, self._activity())
        self._claimer = Claimer(
            worker.db,
            worker.shares,
            lease=worker.lease,
            at_most_once=self._at_most_once,
            poll=worker.poll,
            trouble=TROUBLE,
            in_hand=self.in_flight.in_use,
            take=self._take,
            idle=lambda: not self.in_flight and not self._acknowledger,
            quiet=worker.hushed,
            cancelled=self._lease_check.check_cancelled,
        )
        self._alone = Alone(
            worker.db,
            self.in_flight,
            busy=lambda: bool(self._acknowledger),
            stopping=self._claimer.stopping,
            meanwhile=self._claimer.keep_allowance,
            trouble=TROUBLE,
        )
        self._registration = Registration(worker.db, worker.shares.queues, self._status)
        self._left = threading.Event()
        self._ended = threading.Event()
        self._helpers: list[threading.Thread] = []
        self._functions: Threads | None = None
        self._coroutines: Loop | None = None
        self._processes = ProcessPool()

    # --- the thread in Worker.run() ---------------------------------------------------------------------------------

    def start(self, *, until_empty: bool, started: Callable[[], None] | None) -> None:
        """Start everything."""
        worker = self._worker
        worker.db.deaths.add(self._dead)
        handlings = worker.handlers.all()
        if any(not one.asynchronous for one in handlings):
            self._functions = Threads(worker.shares.total, self._call, self._names, worker.shares.urgency())
        if any(one.asynchronous for one in handlings):
            self._coroutines = Loop(self._await, self._never_began, self._names)
        self._reporting = self._thread("acknowledger", self._acknowledger.run)
        tasks: list[tuple[float, PeriodicTask]] = [(0.0, self._registration.report)]
        if not self._at_most_once:
            # A thread and a connection of its own: the other tasks may wait for locks, longer than a lease lasts.
            beat = Heartbeat(self.in_flight, worker.lease, self._lose, self._activity()).beat
            looks = [(worker.lease / 3, beat), (CHECK_EVERY, self._lease_check.check)]
            self._helpers.append(self._thread("heartbeat", run_periodically, looks, self._ended))
            tasks.append((TELL_EVERY, self._progress.tell))
        if worker.exit_when_stuck is not None:
            tasks.append((0.0, self._look_at_stuck))
        self._helpers.append(self._thread("maintenance", run_periodically, tasks, self._ended))
        # Threads of their own for what may wait for locks, again and again: the others must not wait with it.
        if worker.schedules:
            ticks = [(0.0, enqueue_scheduled(worker.db, TROUBLE, self._activity()))]
            self._helpers.append(self._thread("scheduler", run_periodically, ticks, self._ended))
        self._helpers.append(self._thread("cleanup", run_periodically, self._cleanup(), self._ended))
        if any(one.watched for one in handlings):
            self._helpers.append(self._thread("timeouts", self._watch_times))
        if started is not None:
            started()
        self._claiming = self._thread("claimer", self._claim, until_empty)
        log.info(
            "working on %s: %d at once, %s, lease %g s",
            self._names,
            worker.shares.total,
            worker.mode.replace("_", " "),
            worker.lease,
        )

    def _cleanup(self) -> list[tuple[float, PeriodicTask]]:
        """What must be done some time, and may take its time."""
        worker = self._worker
        tasks: list[tuple[float, PeriodicTask]] = [
            (0.0, rescue_dead(self._registration)),
            (PRUNE_EVERY * random.random(), prune_expired(worker.db, self._activity())),
            (PRUNE_EVERY * random.random(), repair_groups(worker.db, worker.shares.queues, self._activity())),
        ]
        if worker.dead_for is not None or worker.dead_at_most is not None:
            tasks.append((0.0, prune_dead(worker.db, worker.shares.queues, worker.dead_for, worker.dead_at_most, self._activity())))
        if worker.db.removal.marks:
            tasks.append((0.0, sweep_completed(worker.db, self._activity())))
        return tasks

    def watch(self) -> None:
        """Until the claimer has ended, no handler runs and all is reported, or the grace time of a stop is over."""
        deadline = math.inf
        ending = False
        while not ending or self.in_flight or self._acknowledger:
            # Nobody says when the last result is reported: it takes a moment, or as long as the database is away.
            longest = _REPORTED if ending and not self.in_flight else _SIGNALS
            try:
                mail = self._mail.get(timeout=max(0.0, min(longest, deadline - time.monotonic())))
            except Empty:
                if time.monotonic() >= deadline:
                    return
                continue
            if isinstance(mail, Ended):
                if mail.run is self:
                    ending = True
                    self._give_back_unstarted()
                continue
            if isinstance(mail, Show):
                log.info("what every thread does:\n%s", stacks())
                continue
            if isinstance(mail, Quiet):
                self._hush(on=mail.on)
                continue
            # Before it is said: whoever reads that may let the handlers go on.
            self._claimer.stop()
            grace = self._worker.grace if mail.grace is None else mail.grace
            if mail.signal is not None:
                summary = self._worker.summary
                if summary.signal is not None and not is_hangup(mail.signal):
                    grace = 0.0
                summary.signal = mail.signal
                how = f"up to {grace:g} s for running jobs, a second signal leaves at once" if grace else "leaving"
                log.info("%s: no more claims, %s", signal.Signals(mail.signal).name, how)
            deadline = min(deadline, time.monotonic() + grace)

    def _hush(self, *, on: bool) -> None:
        (self._worker.quiet if on else self._worker.resume)()
        # Service managers send SIGCONT after SIGTERM.
        if not self._claimer.stopping.is_set():
            self._claimer.wakeup.set()
            log.info("quiet: no more claims until SIGCONT" if on else "claiming again")

    def leave(self) -> None:
        """Give back what is still held, report what is finished, end the threads."""
        self._claiming.join(_CLAIMS)
        self._left.set()
        jobs = [job for job in self.in_flight.jobs() if self.in_flight.abandon(job)]
        if jobs:
            for job in jobs:
                self._warn(job)
            for handling in self._worker.handlers.all():
                function: Any = handling.function
                if isinstance(function, Stoppable):
                    function.stop()
        # Before their jobs are given back: others must not begin while they are still at it.
        self._processes.close()
        if jobs:
            self._release(jobs)
        for executor in (self._functions, self._coroutines):
            if executor is not None:
                executor.close()
        self._acknowledger.close()
        self._reporting.join(_REPORTS)
        self._claimer.leave()
        self._ended.set()
        for helper in self._helpers:
            helper.join(1.0)
        for activity in self._activities:
            activity.ended()
        self._registration.deregister()
        self._worker.db.deaths.remove(self._dead)

    def _activity(self) -> Activity:
        """Of one thread, whose failures it logs."""
        self._activities.append(outages_of(self._worker.db.url).activity())
        return self._activities[-1]

    def _thread(self, name: str, target: Any, *args: Any) -> threading.Thread:
        # Daemons: what waits for a database that does not answer must not keep the process from ending.
        thread = threading.Thread(target=target, args=args, name=f"queue_db {name} of {self._names}", daemon=True)
        thread.start()
        return thread

    def _claim(self, until_empty: bool) -> None:
        try:
            with claimed_by(self):
                self._claimer.run(until_empty=until_empty)
        finally:
            self._mail.put(Ended(self))

    def _give_back_unstarted(self) -> None:
        """So that others need not wait for the handlers before them here."""
        if self._functions is not None:
            jobs = [job for job in self._functions.unstarted() if self.in_flight.remove(job)]
            if jobs:
                self._release(jobs)

    def _release(self, jobs: list[LeasedJob]) -> None:
        if self._at_most_once:
            for job in jobs:
                self._ended_at_most_once(Done(job, None, _NOT_DONE, object(), reason=DeathReason.EXHAUSTED))
            return
        given = 0
        for queue in {job.queue for job in jobs}:
            mine = [job for job in jobs if job.queue == queue]
            verdicts: list[Verdict] = []
            try:
                verdicts = self._worker.db.queue(queue).release_many(mine)
            except StorageError as error:
                log.warning("%d jobs could not be released and come back when their leases run out: %s", len(mine), error)
            for job, verdict in zip_longest(mine, verdicts):
                if verdict is Verdict.LOST and job.settled:
                    # By its handler, which goes on all the same.
                    self._told(Done(job, None, None, object()), verdict)
                    continue
                what = EventType.RELEASED if verdict else EventType.LOST
                given += bool(verdict)
                self._count(what.value, 1)
                if verdict is Verdict.LOST:
                    log.warning("%r: the lease was lost before the job could be released", job, extra=about(job, what))
                if self._worker.hooks:
                    self._tell(JobEvent(what, job))
        log.info("released %d unfinished jobs", given)

    def _status(self) -> Status:
        """What people may see of it."""
        worker = self._worker
        state = "stopping" if self._claimer.stopping.is_set() else "quiet" if worker.hushed.is_set() else "working"
        with self._lock:
            counted = {name: number for name, number in asdict(worker.summary).items() if name not in ("signal", "stuck")}
        return Status(state, len(self.in_flight), counted, self.stuck)

    @property
    def stuck(self) -> int:
        """Slots of handlers that have not come back although their jobs were taken from them."""
        return self.in_flight.stuck(STUCK_AFTER)

    # --- the claimer's thread ---------------------------------------------------------------------------------------

    def _take(self, queue: str, jobs: list[LeasedJob]) -> None:
        self.in_flight.add(queue, jobs)
        if self._left.is_set():
            # The claim took longer than the stop waited for it.
            self._release([job for job in jobs if self.in_flight.remove(job)])
            return
        functions: list[Assignment] = []
        coroutines: list[Assignment] = []
        for job in jobs:
            if not self._at_most_once:
                job.report_progress_to(self._progress.say)
            try:
                handling = self._worker.handlers.of(job)
            except UnknownKindError as error:
                self._no_handler(job, error)
                continue
            if handling.exhausted(job):
                reason = f"no verdict after {handling.max_attempts} attempts: each worker vanished or overran its lease"
                reason += f"; last error: {job.last_error}" if job.last_error else ""
                self._finish(job, handling, Dead(reason), reason=DeathReason.EXHAUSTED)
                continue
            (coroutines if handling.asynchronous else functions).append((job, handling))
        handlings = dict(functions + coroutines)
        suspects = [] if self._at_most_once else self._alone.suspects(list(handlings))
        self._begin([one for one in functions if one[0] not in suspects], [one for one in coroutines if one[0] not in suspects])
        if suspects:
            self._alone.run(suspects, lambda job: self._begin_alone(job, handlings[job]), self._drop_suspect)

    def _begin(self, functions: list[Assignment], coroutines: list[Assignment]) -> None:
        if functions and self._functions is not None:
            self._functions.begin(functions)
        if coroutines and self._coroutines is not None:
            self._coroutines.begin(coroutines)

    def _begin_alone(self, job: LeasedJob, handling: Handling) -> None:
        one = [(job, handling)]
        self._begin([], one) if handling.asynchronous else self._begin(one, [])

    def _drop_suspect(self, job: LeasedJob) -> None:
        """Give back a job that was held back and does not begin: its lease is lost, or the worker stops."""
        if not self.in_flight.remove(job):
            self._gone(job)
            return
        # To be given back takes an attempt off, and this one has none on.
        with suppress(StorageError):
            self._worker.db.queue(job.queue).recount([job], by=1)
        self._release([job])

    def _no_handler(self, job: LeasedJob, error: UnknownKindError) -> None:
        worker = self._worker
        if self._at_most_once or worker.unknown == "dead":
            self._finish(job, None, Dead(f"parked: {error}"), reason=DeathReason.UNKNOWN_KIND)
            return
        if job.kind not in self._unknown and len(self._unknown) < _MOST_KINDS:
            self._unknown.add(job.kind)
            message = "%s; its jobs wait for a worker that has one, and are dead after %g s"
            log.warning(message, error, worker.unknown_grace, extra=about(job))
        self._finish(job, None, Unknown(error, worker.unknown_grace))

    # --- handlers' threads ------------------------------------------------------------------------------------------

    def _call(self, job: LeasedJob, handling: Handling) -> None:
        outcome: object
        began: float | None = None
        try:
            if not self._lease_check.wait_until_valid(job):
                self._gone(job)  # lost while it waited here
                return
            if handling.timeout is not None and handling.watched:
                self._times[job] = (time.monotonic() + handling.timeout, handling)
            began = self._begun(job)
            handling.read(job)
            outcome = self._wrapped(handling)(job)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's, and the thread goes on
            outcome = error
        self._times.pop(job, None)
        self._finish(job, handling, outcome, began)

    async def _await(self, job: LeasedJob, handling: Handling) -> None:
        outcome: object
        began: float | None = None
        clock: asyncio.Timeout | None = None
        try:
            if not self._lease_check.valid(job) and not await asyncio.to_thread(self._lease_check.wait_until_valid, job):
                self._gone(job)
                return
            began = self._begun(job)
            handling.read(job)
            async with asyncio.timeout(handling.timeout) as clock:
                outcome = await self._wrapped(handling)(job)
        except TimeoutError as error:
            outcome = late(handling) if clock is not None and clock.expired() else error
        except BaseException as error:  # noqa: BLE001 - CancelledError too: it was our doing, and the job is given up already
            outcome = error
        self._finish(job, handling, outcome, began)

    def _never_began(self, job: LeasedJob) -> None:
        """A coroutine was cancelled before its first step: its job is given up already, if that was our doing."""
        self._finish(job, None, asyncio.CancelledError("cancelled before it began"))

    def _finish(
        self,
        job: LeasedJob,
        handling: Handling | None,
        outcome: object,
        began: float | None = None,
        reason: DeathReason | None = None,
    ) -> None:
        seconds = None if began is None else time.monotonic() - began
        if outcome is not None and outcome is job.misfit:
            outcome, reason = Dead(f"parked: {outcome}"), DeathReason.PAYLOAD
        ticket = self._acknowledger.expect()
        if self.in_flight.remove(job):
            done = Done(job, handling, outcome, ticket, seconds, self._worker.keeps(handling), reason)
            verb = job.settled_by  # of the handler: what is reported now may be another
            if self._at_most_once:
                self._ended_at_most_once(done)
            else:
                self._report(done)
            if isinstance(outcome, BaseException):
                what = "failed" if verb is None else f"raised after {verb}(), which counts if it was committed"
                said = about(job, EventType.FAILED if verb is None else None, seconds)
                message = "%r %s: %s: %s"
                log.warning(message, job, what, type(outcome).__name__, text_of(outcome), exc_info=outcome, extra=said)
        else:
            self._acknowledger.withdraw(ticket)
            self.in_flight.returned(job)
            if began is not None:
                message = "%r: the handler ended after the lease was given up; the result does not count"
                log.warning(message, job, extra=about(job, seconds=seconds))
        self._claimer.freed()
        if self._claimer.stopping.is_set() and not self.in_flight:
            self._mail.put(Ended(self))

    def _ended_at_most_once(self, done: Done) -> None:
        """It left the queue when it was claimed: whatever is not done now is never done."""
        self._ends[done.job] = done
        try:
            error = _given_up(done.outcome)
            if error is not None:
                reason = done.reason or (DeathReason.REJECTED if isinstance(done.outcome, Dead) else DeathReason.FAILED)
                done.job.dead = True
                self._worker.db.deaths.record([Death(done.job, reason, error)], kept=False)
            self._told(done, Verdict.APPLIED)
        finally:
            self._acknowledger.withdraw(done.ticket)

    def _begun(self, job: LeasedJob) -> float:
        if self._worker.hooks:
            self._tell(JobEvent(EventType.STARTED, job))
        return time.monotonic()

    def _wrapped(self, handling: Handling) -> Handler:
        """The handler with all that goes around it, made once."""
        made = self._around.get(handling)
        if made is None:
            function = None if handling.apart is None else partial(self._processes.call, handling)
            made = handling.wrapped(self._worker.wrappers, function)
            self._around[handling] = made
        return made

    def _tell(self, event: JobEvent) -> None:
        for hook in self._worker.hooks:
            try:
                hook(event)
            except BaseException:  # SystemExit too: this thread has more to do
                log.exception("the hook %r failed at %s of %r", hook, event.type, event.job, extra=about(event.job, event.type))

    def _gone(self, job: LeasedJob) -> None:
        """Its handler is not called any more."""
        self.in_flight.returned(job)
        self._claimer.freed()

    # --- the helpers' threads ---------------------------------------------------------------------------------------

    def _warn(self, job: LeasedJob) -> None:
        """Tell a handler that runs on that its job is no longer ours."""
        job.lost.set()
        if self._coroutines is not None:
            self._coroutines.cancel(job)
        self._processes.cancel(job)

    def _lose(self, job: LeasedJob) -> None:
        """The lease of a job is lost. In the thread that extends leases, or that claims: neither waits for hooks and logs."""
        self._end_early(job, None, LeaseLost())

    def _end_early(self, job: LeasedJob, handling: Handling | None, outcome: object) -> bool:
        """Give up a job whose handler runs on, and report that; False: it has ended otherwise before."""
        ticket = self._acknowledger.expect()
        if not self.in_flight.abandon(job):
            self._acknowledger.withdraw(ticket)
            return False
        self._warn(job)
        self._report(Done(job, handling, outcome, ticket))
        return True

    def _report(self, done: Done) -> None:
        self._ends[done.job] = done
        self._acknowledger.put(done)

    def _watch_times(self) -> None:
        shortest = min(one.timeout for one in self._worker.handlers.all() if one.timeout is not None and one.watched)
        while not self._ended.wait(min(shortest / 4, _LOOK_AT_TIMES)):
            now = time.monotonic()
            for job, (until, handling) in list(self._times.items()):
                if now < until:
                    continue
                if self._times.pop(job, None) is not None and self._end_early(job, handling, late(handling)):
                    message = "%r: no result after %g s; its thread keeps a slot until it returns"
                    log.warning(message, job, handling.timeout, extra=about(job, EventType.FAILED, handling.timeout))

    def _look_at_stuck(self) -> float:
        """A periodic task: end the run when too many handlers hang."""
        stuck, most = self.stuck, self._worker.exit_when_stuck
        if most is not None and stuck >= most and not self._claimer.stopping.is_set():
            message = "%d handlers have not come back after their timeouts or lost leases, and exit_when_stuck is %d: stopping"
            log.error(message, stuck, most)
            self._worker.summary.stuck = stuck
            self._mail.put(Stop(None))
        return _LOOK_AT_STUCK

    # --- what became of a job, in the thread that learns it -----------------------------------------------------------

    def _dead(self, death: Death) -> None:
        """Hear of a death, by whichever verb: of a job of this run it is its end, and counted here."""
        job = death.job
        if not isinstance(job, LeasedJob) or job.claimant is not self:
            return
        self._count(EventType.DEAD.value, 1)
        if self._worker.hooks:
            done = self._ends.get(job)
            outcome, seconds = (Dead(death.error), None) if done is None else (_shown(done), done.seconds)
            self._tell(JobEvent(EventType.DEAD, job, outcome, seconds, death.reason))

    def _told(self, done: Done, verdict: Verdict | None) -> None:
        """Hear what became of a job whose handler has ended."""
        job = done.job
        self._ends.pop(job, None)
        if job.dead:
            return  # counted as such
        what = _counted_as(done, verdict)
        if what is EventType.LOST and verdict is not None:
            message = "%r: the lease was lost before the handler ended; the result does not count"
            if isinstance(done.outcome, LeaseLost):
                message = "lost the lease of %r: what its handler does no longer counts"
            log.warning(message, job, extra=about(job, what, done.seconds))
        elif what is not EventType.LOST and log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %r", what, job, extra=about(job, what, done.seconds))
        self._count(what.value, 1)
        if self._worker.hooks:
            self._tell(JobEvent(what, job, _shown(done), done.seconds))

    def _count(self, what: str, number: int) -> None:
        with self._lock:
            summary = self._worker.summary
            setattr(summary, what, getattr(summary, what) + number)


def _counted_as(done: Done, verdict: Verdict | None) -> EventType:
    """What became of a job that did not die: what the verb did that settled it, perhaps called by its handler."""
    if verdict is None:
        return EventType.LOST
    if done.job.settled_by is not None:
        return _BY_VERB[done.job.settled_by]
    # At most once nothing is settled.
    if verdict is Verdict.LOST:
        return EventType.LOST
    return EventType.CANCELLED if isinstance(done.outcome, Cancel) else EventType.COMPLETED


def _shown(done: Done) -> object:
    """The outcome as events show it."""
    match done.outcome:
        case Unknown(error):
            return error
        case LeaseLost():
            return None
    return done.outcome


_BY_VERB = {
    "complete": EventType.COMPLETED,
    "fail": EventType.FAILED,
    "bury": EventType.DEAD,
    "snooze": EventType.SNOOZED,
    "defer": EventType.SNOOZED,
    "release": EventType.RELEASED,
    "cancel": EventType.CANCELLED,
}

# At most once: why a job is lost that was claimed and not done when the worker stopped.
_NOT_DONE = Dead("the worker stopped before it was done, and at most once it does not come back")


def _given_up(outcome: object) -> str | None:
    """Why a job is lost that cannot come back; None: it was done, or cancelled."""
    match outcome:
        case BaseException():
            return f"{type(outcome).__name__}: {text_of(outcome)}"
        case Retry(reason) | Dead(reason):
            return text_of(reason)
        case Snooze():
            return "its handler asked for later: at most once there is no later"
    return None
