"""Typed tasks in tests: run them where they are enqueued, without a database; look for what was enqueued; bind them for a test."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ParamSpec, overload

from queue_db import arguments
from queue_db.codecs import JSONCodec, plain
from queue_db.errors import ArgumentError, ConfigurationError, HandlerResultError, JobDeadError, JobNotFoundError, PayloadError
from queue_db.leased_job import LeasedJob
from queue_db.model import Job
from queue_db.outcomes import Cancel, Dead, Retry, Snooze, Suspended
from queue_db.queue import Queue
from queue_db.tasks import Enqueuing, ListTask, Task, Tasks
from queue_db.tasks.places import Databases
from queue_db.tasks.task import Batch, NewTask
from queue_db.testing.jobs import awaited_signal
from queue_db.testing.jobs import job as job_of
from queue_db.worker.handlers import awaited_job, takes_awaited_job
from queue_db.worker.lists import outcome_of, outcomes_of

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueue, AsyncQueueDB
    from queue_db.db import QueueDB
    from queue_db.graphs.building import NewGraph

P = ParamSpec("P")

_LIVE = ("available", "scheduled", "blocked", "running")

# The options of an enqueue that the row of its job shows.
_SHOWN = ("priority", "unique_key", "group")

#: More jobs than this in one call probably mean that a task enqueues itself.
MOST = 10_000


@dataclass
class TaskRun:
    """A job of :func:`inline_tasks`."""

    task: Task[..., Any, Any]
    #: The job that the function gets if it takes one; of the last run, if it has slept or waited.
    job: LeasedJob
    #: The arguments by name, as they are stored.
    payload: Mapping[str, Any]
    #: The options of its enqueue.
    options: Mapping[str, Any]
    #: What the function returned; None: it returned nothing, raised, or has not run yet.
    outcome: Any = None
    #: What the function raised.
    error: BaseException | None = None
    done: bool = field(default=False, repr=False)
    #: Makes the job of the next run.
    again: Callable[..., LeasedJob] | None = field(default=None, repr=False)


class InlineTasks:
    """The jobs of a block of :func:`inline_tasks`, and the place that runs them."""

    def __init__(self, *, raises: bool, signals: Mapping[str, Any] | None = None) -> None:
        self._raises = raises
        #: The payloads of the signals for which tasks wait, by name. A test may add some.
        self.signals = dict(signals or {})
        #: All jobs, in the order of their enqueues.
        self.runs: list[TaskRun] = []
        self._pending: deque[TaskRun] = deque()
        self._busy = False

    def enqueue(self, job: NewTask) -> int:
        made = self._add(job, job.queue)
        self._run()
        return made

    async def aenqueue(self, job: NewTask) -> int:
        made = self._add(job, job.queue)
        await self._arun()
        return made

    def many(self, batch: Batch) -> list[int]:
        made = [self._add(job, batch.queue) for job in batch.jobs]
        self._run()
        return made

    async def amany(self, batch: Batch) -> list[int]:
        made = [self._add(job, batch.queue) for job in batch.jobs]
        await self._arun()
        return made

    def result(self, job_id: int, timeout: float) -> Any:
        run = next((run for run in self.runs if run.job.id == job_id), None)
        if run is None or isinstance(run.outcome, Cancel):
            raise JobNotFoundError(job_id, "the finished jobs")
        if run.error is not None or isinstance(run.outcome, Dead):
            raise JobDeadError(job_id)
        if not run.done or isinstance(run.outcome, Snooze | Retry):
            raise TimeoutError(f"job {job_id} is not completed: {run!r}")
        codec = JSONCodec()
        return codec.decode(codec.encode(plain(run.outcome)))

    def graph(self, name: str | None, options: Mapping[str, Any]) -> NewGraph:
        raise ConfigurationError("a graph needs a database: bind one in place of inline_tasks, and drain a worker of the tasks")

    agraph = graph

    async def aresult(self, job_id: int, timeout: float) -> Any:  # noqa: ASYNC109 - as AsyncQueueDB.wait
        return self.result(job_id, timeout)

    def _add(self, new: NewTask, queue: str) -> int:
        """Keep a job to run. Its arguments are encoded and decoded, as in a database."""
        number = len(self.runs) + 1
        task, options = new.task, new.options()
        shown = {name: options[name] for name in ("headers", *_SHOWN) if name in options}
        schema = task.payloads.schema.model
        again = partial(job_of, new.payload, kind=new.kind, queue=queue, id=number, schema=schema, **shown)
        run = TaskRun(task, again(signals=self.signals), new.payload, options, again=again)
        self.runs.append(run)
        self._pending.append(run)
        return number

    def _next(self, begun: Iterator[int]) -> list[TaskRun]:
        """The jobs of the next call: one, or for a task of many jobs the list of those that wait; empty: none waits."""
        runs: list[TaskRun] = []
        while self._pending and len(runs) < (1 if not runs else runs[0].task.handling.get("many", 1)):
            if runs and self._pending[0].task is not runs[0].task:
                break
            if next(begun) >= MOST:
                self._pending.clear()
                raise RuntimeError(f"more than {MOST:,} jobs: does a task enqueue itself?")
            runs.append(self._pending.popleft())
        return runs

    def _run(self) -> None:
        """Run what waits, unless a running task has enqueued it: then it runs when that task has ended."""
        if self._busy:
            return
        self._busy, begun, errors = True, count(), list[BaseException]()
        try:
            while runs := self._next(begun):
                try:
                    returned = _called(runs)
                except (Exception, Suspended) as error:  # noqa: BLE001 - it is the task's
                    returned = error
                errors += self._ended(runs, returned)
        finally:
            self._busy = False
        if errors and self._raises:
            raise errors[0]

    async def _arun(self) -> None:
        if self._busy:
            return
        self._busy, begun, errors = True, count(), list[BaseException]()
        try:
            while runs := self._next(begun):
                handler, given = runs[0].task.handler, _given(runs)
                try:
                    asynchronous = inspect.iscoroutinefunction(handler)
                    returned = await (handler(given) if asynchronous else asyncio.to_thread(handler, given))
                except (Exception, Suspended) as error:  # noqa: BLE001 - it is the task's
                    returned = error
                errors += self._ended(runs, returned)
        finally:
            self._busy = False
        if errors and self._raises:
            raise errors[0]

    def _ended(self, runs: list[TaskRun], returned: object) -> list[BaseException]:
        """Note what each job of a call has become, or let those of a call that sleeps run again; return the errors."""
        if isinstance(returned, Suspended):
            try:
                self._resume(runs, returned)
            except (ConfigurationError, HandlerResultError) as error:
                returned = error
            else:
                return []
        jobs = [run.job for run in runs]
        outcomes = outcomes_of(jobs, returned) if isinstance(runs[0].task, ListTask) else [outcome_of(returned)]
        errors = []
        for run, outcome in zip(runs, outcomes, strict=True):
            run.done = True
            if isinstance(outcome, BaseException):
                run.error = outcome
                errors.append(outcome)
            else:
                run.outcome = outcome
        return errors

    def _resume(self, runs: list[TaskRun], suspended: Suspended) -> None:
        """Let the time pass for which a job sleeps or waits, and make the job of its next run; the others of its list run again.

        :raises ConfigurationError: it waits without a timeout, and nobody sends the signal.
        :raises HandlerResultError: no verb of the job has ended its run.
        """
        run = next((run for run in runs if run.job.settled), None)
        if run is None or run.again is None:
            raise HandlerResultError(f"the task raised {suspended!r}: only verbs of the job do that") from suspended
        signal = awaited_signal(run.job)
        if signal is not None and signal not in self.signals:
            raise ConfigurationError(
                f"{run.task.name} waits for the signal {signal!r}, which nobody sends here: give its payload, such as "
                f"inline_tasks(tasks, signals={{{signal!r}: …}})"
            ) from suspended
        run.job = run.again(resumes=run.job, signals=self.signals)
        self._pending.extendleft(reversed(runs))


def _given(runs: list[TaskRun]) -> Any:
    """What a worker gives to the task: the job, or the list of jobs."""
    if isinstance(runs[0].task, ListTask):
        return [run.job for run in runs]
    (run,) = runs
    return awaited_job(run.job) if takes_awaited_job(run.task.handler) else run.job


def _called(runs: list[TaskRun]) -> Any:
    """What the function returns. A coroutine runs on an event loop of its own; in another thread, if one runs here."""
    handler, given = runs[0].task.handler, _given(runs)
    if not inspect.iscoroutinefunction(handler):
        return handler(given)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(handler(given))
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, handler(given)).result()


@contextmanager
def inline_tasks(tasks: Tasks, *, raises: bool = True, signals: Mapping[str, Any] | None = None) -> Iterator[InlineTasks]:
    """Within the block each task runs where it is enqueued, before ``enqueue`` returns; there is no database.

    Delays, unique keys, timeouts and ``connection=`` have no effect. A task that a running task enqueues runs when that one has
    ended. ``wait`` returns the result, whatever ``result_ttl`` is. A task that sleeps, or waits with a timeout, runs again at once:
    the time has passed.

    :param raises: True: ``enqueue`` raises what the function raises; False: only the :class:`TaskRun` has it.
    :param signals: the payloads of signals that were sent to each job, by name. A task that waits for another one without a timeout
        raises a ConfigurationError.
    :return: the jobs; ``.runs`` lists them.
    """
    place = InlineTasks(raises=raises, signals=signals)
    with tasks.replaced(place):
        yield place


@contextmanager
def bound_tasks(tasks: Tasks, *databases: QueueDB | AsyncQueueDB) -> Iterator[None]:
    """Within the block the tasks enqueue through these objects, as after :meth:`Tasks.bind`; afterwards where they did before."""
    place = Databases()
    for db in databases:
        place.bind(db, tasks.by_kind)
    with tasks.replaced(place):
        yield


@overload
def assert_enqueued(what: Enqueuing[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Job | LeasedJob: ...


@overload
def assert_enqueued(what: Queue, kind: str, payload: Any = ..., /) -> Job | LeasedJob: ...


def assert_enqueued(what: Any, /, *args: Any, **kwargs: Any) -> Job | LeasedJob:
    """Check that a job was enqueued and has not left its queue; return it.

    ``assert_enqueued(welcome, user=7)`` looks where the task enqueues: in its QueueDB, or within :func:`inline_tasks` among the
    jobs that ran. An argument with a default may be left out, and may then have any value. With ``welcome.using(priority=-1)``
    priority, unique key and group are compared too. For untyped jobs: ``assert_enqueued(queue, "welcome", {"user": 7})``.

    :raises AssertionError: there is no such job; the message lists those of the kind.
    """
    wanted = _Wanted(what, args, kwargs)
    place = wanted.place
    if isinstance(place, InlineTasks):
        return wanted.among([run for run in place.runs if (run.job.queue, run.job.kind) == (wanted.queue, wanted.kind)])
    queue = wanted.here
    found: list[Any] = []
    for state in _LIVE:
        page = queue.jobs(state, kind=wanted.kind, limit=1000)
        found += page.jobs
        while page.after is not None:
            page = queue.jobs(state, kind=wanted.kind, limit=1000, after=page.after)
            found += page.jobs
    return wanted.among(found)


@overload
async def aassert_enqueued(what: Enqueuing[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Job | LeasedJob: ...


@overload
async def aassert_enqueued(what: AsyncQueue, kind: str, payload: Any = ..., /) -> Job | LeasedJob: ...


async def aassert_enqueued(what: Any, /, *args: Any, **kwargs: Any) -> Job | LeasedJob:
    """:func:`assert_enqueued` for asyncio: it looks in the AsyncQueueDB of the tasks, or in an AsyncQueue."""
    wanted = _Wanted(what, args, kwargs)
    if isinstance(wanted.place, InlineTasks):
        return assert_enqueued(what, *args, **kwargs)
    queue = wanted.there
    found: list[Any] = []
    for state in _LIVE:
        page = await queue.jobs(state, kind=wanted.kind, limit=1000)
        found += page.jobs
        while page.after is not None:
            page = await queue.jobs(state, kind=wanted.kind, limit=1000, after=page.after)
            found += page.jobs
    return wanted.among(found)


_ANY = object()


class _Wanted:
    """What a test looks for."""

    def __init__(self, what: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        #: Options that the job must have.
        self._shown: Mapping[str, Any] = {}
        self._task: Task[..., Any, Any] | None = None
        self.payload: Any
        if isinstance(what, Enqueuing):
            new = what.call(*args, **kwargs).job
            self._task = new.task
            self.place, self.queue, self.kind, self.payload = new.task.tasks.place, new.queue, new.kind, new.payload
            self._shown = {name: new.own[name] for name in _SHOWN if name in new.own}
        elif args and not kwargs and len(args) <= 2 and hasattr(what, "enqueue_many"):
            self.place, self.queue, self.kind, self.payload = what, what.name, args[0], args[1] if len(args) > 1 else _ANY
        else:
            raise ArgumentError(f"{arguments.shown(what)}: must be a task and its arguments, or a queue, a kind and a payload")

    @property
    def here(self) -> Any:
        """The queue of a QueueDB."""
        return self._queue(Queue, "sync", "a QueueDB: with an AsyncQueueDB write await aassert_enqueued(…)")

    @property
    def there(self) -> Any:
        """The queue of an AsyncQueueDB."""
        from queue_db.aio import AsyncQueue

        return self._queue(AsyncQueue, "asynchronous", "an AsyncQueueDB: with a QueueDB write assert_enqueued(…)")

    def _queue(self, of: type, bound: str, needs: str) -> Any:
        if isinstance(self.place, of):
            return self.place
        db = getattr(self.place, bound, None)
        if db is None:
            raise ConfigurationError(f"the tasks need {needs}")
        return db.queue(self.queue)

    def among(self, found: Iterable[Job | TaskRun]) -> Job | LeasedJob:
        found = list(found)
        for one in found:
            leased = one.job if isinstance(one, TaskRun) else one
            if self._fits(one.payload) and all(getattr(leased, name) == value for name, value in self._shown.items()):
                return leased
        wanted = "" if self.payload is _ANY else f" with {self.payload!r}"
        wanted += f" and {self._shown!r}" if self._shown else ""
        there = ", ".join(repr(one.payload) for one in found[:10]) or "none"
        raise AssertionError(f"no job of kind {self.kind!r}{wanted} in queue {self.queue!r}; of this kind there are: {there}")

    def _fits(self, payload: Any) -> bool:
        if self.payload is _ANY:
            return True
        wanted, payload = self._typed(self.payload), self._typed(payload)
        if isinstance(wanted, Mapping) and isinstance(payload, Mapping):
            return all(name in payload and payload[name] == value for name, value in wanted.items())
        return bool(payload == wanted)

    def _typed(self, payload: Any) -> Any:
        """The arguments of a task, which may be equal where their texts are not; a payload that does not fit stays as it is."""
        if self._task is None:
            return payload
        with suppress(PayloadError):
            return self._task.payloads.schema.read(self._task.name, payload)
        return payload
