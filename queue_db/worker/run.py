"""One run of a worker: its threads, the commands it receives, and how it ends."""

from __future__ import annotations

import logging
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any

from queue_db.errors import QueueDBError
from queue_db.leased_job import claimed_by
from queue_db.worker.completer import Completer
from queue_db.worker.events import Results
from queue_db.worker.executor import Execution
from queue_db.worker.feed_slots import FeedSlots
from queue_db.worker.fetcher import Dispatch, Fetcher
from queue_db.worker.isolation import PoisonIsolation
from queue_db.worker.leases import CHECK_EVERY, WRITE_EVERY, Heartbeat, InFlight, Progress
from queue_db.worker.logs import Activity, described, outages_of
from queue_db.worker.maintenance import (
    METRICS_EVERY,
    PRUNE_EVERY,
    SCHEDULE_EVERY,
    PeriodicTask,
    Upkeep,
    enqueue_scheduled,
    prune_dead,
    prune_expired,
    repair_groups,
    run_periodically,
    sweep_completed,
    take_metrics,
    trim_feeds,
)
from queue_db.worker.registration import Registration, Status, rescue_dead
from queue_db.worker.signals import Commands, Ended, LogStacks, Quiet, Stop, is_hangup, stacks

if TYPE_CHECKING:
    from queue_db.worker.worker import Worker

log = logging.getLogger("queue_db.worker")

#: Seconds between tries while the database does not answer: first, longest.
RETRY = (0.1, 3.0)

# How long the end waits for a claim that is under way, and for the last results to be reported, seconds.
_CLAIM = 5.0
_RESULTS = 10.0

# How long it then waits for the threads of periodic tasks, all together, seconds.
_HELPERS = 2.0

# Seconds between two reads of the commands. Mostly a command ends the wait; but a signal right after SIGCONT may go to any thread,
# and Python's signal handlers wait for the main thread to wake up.
_COMMANDS = 0.5

# Seconds between two checks whether all results are reported.
_REPORTED = 0.005

#: A handler is stuck when its job was abandoned this many seconds ago: a coroutine or a process that is stopped ends before.
STUCK_AFTER = 5.0

# Seconds between two counts of the handlers that are stuck.
_CHECK_STUCK = 1.0


class Run:
    """One run of a worker. Its methods are called by the thread in ``Worker.run()``."""

    def __init__(self, worker: Worker, commands: Commands, lock: threading.Lock) -> None:
        options = worker.options
        self._worker = worker
        self._commands = commands
        self._lock = lock
        self._at_most_once = options.at_most_once
        self._activities: list[Activity] = []
        self._helpers: list[threading.Thread] = []
        self._releases: list[threading.Thread] = []
        self._watching = self._activity()
        self._began = time.monotonic()
        # Why it ends.
        self._why = "an error"
        self._left = threading.Event()
        self._ended = threading.Event()
        self.in_flight = InFlight(worker.shares.queues)
        self._progress = Progress(worker.db.core, self.in_flight)
        self._results = Results(worker, lock, claimant=self)
        self._completer = Completer(self._results.settled, RETRY, self._activity(), completed=self._results.completed)
        self._fetcher = Fetcher(
            worker.db,
            options,
            retry=RETRY,
            in_flight=self.in_flight,
            idle=lambda: not self.in_flight and not self._completer and not self._feeds.busy,
            drained=lambda: self._commands.put(Ended(self)),
            quiet=worker.quieted,
            cancelled=self._check_cancelled,
        )
        self._execution = Execution(worker, self.in_flight, self._results, self._completer, self._fetcher.freed)
        self._feeds = FeedSlots(
            worker, self._results, self._execution, stopping=self._fetcher.stopping, retry=RETRY, activity=self._activity
        )
        isolation = PoisonIsolation(
            worker.db.core,
            self.in_flight,
            busy=lambda: bool(self._completer),
            stopping=self._fetcher.stopping,
            meanwhile=self._fetcher.keep_shares,
            retry=RETRY,
        )
        self._dispatch = Dispatch(
            worker, self.in_flight, self._results, self._execution, self._progress, isolation, left=self._left
        )
        served = {**worker.shares.queues, **worker.options.feeds}
        self._registration = Registration(worker.db, served, self._status, self._activity(), RETRY)

    @property
    def stuck(self) -> int:
        """Slots of handlers that have not returned although their jobs or messages were taken from them."""
        return self.in_flight.stuck(STUCK_AFTER) + self._feeds.stuck(STUCK_AFTER)

    # --- start ------------------------------------------------------------------------------------------------------

    def start(self, *, until_empty: bool, started: Callable[[], None] | None) -> None:
        """Start all threads, the fetcher last.

        :param started: called before the fetcher starts.
        """
        worker = self._worker
        if until_empty:
            self._why = "no job is due"
        self._log_start()
        worker.db.deaths.add(self._results.died)
        self._execution.start()
        self._reporting = self._thread("completer", self._completer.run)
        if not self._at_most_once:
            # A thread and a connection of its own: other tasks may wait for locks, longer than a lease.
            beat = Heartbeat(self.in_flight, worker.options.lease, self._execution.lose, self._activity()).beat
            beats = [(worker.options.lease / 3, beat), (CHECK_EVERY, self._execution.lease_check.check)]
            if self._feeds:
                beats.append((worker.options.lease / 3, self._feeds.beat))
            self._periodic("heartbeat", *beats)
        self._upkeep = Upkeep(self._tasks(until_empty=until_empty), self._ended, partial(self._thread, "maintenance"))
        self._upkeep.start()
        if started is not None:
            started()
        self._fetching = self._thread("fetcher", self._claim, until_empty)

    def _log_start(self) -> None:
        text, fields = described(self._worker)
        log.info("working on %s", text, extra=fields)

    def _tasks(self, *, until_empty: bool) -> list[tuple[float, PeriodicTask]]:
        """What runs now and then and may wait for locks, in the order of the first runs. The first claim waits for the first."""
        db, queues, options = self._worker.db, self._worker.shares.queues, self._worker.options
        tasks: list[tuple[float, PeriodicTask]] = [(0.0, self._registration.report)]
        if not self._at_most_once:
            tasks.append((WRITE_EVERY, self._progress.write))
        if options.exit_when_stuck is not None:
            tasks.append((0.0, self._check_stuck))
        if options.schedules:
            first = SCHEDULE_EVERY[0] if until_empty else 0.0  # the thread that claims has done the first
            tasks.append((first, enqueue_scheduled(db, RETRY, self._activity())))
        tasks += [
            (0.0, rescue_dead(self._registration)),
            (PRUNE_EVERY * random.random(), prune_expired(db, self._activity())),
            (METRICS_EVERY * random.random(), take_metrics(db, self._activity())),
            (PRUNE_EVERY * random.random(), trim_feeds(db, self._activity())),
            (PRUNE_EVERY * random.random(), repair_groups(db, queues, self._activity())),
        ]
        if options.dead_for is not None or options.dead_at_most is not None:
            tasks.append((0.0, prune_dead(db, queues, options.dead_for, options.dead_at_most, self._activity())))
        if db.removal.marks:
            tasks.append((0.0, sweep_completed(db, self._activity())))
        return tasks

    def _periodic(self, name: str, *tasks: tuple[float, PeriodicTask]) -> None:
        self._helpers.append(self._thread(name, run_periodically, tasks, self._ended))

    def _activity(self) -> Activity:
        """The activity of one thread, which logs its failures."""
        self._activities.append(outages_of(self._worker.db.url).activity())
        return self._activities[-1]

    def _thread(self, name: str, target: Any, *args: Any) -> threading.Thread:
        # Daemons: a thread that waits for a database that does not answer must not keep the process from ending.
        name = f"queue_db {name} of {self._worker.names}"
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    # --- commands ---------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Obey commands until the fetcher has ended and all results are reported, or the grace time of a stop is over.

        Between commands it fails handlers whose timeouts are over, and sees that no periodic task waits for another: this thread
        itself waits for no lock and no database here.
        """
        deadline = math.inf
        ending = False
        timeouts_every = self._execution.timeouts_every()
        pause = _COMMANDS if timeouts_every is None else min(_COMMANDS, timeouts_every)
        while not ending or self.in_flight or self._completer or self._feeds.busy:
            self._look_after(timeouts=timeouts_every is not None)
            # No command follows the last report, which takes a moment, or as long as the database does not answer.
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

    def _look_after(self, *, timeouts: bool) -> None:
        try:
            if timeouts:
                self._execution.check_timeouts()
                self._feeds.check_timeouts()
            self._upkeep.relieve()
        except RuntimeError as error:  # no thread can be started now
            self._watching.failed_rarely("watching timeouts and periodic tasks", error)

    def _stop(self, command: Stop) -> float:
        """Stop claiming; return the grace time, seconds."""
        first = not self._fetcher.stopping.is_set()
        # Before the log line: a program that reads it may let the handlers go on.
        self._fetcher.stop()
        self._registration.decided.set()
        self._feeds.wake()
        grace = self._worker.options.grace if command.grace is None else command.grace
        if command.signal is not None:
            summary = self._worker.summary
            if summary.signal is not None and not is_hangup(command.signal):
                grace = 0.0
            summary.signal = command.signal
            name = signal.Signals(command.signal).name
            how = f"up to {grace:g} s for running jobs, a second signal releases them at once" if grace else "releasing all jobs"
            log.info("%s: no more claims, %s", name, how)
        else:
            name = "exit_when_stuck" if self._worker.summary.stuck else "stop()"
        if first:
            self._why = name
        return grace

    def _quiet(self, *, on: bool) -> None:
        (self._worker.quiet if on else self._worker.resume)()
        # Service managers send SIGCONT after SIGTERM.
        if not self._fetcher.stopping.is_set():
            self._fetcher.wakeup.set()
            log.info("quiet: no more claims until SIGCONT" if on else "claiming again")

    def _check_stuck(self) -> float:
        """A periodic task: end the run when too many handlers are stuck."""
        stuck, most = self.stuck, self._worker.options.exit_when_stuck
        if most is not None and stuck >= most and not self._fetcher.stopping.is_set():
            message = "%d handlers have not returned after their timeouts or lost leases, and exit_when_stuck is %d: stopping"
            log.error(message, stuck, most)
            self._worker.summary.stuck = stuck
            self._commands.put(Stop(None))
        return _CHECK_STUCK

    # --- end --------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Release the jobs that are still in flight, report the last results, end the threads."""
        self._fetching.join(_CLAIM)
        self._left.set()
        for release in self._releases:
            release.join(_CLAIM)
        self._feeds.end()
        jobs = self._execution.stop()
        if jobs:
            self._results.release(jobs)
        self._execution.close()
        self._completer.close()
        self._reporting.join(_RESULTS)
        self._fetcher.return_shares()
        self._ended.set()
        until = time.monotonic() + _HELPERS
        for helper in (*self._helpers, *self._upkeep.threads):
            helper.join(max(0.0, until - time.monotonic()))
        for activity in self._activities:
            activity.ended()
        with suppress(QueueDBError):
            self._worker.db.metrics.flush()
        self._registration.deregister()
        self._worker.db.deaths.remove(self._results.died)
        self._log_end()

    def _log_end(self) -> None:
        worker, ran = self._worker, time.monotonic() - self._began
        with self._lock:
            counts = {name: number for name, number in asdict(worker.summary).items() if name != "signal"}
        told = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "no jobs"
        fields = {"worker": worker.db.worker, "why": self._why, "uptime": round(ran, 3), **counts}
        log.info("stopped working on %s after %.1f s (%s): %s", worker.names, ran, self._why, told, extra=fields)

    def _release_unstarted(self) -> None:
        """Release the jobs that wait for a slot: other workers need not wait for the handlers before them."""
        if jobs := self._execution.unstarted():
            # In a thread of its own: it may wait for the database, and timeouts and the grace time are watched meanwhile.
            self._releases.append(self._thread("release", self._results.release, jobs))

    # --- called by the other threads --------------------------------------------------------------------------------

    def _check_cancelled(self, ids: Collection[int]) -> None:
        self._execution.lease_check.check_cancelled(ids)

    def _claim(self, until_empty: bool) -> None:
        try:
            self._registration.decided.wait()
            if until_empty and self._worker.options.schedules:
                # Jobs of schedules that are due belong to what is to be done.
                enqueue_scheduled(self._worker.db, RETRY, self._activity())()
            if self._fetcher.stopping.is_set():
                return
            self._feeds.start(self._thread, self, until_empty=until_empty)
            with claimed_by(self):
                self._fetcher.run(self._dispatch.take, until_empty=until_empty)
        finally:
            self._commands.put(Ended(self))

    def _status(self) -> Status:
        """What the worker's row shows."""
        worker = self._worker
        state = "stopping" if self._fetcher.stopping.is_set() else "quiet" if worker.quieted.is_set() else "working"
        with self._lock:
            counted = {name: number for name, number in asdict(worker.summary).items() if name not in ("signal", "stuck")}
        return Status(state, len(self.in_flight) + self._feeds.in_hand, counted, self.stuck)
