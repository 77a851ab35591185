"""The worker: which handlers it has, how it is run and stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

from sqlalchemy import URL

from queue_db import arguments
from queue_db.backoff import Backoff
from queue_db.codecs import Schema
from queue_db.database.masking import masked
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.verbs.settle import UNKNOWN_GRACE
from queue_db.worker.claimer import shares_of
from queue_db.worker.events import Hook
from queue_db.worker.handlers import Handlers, Handling, Wrapper
from queue_db.worker.run import Run, Summary
from queue_db.worker.signals import Mail, Quiet, Stop, handled

log = logging.getLogger("queue_db.worker")

#: What may become of jobs for whose kind there is no handler.
UNKNOWN = ("wait", "dead")

# What the constructor makes of these options is ``shares``; each other one is an attribute of the same name.
_SHARES = frozenset({"concurrency", "prefetch", "weights"})

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Worker:
    """Works on the jobs of some queues until it is stopped.

    One thread claims for all queues, as many jobs as there are free slots; handlers run on threads, or if they are ``async def`` on
    one event loop; one thread reports what they returned, many jobs in one statement; one extends the leases of all jobs in hand;
    one enqueues what schedules say and keeps house. With the connection that hears of new jobs where there is one, these are all
    that it uses: five.

    :param queues: a queue's name; a list of names, asked in this order; or how many jobs of each may be in hand at once.
    :param concurrency: jobs in hand at once; default: as many as the queues allow together, or 10.
    :param lease: seconds for which jobs are claimed and extended; how long a job is stuck when this process is killed.
    :param mode: ``at_least_once``; or ``at_most_once``: jobs leave the queue when they are claimed, and one whose worker dies, or
        whose handler fails, is gone.
    :param prefetch: jobs to claim ahead of free slots: fewer statements, but these jobs wait here while another worker may be idle.
    :param weights: the share of each queue's jobs while all queues have jobs, so that none starves; default: strictly in order.
    :param poll: longest pause between two looks at empty queues, seconds.
    :param grace: how long a stop waits for running handlers, seconds; then their jobs are released.
    :param keep: seconds for which completed jobs are kept, with payloads and results, where their handlers do not say; default: not
        at all.
    :param dead_for: delete jobs of these queues that have been dead for so many seconds; default: never.
    :param dead_at_most: and of each of these queues the longest dead ones above this number.
    :param unknown: what becomes of a job for whose kind there is no handler here. ``wait``: it comes back, not an attempt, after a
        second at first and a minute at last, since another worker may have one, as in a rolling deployment; ``dead``: it goes to
        the dead table at once, as with ``at_most_once`` it is gone.
    :param unknown_grace: seconds for which it waits, from when the first worker found it; then it is dead.
    :param exit_when_stuck: end the run when so many handlers have not come back after their timeouts or lost leases: they keep
        their slots. ``queue-db work`` ends with status 75 then, for its supervisor to start it again; default: never; at most as
        many as there are slots.
    :param schedules: also enqueue what the database's schedules say, of all queues. Every worker may: each slot is enqueued once.
    :raises ArgumentError: a value is outside its allowed range.
    """

    def __init__(
        self,
        db: QueueDB,
        queues: str | Sequence[str] | Mapping[str, int],
        *,
        concurrency: int | None = None,
        lease: float = 60.0,
        mode: str = "at_least_once",
        prefetch: int = 0,
        weights: Mapping[str, int] | None = None,
        poll: float = 0.5,
        grace: float = 30.0,
        unknown: str = "wait",
        unknown_grace: float = UNKNOWN_GRACE,
        exit_when_stuck: int | None = None,
        schedules: bool = True,
        keep: float | None = None,
        dead_for: float | None = None,
        dead_at_most: int | None = None,
    ) -> None:
        _check_database(db)
        self.db = db
        self._queues = queues
        self._options: dict[str, Any] = {
            "concurrency": concurrency,
            "lease": lease,
            "mode": mode,
            "prefetch": prefetch,
            "weights": weights,
            "poll": poll,
            "grace": grace,
            "unknown": unknown,
            "unknown_grace": unknown_grace,
            "exit_when_stuck": exit_when_stuck,
            "schedules": schedules,
            "keep": keep,
            "dead_for": dead_for,
            "dead_at_most": dead_at_most,
        }
        self.schedules = schedules
        self.keep, self.dead_for, self.dead_at_most = keep, dead_for, dead_at_most
        for what, wish in (("keep", keep), ("dead_for", dead_for)):
            if wish is not None:
                arguments.seconds(what, wish, zero=False)
        if dead_at_most is not None:
            arguments.whole("dead_at_most", dead_at_most, 0)
        if unknown not in UNKNOWN:
            raise ArgumentError(f"unknown={unknown!r}: must be one of {', '.join(UNKNOWN)}")
        arguments.seconds("unknown_grace", unknown_grace)
        self.unknown, self.unknown_grace, self.exit_when_stuck = unknown, float(unknown_grace), exit_when_stuck
        if mode not in ("at_least_once", "at_most_once"):
            raise ArgumentError(f"mode={arguments.shown(mode)}: must be at_least_once or at_most_once")
        self.mode = mode
        self.shares = shares_of(queues, concurrency, prefetch, weights)
        if exit_when_stuck is not None:
            arguments.whole("exit_when_stuck", exit_when_stuck, 1)
            if exit_when_stuck > (slots := self.shares.total + self.shares.ahead):
                raise ArgumentError(
                    f"exit_when_stuck={exit_when_stuck}: this worker has {slots} slots, so that would never happen: at most {slots}"
                )
        if prefetch and mode == "at_most_once":
            raise ArgumentError(
                "prefetch and at_most_once do not go together: a job claimed ahead would be gone if this process died"
            )
        self.lease = arguments.seconds("lease", lease, zero=False) / 1_000_000
        self.poll = arguments.seconds("poll", poll, zero=False) / 1_000_000
        self.grace = arguments.seconds("grace", grace) / 1_000_000
        for queue in self.shares.queues:
            db.queue(queue)  # refuses impossible names
        self.handlers = Handlers()
        self.hooks: list[Hook] = []
        self.wrappers: list[Wrapper] = []
        self._lock = threading.Lock()
        # The thread in run() reads it; a signal handler may put into it at any moment, which no lock or event allows.
        self._mail: Mail = SimpleQueue()
        self._background: threading.Thread | None = None
        #: While it is set, nothing is claimed.
        self.hushed = threading.Event()
        self.summary = Summary()
        self._run: Run | None = None

    def configure(self, **options: Any) -> None:
        """Change options of this worker before it runs; they are named as in the constructor.

        ``concurrency`` caps what the queues allow together.

        :raises ArgumentError: as the constructor does; nothing is changed then.
        """
        other = Worker(self.db, self._queues, **(self._options | options))
        for name in {"_options", "shares"} | self._options.keys() - _SHARES:
            setattr(self, name, getattr(other, name))

    def changed(self, **options: Any) -> Self:
        """Another worker with the same handlers and with other options, which are named as in the constructor.

        ``concurrency`` caps what the queues allow together. It is stopped by itself, as this one is.

        :raises ArgumentError: as the constructor does.
        """
        other = type(self)(self.db, self._queues, **(self._options | options))
        other.handlers, other.hooks, other.wrappers = self.handlers, self.hooks, self.wrappers
        return other

    # --- handlers ---------------------------------------------------------------------------------------------------

    def handles(
        self,
        kind: str | None,
        *,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: float | None = None,
        schema: Any = None,
        keep: float | None = None,
        executor: str = "thread",
    ) -> Callable[[_Function], _Function]:
        """Decorate the function that works on jobs of this kind; None: of every kind that has no handler of its own.

        It gets the job. What it returns completes it and is its result, save Snooze, Retry, Cancel and Dead; an exception fails the
        attempt. An ``async def`` runs on the worker's event loop.

        :param max_attempts: after so many the job is dead, whatever it says itself.
        :param backoff: attempt number → seconds until the next, as ``queue_db.backoff`` has them.
        :param timeout: seconds after which the attempt has failed. A coroutine is cancelled. A thread goes on, with ``job.lost``
            set, and keeps its slot until it returns. A process is ended.
        :param schema: what payloads must look like: a pydantic model, a msgspec Struct, a dataclass, or a function. The handler
            finds an object of it in ``job.payload``. A payload that does not fit is refused when it is enqueued through the same
            database object; one that is claimed goes to the dead with the reason.
        :param keep: seconds for which a completed job is kept, with its payload and what the handler returned (``db.finished``,
            ``db.wait``); 0: not at all; default: as the worker says.
        :param executor: ``thread``; or ``process``, for work that keeps a core busy: the function is called in another process,
            which must be able to import it by its name. It gets a :class:`JobSnapshot`, and what it returns is pickled.
        :raises ArgumentError: the kind has a handler already, another process cannot find the function, or a value is outside its
            allowed range.
        """
        if callable(kind):
            raise ArgumentError(
                f"handles({getattr(kind, '__name__', kind)}): the decorator takes the kind of job: "
                "@worker.handles('welcome'), or @worker.handles(None) for every kind"
            )

        def add(function: _Function) -> _Function:
            model = None if schema is None else Schema(schema)
            self.handlers.add(
                kind,
                function,
                max_attempts=max_attempts,
                backoff=backoff,
                timeout=timeout,
                schema=model,
                keep=keep,
                executor=executor,
            )
            if model is not None and kind is not None:
                self.db.schemas[kind] = model
            return function

        return add

    def keeps(self, handling: Handling | None) -> float | None:
        """For how long a job is kept that was completed by this handler, seconds; None or 0: not at all."""
        return self.keep if handling is None or handling.keep is None else handling.keep

    def on(self, hook: Hook) -> Hook:
        """Let ``hook`` hear of everything that happens to jobs here; usable as a decorator."""
        if not callable(hook):
            raise ArgumentError(f"hook={hook!r}: must be a function of one JobEvent")
        self.hooks.append(hook)
        return hook

    def around(self, wrapper: _Function) -> _Function:
        """Call ``wrapper(job, call)`` around each handler: it returns ``call(job)``, or something else; usable as a decorator.

        A function wraps functions, an ``async def`` that awaits ``call(job)`` wraps coroutines. The first one is the outermost.
        """
        if not callable(wrapper):
            raise ArgumentError(f"wrapper={wrapper!r}: must be a function of a job and of what to call with it")
        self.wrappers.append(wrapper)
        return wrapper

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, until_empty: bool = False, *, started: Callable[[], None] | None = None) -> Summary:
        """Work until :meth:`stop`, or SIGTERM, SIGINT or SIGHUP if this is the main thread; their handlers are restored afterwards.

        The first signal stops as :meth:`stop` does, the second leaves at once, unless it is another SIGHUP. SIGTSTP is
        :meth:`quiet`, SIGCONT :meth:`resume`; SIGUSR1 logs what every thread does.

        :param until_empty: return when nothing is due, save in paused queues, and this worker has no job. Jobs that are scheduled
            for later, and those that other workers have, are not waited for.
        :param started: called once, when nothing can keep the worker from starting any more, before its first claim.
        :raises SchemaOutOfDateError: the tables are missing or of another version.
        :raises ConfigurationError: it has no handlers.
        """
        self.handlers.require(self.names)
        self.db.ready()
        self.summary = Summary()
        run = self._run = Run(self, self._mail, self._lock)
        with handled(self._mail):
            run.start(until_empty=until_empty, started=started)
            run.watch()
            run.leave()
            self._forget_stops()
        log.info("stopped working on %s: %s", self.names, self.summary)
        return self.summary

    def stop(self, grace: float | None = None) -> None:
        """Claim no more, let running handlers finish, then :meth:`run` returns. From any thread or signal handler.

        Before a run it ends that at once. One that comes while a run ends, for whatever reason, is for that run only.

        :param grace: seconds to wait for the handlers instead of the worker's own; 0 releases their jobs at once.
        """
        self._mail.put(Stop(grace))

    def quiet(self) -> None:
        """Claim no more, but go on with what is in hand, until :meth:`resume` or :meth:`stop`. From any thread."""
        self.hushed.set()

    def resume(self) -> None:
        """Claim again after :meth:`quiet`."""
        self.hushed.clear()

    def __enter__(self) -> Self:
        """Run in the background until the end of the block.

        :raises ConfigurationError: it has no handlers.
        """
        self.handlers.require(self.names)
        self.db.ready()
        self._background = threading.Thread(target=self.run, name=f"queue_db worker of {self.names}")
        self._background.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self._background is not None:
            self._background.join()
            self._background = None
        self._forget_stops()

    def _forget_stops(self) -> None:
        """A run has ended: what it did not read any more must not end the next one."""
        with suppress(Empty):
            while True:
                mail = self._mail.get_nowait()
                if isinstance(mail, Quiet):
                    (self.quiet if mail.on else self.resume)()
                elif isinstance(mail, Stop) and mail.signal is not None:
                    self.summary.signal = mail.signal

    @property
    def stuck(self) -> int:
        """Slots of handlers that have not come back although their jobs were taken from them: after a timeout, or a lost lease."""
        return 0 if self._run is None else self._run.stuck

    @property
    def names(self) -> str:
        """Its queues, for people."""
        return ", ".join(map(repr, self.shares.queues))


def _check_database(db: object) -> None:
    if isinstance(db, str | URL):
        raise ArgumentError(f"db={masked(db)!r}: must be a QueueDB: Worker(QueueDB({masked(db)!r}), …)")
    if not isinstance(db, QueueDB):
        raise ArgumentError(f"db={arguments.shown(db)}: must be a QueueDB")
