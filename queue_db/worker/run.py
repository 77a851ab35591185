"""One run of a worker: its threads, the commands it receives, and how it ends."""

from __future__ import annotations

import logging
import math
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any

from queue_db.errors import QueueDBError
from queue_db.leased_job import claimed_by
from queue_db.resumable import Claimant
from queue_db.slices import Slots, slots
from queue_db.worker.completer import Completer
from queue_db.worker.dispatch import Dispatch
from queue_db.worker.events import Results
from queue_db.worker.executor import Execution
from queue_db.worker.fetcher import Fetcher
from queue_db.worker.leases import CHECK_EVERY, WRITE_EVERY, Heartbeat, InFlight, Progress
from queue_db.worker.logs import Activity, described, outages_of
from queue_db.worker.maintenance import PeriodicTask, PeriodicTasks, logged, maintenance
from queue_db.worker.registration import Registration, Status
from queue_db.worker.resident import resident
from queue_db.worker.signals import Commands, Ended, LogStacks, Quiet, Stop, is_hangup, stacks

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

#: The first and the longest pause between tries while the database does not answer, seconds.
RETRY = (0.1, 3.0)

# Seconds for which the end of a run waits for a claim or a release that is under way.
_CLAIM = 5.0
# Seconds for which the end of a run waits until the last results are reported.
_RESULTS = 10.0

# Seconds for which the end of a run then waits for all threads of periodic tasks together.
_HELPERS = 2.0

# The longest wait for a command, seconds. Python calls signal handlers only when the main thread wakes up. A signal right after
# SIGCONT may go to another thread, so the main thread must wake up by itself.
_COMMANDS = 0.5

# Seconds between two checks whether all results are reported.
_REPORTED = 0.005

#: Seconds between two tries to keep the shares of limited queues after the last claim.
KEEP_EVERY = 0.5

#: A handler is stuck if it still runs this many seconds after its job was abandoned. Coroutines and processes are stopped earlier.
STUCK_AFTER = 5.0

# Seconds between two counts of the stuck handlers, and between two looks at the memory of the process.
_CHECK_STUCK = 1.0
_CHECK_MEMORY = 1.0


class Run(Claimant):
    """One run of a worker. The thread in ``Worker.run()`` calls its methods, except those of the last section."""

    def __init__(self, worker: Worker, commands: Commands, lock: threading.Lock) -> None:
        options = worker.options
        super().__init__(at_most_once=options.at_most_once)
        self.worker = worker
        self._hosted = worker.hosted
        self._commands = commands
        #: Guards the counts in the worker's summary, and the kinds that are logged.
        self.lock = lock
        #: The first and the longest pause between tries while the database does not answer, seconds.
        self.retry = RETRY
        self._activities: list[Activity] = []
        self._releases: list[threading.Thread] = []
        self._watching = self.activity()
        self._began = time.monotonic()
        # Why the run ends.
        self._why = "an error"
        # The option that ends the run to be started again; None: no option does so.
        self._recycles: str | None = None
        #: Set when the end of the run stops waiting for a claim that is under way. Jobs of this claim are then released.
        self.left = threading.Event()
        # Set when the end of the run no longer waits for jobs in hand.
        self._ending = threading.Event()
        self._ended = threading.Event()
        self.in_flight = InFlight(options.limits)
        self.progress = Progress(worker.db.core, self.in_flight)
        self.results = Results(self)
        self.completer = Completer(self.results, RETRY, self.activity(), options.lease)
        self.fetcher = Fetcher(self)
        self.execution = Execution(self)
        self.dispatch = Dispatch(self)
        #: Slots for work other than jobs of queues, such as messages of feeds.
        self.others: list[Slots] = [slots("feeds")(self)] if options.feeds else []
        served = {**options.limits, **options.feeds}
        self._registration = Registration(worker.db, served, self._status, self.activity(), RETRY)
        # The fetcher's thread and maintenance use the same function for a task: a success in either thread ends the outage.
        self._maintenance = [(task, logged(task, self.activity())) for task in maintenance(worker.db, options, self._registration)]
        self._beats = PeriodicTasks(self._leases(), self._ended, partial(self.thread, "heartbeat"))

    @property
    def stuck(self) -> int:
        """Slots of handlers that have not returned although their jobs or messages were abandoned."""
        return self.in_flight.stuck(STUCK_AFTER) + sum(other.stuck(STUCK_AFTER) for other in self.others)

    @property
    def idle(self) -> bool:
        """Whether no job is in hand, all results are reported, and no other slot is busy."""
        return not (self.in_flight or self.completer or any(other.busy for other in self.others))

    # --- start ------------------------------------------------------------------------------------------------------

    def start(self, *, until_empty: bool, started: Callable[[], None] | None) -> None:
        """Start all threads, the fetcher last.

        :param started: called after the hooks of the start, before any job is claimed. If it or a hook raises, no thread is left.
        """
        worker = self.worker
        if until_empty:
            self._why = "no job is due"
        text, fields = described(worker)
        log.info("working on %s", text, extra=fields)
        self._begin_handlers(started)
        worker.db.deaths.add(self.results.died)
        self._reporting = self.thread("completer", self.completer.run)
        self._beats.start()
        self._upkeep = PeriodicTasks(self._tasks(until_empty=until_empty), self._ended, partial(self.thread, "maintenance"))
        self._upkeep.start()
        self._fetching = self.thread("fetcher", self._claim, until_empty)

    def _begin_handlers(self, started: Callable[[], None] | None) -> None:
        """Start the threads of the handlers, and call the hooks of the start."""
        if started is not None and not self.worker.ends.start:
            started()  # if it raises, no thread was started
            started = None
        self.execution.start()
        try:
            for hook in self.worker.ends.start:
                self.execution.call_hook(hook)
            if started is not None:
                started()
        except BaseException:
            self._why = "a hook of its start"
            self.execution.stop(0.0)
            self.execution.close()
            raise

    def _end_handlers(self) -> None:
        """Call the hooks of the end, and end the threads of the handlers."""
        for hook in reversed(self.worker.ends.stop):
            try:
                self.execution.call_hook(hook)
            except BaseException:  # the others are called
                log.exception("the hook %r failed at the end of the worker", hook)
        self.execution.close()

    def _leases(self) -> list[tuple[float, PeriodicTask]]:
        """The tasks of the heartbeat. They have a thread of their own, since maintenance may wait for locks longer than a lease."""
        lease = self.worker.options.lease
        if self.worker.options.at_most_once:
            return []
        beats = [
            Heartbeat(self.in_flight, lease, self.execution.lose, self.activity()).beat,
            *(other.beat for other in self.others),
        ]
        return [(CHECK_EVERY, self.execution.lease_check.check), *((lease / 3, beat) for beat in beats)]

    def _tasks(self, *, until_empty: bool) -> list[tuple[float, PeriodicTask]]:
        """The tasks of maintenance. The first one writes the worker's row, for which the first claim waits."""
        options = self.worker.options
        tasks: list[tuple[float, PeriodicTask]] = [(0.0, self._registration.report)]
        if not options.at_most_once:
            tasks.append((WRITE_EVERY, self.progress.write))
        if options.exit_when_stuck is not None:
            tasks.append((0.0, self._check_stuck))
        if options.max_memory is not None:
            tasks.append((0.0, self._check_memory))
        for task, run in self._maintenance:
            first = 0.0 if task.at_start else task.every * random.random()
            if task.enqueues and until_empty:
                first = task.every  # the fetcher's thread makes the first run
            tasks.append((first, run))
        return tasks

    def activity(self) -> Activity:
        """A new activity, which logs the failures of one thread or task of this run."""
        self._activities.append(Activity(outages_of(self.worker.db.url)))
        return self._activities[-1]

    def thread(self, name: str, target: Any, *args: Any) -> threading.Thread:
        # Daemons: a thread that waits for a database that does not answer must not keep the process from ending.
        name = f"queue_db {name} of {self.worker.options.names}"
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    # --- commands ---------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Obey commands until the fetcher has ended and all results are reported, or the grace time of a stop is over.

        Between commands, this thread fails handlers whose timeouts are over. It also starts another thread for maintenance if a
        task takes long. So it must not wait for a lock or for the database here.
        """
        deadline = math.inf
        ending = False
        pause = min(_COMMANDS, self.execution.timeouts_every)
        while not (ending and self.idle):
            self._look_after()
            # No command announces the last report, so this thread looks for it.
            longest = _REPORTED if ending and not self.in_flight else pause
            try:
                command = self._commands.get(timeout=max(0.0, min(longest, deadline - time.monotonic())))
            except Empty:
                if time.monotonic() >= deadline:
                    return
                continue
            match command:
                case Ended(run):
                    if run is self:
                        ending = True
                        self._release_unstarted()
                case LogStacks():
                    log.info("stacks of all threads:\n%s", stacks())
                case Quiet(on):
                    self._quiet(on=on)
                case Stop():
                    deadline = min(deadline, time.monotonic() + self._stop(command))

    def _look_after(self) -> None:
        try:
            self.execution.check_timeouts()
            for other in self.others:
                other.check_timeouts()
            self._upkeep.relieve()
            if self._hosted is not None:
                self._hosted.look_after()
        except RuntimeError as error:  # no thread can be started now
            self._watching.failed_rarely("watching timeouts and periodic tasks", error)

    def _stop(self, command: Stop) -> float:
        """Stop claiming; return the grace time, seconds."""
        first = not self.stopping.is_set()
        # Stop before the log line: when a program reads this line, nothing more must be claimed.
        self.fetcher.stop()
        self._registration.decided.set()
        for other in self.others:
            other.wake()
        grace = self.worker.options.grace if command.grace is None else command.grace
        if command.signal is not None:
            summary = self.worker.summary
            if summary.signal is not None and not is_hangup(command.signal):
                grace = 0.0
            summary.signal = command.signal
            name = signal.Signals(command.signal).name
            how = f"up to {grace:g} s for running jobs, a second signal releases them at once" if grace else "releasing all jobs"
            log.info("%s: no more claims, %s", name, how)
        else:
            name = "exit_when_stuck" if self.worker.summary.stuck else self._recycles or "stop()"
        if first:
            self._why = name
        return grace

    def _quiet(self, *, on: bool) -> None:
        (self.worker.quiet if on else self.worker.resume)()
        # Service managers send SIGCONT after SIGTERM. After a stop, SIGCONT must not start claims again.
        if not self.stopping.is_set():
            self.fetcher.wakeup.set()
            log.info("quiet: no more claims until SIGCONT" if on else "claiming again")

    def _check_stuck(self) -> float:
        """A periodic task: end the run when too many handlers are stuck."""
        stuck, most = self.stuck, self.worker.options.exit_when_stuck
        if most is not None and stuck >= most and not self.stopping.is_set():
            message = "%d handlers have not returned after their timeouts or lost leases, and exit_when_stuck is %d: stopping"
            log.error(message, stuck, most)
            self.worker.summary.stuck = stuck
            self._commands.put(Stop(None))
        return _CHECK_STUCK

    def _check_memory(self) -> float:
        """A periodic task: end the run when the process has too much memory, but not before its first job."""
        most, memory = self.worker.options.max_memory, resident()
        if most is not None and memory is not None and memory > most and self._recycles is None:
            with self.lock:
                worked = any(self.worker.summary.counts.values())
            if worked:
                log.info("the process has %.0f MB, and max_memory is %g: no more claims", memory, most)
                self._recycles = "max_memory"
                self.fetcher.recycle()
        return _CHECK_MEMORY

    # --- end --------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Release the jobs that are still in flight, report the last results, end the threads."""
        self._ending.set()
        self._fetching.join(_CLAIM)
        self.left.set()
        self._release_unstarted()  # with a grace time of 0 there was no time for that
        for release in self._releases:
            release.join(_CLAIM)
        for other in self.others:
            other.end()
        jobs = self.execution.stop(_RESULTS)
        if jobs:
            self.results.release(jobs, interrupted=True)
        self.completer.close()
        self._reporting.join(_RESULTS)
        self.fetcher.return_shares()
        self._ended.set()
        until = time.monotonic() + _HELPERS
        for helper in (*self._beats.threads, *self._upkeep.threads):
            helper.join(max(0.0, until - time.monotonic()))
        for activity in self._activities:
            activity.ended()
        with suppress(QueueDBError):
            self.worker.db.metrics.flush()
        self._registration.deregister()
        self.worker.db.deaths.remove(self.results.died)
        self._end_handlers()
        self._log_end()

    def _log_end(self) -> None:
        worker, ran = self.worker, time.monotonic() - self._began
        with self.lock:
            counts = {**worker.summary.counts, "stuck": worker.summary.stuck}
        text = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "no jobs"
        fields = {"worker": worker.db.worker, "why": self._why, "uptime": round(ran, 3), **counts}
        log.info("stopped working on %s after %.1f s (%s): %s", worker.options.names, ran, self._why, text, extra=fields)

    def _release_unstarted(self) -> None:
        """Release the jobs that wait for a slot, so that other workers can run them now."""
        if jobs := self.execution.unstarted():
            # In a thread of its own: the release may wait for the database, and this thread must watch timeouts and the grace time.
            self._releases.append(self.thread("release", self.results.release, jobs))

    # --- called by the other threads --------------------------------------------------------------------------------

    def drained(self) -> None:
        """Tell the thread in ``Worker.run()`` that the fetcher has ended, or that the last slot is free after a stop."""
        self._commands.put(Ended(self))

    def recycle(self) -> None:
        """End the run to be started again: no job is in hand any more."""
        self._recycles = self._recycles or "max_jobs"
        self.worker.summary.recycled = True
        self._commands.put(Stop(None))

    def _claim(self, until_empty: bool) -> None:
        try:
            self._registration.decided.wait()
            if self.stopping.is_set():
                return
            for task, run in self._maintenance if until_empty else ():
                if task.enqueues:  # this run must execute the jobs that the task enqueues
                    run()
            for other in self.others:
                other.start(until_empty=until_empty)
            with claimed_by(self):
                self.fetcher.run(until_empty=until_empty)
        finally:
            self.drained()
        while self.fetcher.has_shares and not self._ending.wait(KEEP_EVERY):
            self.fetcher.keep_shares()  # else they expire while a job runs that is longer than its first lease

    def _status(self) -> Status:
        """What the worker's row shows."""
        worker = self.worker
        state = "stopping" if self.stopping.is_set() else "quiet" if worker.quieted.is_set() else "working"
        with self.lock:
            counted = worker.summary.counts
        return Status(state, len(self.in_flight) + sum(other.in_hand for other in self.others), counted, self.stuck)
