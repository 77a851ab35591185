"""The worker: its handlers, and how it is run and stopped."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import fields, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, Unpack

from sqlalchemy import URL

from queue_db import arguments
from queue_db.database.masking import masked
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.slices import slots, type_hint
from queue_db.verbs.settle import UNKNOWN_GRACE
from queue_db.worker.decorators import Decorators
from queue_db.worker.events import Summary
from queue_db.worker.handlers import Registry
from queue_db.worker.interruptions import INTERRUPTIONS
from queue_db.worker.on_loop import OnLoop
from queue_db.worker.options import Mode, Options, UnknownKinds, WorkerOptions
from queue_db.worker.run import Run
from queue_db.worker.signals import Commands, Quiet, Stop, signals_queued

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB
else:
    AsyncQueueDB = type_hint("queue_db.aio", "AsyncQueueDB")


class Worker(OnLoop, Decorators):
    """Runs the jobs of some queues until it is stopped.

    One thread claims for all queues, as many jobs as there are free slots. Handlers run on threads, or if they are ``async def`` on
    one event loop: of the worker's own, or with ``async with worker`` that of the application. Another thread reports results, many
    jobs in one statement. The heartbeat extends the leases of all jobs in hand. Maintenance enqueues the jobs of schedules and
    deletes what has expired; while one of its tasks waits for a lock, another thread goes on with the other tasks. The worker uses
    four connections, and a fifth that listens for notifications if the database has them.

    :param db: a QueueDB; or an AsyncQueueDB, whose URL the worker's threads then open with a driver that is not for asyncio.
    :param queues: a queue's name; a list of names, in order of precedence; or a mapping from names to the most jobs in hand; or
        a registry of tasks, whose queues and handlers the worker takes. With ``feeds`` the default is the queues in which failed
        messages become jobs.
    :param concurrency: jobs in hand at once; default: as many as the queues allow together, or 10.
    :param lease: seconds for which a claim or an extension leases jobs; if this process is killed, its jobs wait up to that long.
    :param mode: ``at_least_once``; or ``at_most_once``: jobs are deleted when they are claimed, and a job is lost if
        its worker dies or its handler fails.
    :param prefetch: jobs to claim ahead of free slots: fewer statements, but these jobs wait here while another worker may be idle.
        Only from queues that may fill all slots, and only if no handler is an ``async def``.
    :param weights: the share of each queue while all queues have jobs, so that no queue starves; default: strict precedence.
    :param poll: longest pause between two polls of empty queues, seconds.
    :param grace: how long a stop waits for running handlers, seconds; then their jobs are released.
    :param result_ttl: seconds for which completed jobs stay readable, with payloads and results; a handler may set its
        own. Default: they are not kept. With ``at_most_once`` they are never kept.
    :param dead_for: delete jobs of these queues this many seconds after they died; default: never.
    :param dead_at_most: keep only this many dead jobs of each of these queues, the newest; default: all.
    :param unknown: what to do with a job of a kind without a handler here. ``wait``: another worker may have a handler, as in a
        rolling deployment. So the job comes back after a second at first and a minute at last, without counting an attempt.
        ``dead``: the job goes to the dead table at once. With ``at_most_once`` the job is always lost at once.
    :param unknown_grace: seconds for which a job without a handler waits after its first claim; then it is dead.
    :param exit_when_stuck: end the run when this many handlers have not returned after their timeouts or lost leases, because
        they keep their slots. ``queue-db work`` then ends with status 75, so that its supervisor starts it again. At most the
        number of slots; default: never.
    :param max_interruptions: an attempt that the stop of a worker interrupts does not count, up to this many for each job.
    :param max_jobs: end the run gracefully when this many jobs were claimed, against leaks: a supervisor starts the next process.
    :param max_memory: end the run gracefully when the process has more resident memory, megabytes. A process of
        ``executor="process"`` with more memory is replaced after its call.
    :param schedules: also enqueue the jobs of the database's schedules, for all queues. Each occurrence is enqueued once.
    :param feeds: also handle the messages of these shared cursors: the number of slots by ``feed:cursor``, such as
        ``{"orders:mailers": 4}``. Each slot is a thread that claims a span and calls the handlers of its messages, in their order.
        A handler gets the message as a job. A message that fails becomes a job of the queue with the cursor's name.
    :param span: the most messages that a slot claims at once.
    :raises ArgumentError: a value is outside its allowed range.
    """

    def __init__(
        self,
        db: QueueDB | AsyncQueueDB,
        queues: str | Sequence[str] | Mapping[str, int] | Registry | None = None,
        *,
        concurrency: int | None = None,
        lease: float = 60.0,
        mode: Mode = "at_least_once",
        prefetch: int = 0,
        weights: Mapping[str, int] | None = None,
        poll: float = 0.5,
        grace: float = 30.0,
        unknown: UnknownKinds = "wait",
        unknown_grace: float = UNKNOWN_GRACE,
        exit_when_stuck: int | None = None,
        max_interruptions: int = INTERRUPTIONS,
        max_jobs: int | None = None,
        max_memory: float | None = None,
        schedules: bool = True,
        result_ttl: float | None = None,
        dead_for: float | None = None,
        dead_at_most: int | None = None,
        feeds: Mapping[str, int] | None = None,
        span: int = 100,
    ) -> None:
        registry, served = (queues, queues.queues) if isinstance(queues, Registry) else (None, queues)
        given = locals() | {"queues": served, "feeds": feeds or {}}
        _check_database(db)
        super().__init__()
        #: The database object that the constructor got.
        self.given = db
        self._db: QueueDB | None = db if isinstance(db, QueueDB) else None
        self.options = Options(**{name: given[name] for name in WorkerOptions.__annotations__})
        self._lock = threading.Lock()
        self._commands: Commands = SimpleQueue()
        self._background: threading.Thread | None = None
        #: While this is set, nothing is claimed.
        self.quieted = threading.Event()
        self.summary = Summary()
        self._run: Run | None = None
        # The id of the process in which the worker runs. A fork of that process does not have the worker's threads.
        self._runs_in: int | None = None
        if registry is not None:
            registry.attach(self)

    def configure(self, **options: Unpack[WorkerOptions]) -> None:
        """Change options of this worker before it runs; they are named as in the constructor.

        ``concurrency`` limits the jobs in hand of all queues together.

        :raises ArgumentError: there is no such option, or a value is outside its allowed range. Then no option is changed.
        """
        _check_names(options)
        self.options = replace(self.options, **options)

    def changed(self, **options: Unpack[WorkerOptions]) -> Self:
        """Another worker with the same handlers and other options, which are named as in the constructor.

        ``concurrency`` limits the jobs in hand of all queues together. The two workers run and stop separately.

        :raises ArgumentError: there is no such option, or a value is outside its allowed range.
        """
        _check_names(options)
        settings: dict[str, Any] = {field.name: getattr(self.options, field.name) for field in fields(self.options) if field.init}
        settings |= options
        other = type(self)(self.given, settings.pop("queues"), **settings)
        other.handlers, other.hooks, other.ends, other.wrappers = self.handlers, self.hooks, self.ends, self.wrappers
        return other

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, until_empty: bool = False, *, started: Callable[[], None] | None = None) -> Summary:
        """Run jobs until :meth:`stop`, or in the main thread until SIGTERM, SIGINT or SIGHUP.

        The coroutines of a worker that got an AsyncQueueDB run in this thread, and can use it: it is open meanwhile.

        The first signal stops as :meth:`stop` does; a second one, unless it is SIGHUP, releases running jobs at once. SIGTSTP calls
        :meth:`quiet`, SIGCONT calls :meth:`resume`, and SIGUSR1 logs the stack of every thread.

        :param until_empty: return when no job is due, except in paused queues, and this worker has no job in hand. The run does
            not wait for jobs that are scheduled for later or that other workers have.
        :param started: called once, when the worker starts, before its first claim. What it raises ends the run.
        :raises SchemaOutOfDateError: the tables are missing or of another version.
        :raises ConfigurationError: the worker has no handlers or runs already, or a cursor of ``feeds`` is not a shared one.
        """
        if self._needs_loop:
            self._begin()
            with signals_queued(self._commands):
                asyncio.run(self._run_on_loop(until_empty=until_empty, started=started))
            return self.summary
        self.check_start()
        self._begin()
        return self._work(until_empty=until_empty, started=started)

    def _begin(self) -> None:
        with self._lock:
            if self.hosted is not None and not self.hosted.is_here:
                self.hosted = None
            if self.running or self.hosted is not None:
                raise ConfigurationError(
                    f"the worker of {self.options.names} runs already: start it in one place, of an app and its sub-apps in the "
                    "outermost; worker.changed() makes another one with the same handlers, which runs and stops by itself"
                )
            self._runs_in = os.getpid()

    def _work(self, *, until_empty: bool = False, started: Callable[[], None] | None = None) -> Summary:
        try:
            self.summary = Summary()
            run = self._run = Run(self, self._commands, self._lock)
            with signals_queued(self._commands):
                run.start(until_empty=until_empty, started=started)
                run.watch()
                run.end()
                self._discard_commands()
        finally:
            self._runs_in = None
        return self.summary

    def stop(self, grace: float | None = None) -> None:
        """Stop claiming and let running handlers finish; then :meth:`run` returns. Any thread or signal handler may call this.

        A call before a run stops that run at once. A call while a run ends does not affect the next run.

        :param grace: seconds to wait for the handlers; default: the worker's ``grace``; 0 releases their jobs at once.
        """
        self._commands.put(Stop(grace))

    def quiet(self) -> None:
        """Stop claiming, but go on with the jobs in hand, until :meth:`resume` or :meth:`stop`. Any thread may call this."""
        self.quieted.set()

    def resume(self) -> None:
        """Claim again after :meth:`quiet`."""
        self.quieted.clear()

    def __enter__(self) -> Self:
        """Run in the background until the end of the block. An exception of :meth:`on_start` is raised.

        :raises ConfigurationError: the worker has no handlers or runs already, or a cursor of ``feeds`` is not a shared one.
        """
        self.check_start()
        self._begin()
        started: Future[None] = Future()
        name = f"queue_db worker of {self.options.names}"
        self._background = threading.Thread(target=self._work_behind, args=(started,), name=name)
        self._background.start()
        try:
            started.result()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _work_behind(self, started: Future[None]) -> None:
        """Run in a thread of :meth:`__enter__`, which waits for ``started`` and raises what the start has raised."""
        try:
            self._work(started=lambda: started.set_result(None))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self._background is not None:
            self._background.join()
            self._background = None
        self._discard_commands()

    def _discard_commands(self) -> None:
        """Empty the queue of commands after a run: a late stop must not affect the next run."""
        with suppress(Empty):
            while True:
                command = self._commands.get_nowait()
                if isinstance(command, Quiet):
                    (self.quiet if command.on else self.resume)()
                elif isinstance(command, Stop) and command.signal is not None:
                    self.summary.signal = command.signal

    def check_start(self) -> None:
        """Check that the worker can run.

        :raises SchemaOutOfDateError: the tables are missing or of another version.
        :raises ConfigurationError: the worker has no handlers, or a cursor of ``feeds`` is not a shared one.
        """
        self.handlers.require(self.options.names)
        self.handlers.require_room(self.options.names, self.options.slots)
        self.db.ready()
        if self.options.feeds:
            slots("feeds").prepare(self)

    @property
    def running(self) -> bool:
        """Whether the worker runs in this process: during :meth:`run`, or inside ``with worker:`` until the run ends."""
        return self._runs_in == os.getpid()

    @property
    def stuck(self) -> int:
        """Slots of handlers that have not returned after their timeouts or lost leases."""
        return 0 if self._run is None else self._run.stuck


def _check_names(options: WorkerOptions) -> None:
    if unknown := options.keys() - WorkerOptions.__annotations__.keys():
        raise ArgumentError(
            f"{', '.join(sorted(unknown))}: no option of a worker; they are {', '.join(WorkerOptions.__annotations__)}"
        )


def _check_database(db: object) -> None:
    if isinstance(db, str | URL):
        raise ArgumentError(f"db={masked(db)!r}: must be a QueueDB: Worker(QueueDB({masked(db)!r}), …)")
    if not isinstance(db, QueueDB) and not hasattr(db, "for_threads"):
        raise ArgumentError(f"db={arguments.shown(db)}: must be a QueueDB or an AsyncQueueDB")
