"""A task: a function whose calls become jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property, update_wrapper
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, TypeAlias, TypeVar, Unpack, overload

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.leased_job import JobData, LeasedJob
from queue_db.model import OnDuplicate
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.tasks.lists import ListPayloads
from queue_db.tasks.options import OF_ALL, Defaults, EnqueueOptions, known
from queue_db.tasks.payloads import Payloads

if TYPE_CHECKING:
    import typing_extensions

    from queue_db.aio import AsyncLeasedJob
    from queue_db.tasks.registry import Tasks
    from queue_db.worker import JobSnapshot

    Returned_co = typing_extensions.TypeVar("Returned_co", covariant=True, default=Any)
    #: What an enqueue returns: the id; also None, if it may skip a duplicate.
    Id_co = typing_extensions.TypeVar("Id_co", covariant=True, default=int)

    class _AnyJob(LeasedJob[Any], AsyncLeasedJob[Any], JobSnapshot):  # type: ignore[misc]
        """What every parameter for a job accepts."""

    class _Unrelated:
        """What only a parameter of type Any or object accepts: whether it is for the job cannot be told from it."""
else:
    Returned_co = TypeVar("Returned_co", covariant=True)
    Id_co = TypeVar("Id_co", covariant=True)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

TaskJob: TypeAlias = LeasedJob[Mapping[str, object]]
"""The job of a task, to annotate a function's first parameter with; its payload is the arguments by name."""


class NewTask:
    """A call that becomes a job."""

    __slots__ = ("defaults", "kind", "on_duplicate", "own", "payload", "queue", "task", "using")

    def __init__(self, task: Task[Any, Any, Any], given: Any, options: Mapping[str, Any]) -> None:
        self.task = task
        self.kind = task.name
        #: The arguments by name, or the element of the list, in the types of JSON.
        self.payload = task.payloads.written(given)
        #: What ``using`` was given.
        self.own = options
        #: What the task's options make of the arguments.
        self.defaults = task.options_for(self.payload)
        self.queue: str = options.get("queue", task.defaults.queue)
        self.using: Any = options.get("connection")
        self.on_duplicate: OnDuplicate = options.get("on_duplicate", task.defaults.on_duplicate)

    def options(self, of_call: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """The options of Queue.enqueue that belong to one job.

        :param of_call: options that a call of ``many`` has for all its jobs.
        """
        return self.defaults | {name: value for name, value in {**of_call, **self.own}.items() if name not in OF_ALL}


class Call(Generic[P]):
    """The arguments of one job, for :meth:`Enqueuing.many`; its :attr:`item` is for :meth:`queue_db.Queue.enqueue_batch`."""

    def __init__(self, task: Task[P, Any, Any], job: NewTask) -> None:
        self.task = task
        self.job = job

    @property
    def queue(self) -> str:
        """The queue of the job."""
        return self.job.queue

    @property
    def item(self) -> tuple[str, Any, Mapping[str, Any]]:
        """Kind, payload and options of the job, as :meth:`queue_db.Queue.enqueue_many` takes them."""
        return self.job.kind, self.job.payload, self.job.options()

    def __repr__(self) -> str:
        return f"<Call of {self.task.name!r}>"


class Enqueuing(Generic[P, Id_co]):
    """Enqueues jobs of a task, with the options that ``using`` was given.

    The arguments are those of the task's function, without the job.
    """

    def __init__(self, task: Task[P, Any, Any], options: Mapping[str, Any]) -> None:
        self._task = task
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Id_co:
        """Add a job that calls the function with these arguments; return its id.

        With ``on_duplicate="skip"`` return None if a live job has the key.

        :raises PayloadError: an argument does not fit its annotation; the message names it.
        :raises DuplicateJobError: a live job has the unique key.
        :raises ConfigurationError: the tasks have no QueueDB (:meth:`Tasks.bind`).
        """
        added: Id_co = self._task.tasks.place.enqueue(self._new(args, kwargs))
        return added

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Id_co:
        """:meth:`enqueue` for asyncio, through the AsyncQueueDB of the tasks."""
        added: Id_co = await self._task.tasks.place.aenqueue(self._new(args, kwargs))
        return added

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """Check these arguments and keep them for :meth:`many`.

        :raises PayloadError: an argument does not fit its annotation; the message names it.
        """
        return Call(self._task, self._new(args, kwargs))

    def many(self, calls: Iterable[Call[P]]) -> list[Id_co]:
        """Add a job for each :class:`Call`, all in one transaction; return the ids by position.

        ``using(…).call(…)`` gives one job its own options. The queue, the connection and ``on_duplicate`` are given to
        ``using(…).many(…)``.

        :raises ArgumentError: a call belongs to another task, or has a queue, a connection or ``on_duplicate`` of its own.
        """
        added: list[Id_co] = self._task.tasks.place.many(self._all(calls))
        return added

    async def amany(self, calls: Iterable[Call[P]]) -> list[Id_co]:
        """:meth:`many` for asyncio, through the AsyncQueueDB of the tasks."""
        added: list[Id_co] = await self._task.tasks.place.amany(self._all(calls))
        return added

    def _new(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewTask:
        return NewTask(self._task, self._task.payloads.bound(args, kwargs), self._options)

    def _all(self, calls: Iterable[Call[P]]) -> Batch:
        jobs = []
        for position, call in enumerate(arguments.members("calls", calls, f"{self._task.name}.call(…)")):
            if not isinstance(call, Call) or call.task is not self._task:
                raise ArgumentError(f"job {position}: {call!r}: must be a call of this task: {self._task.name}.call(…)")
            jobs.append(call.job)
        return Batch(self._task, jobs, self._options)


class Batch:
    """Calls of one task that become jobs together.

    :raises ArgumentError: a call has an option that belongs to all of them.
    """

    def __init__(self, task: Task[Any, Any, Any], jobs: list[NewTask], options: Mapping[str, Any]) -> None:
        self.task = task
        self.jobs = jobs
        self.queue: str = options.get("queue", task.defaults.queue)
        self.using: Any = options.get("connection")
        self.on_duplicate: OnDuplicate = options.get("on_duplicate", task.defaults.on_duplicate)
        for position, job in enumerate(jobs):
            if own := OF_ALL & job.own.keys():
                raise ArgumentError(
                    f"job {position}: {', '.join(sorted(own))} must be the same for all jobs: give it to using(…).many(…)"
                )
        #: Items of Queue.enqueue_many.
        self.items = [(job.kind, job.payload, job.options(options)) for job in jobs]


class Task(Enqueuing[P, Id_co], Generic[P, Returned_co, Id_co]):
    """A function whose calls become jobs; :meth:`Tasks.task` makes it. A call of the task calls the function.

    A function that takes the job first must be called with one.
    """

    def __init__(
        self,
        tasks: Tasks,
        function: Callable[..., Any],
        name: str,
        aliases: tuple[str, ...],
        defaults: Defaults,
        handling: Mapping[str, Any],
    ) -> None:
        super().__init__(self, {})
        update_wrapper(self, function)
        self.tasks = tasks
        #: The kind of the jobs.
        self.name = name
        #: Kinds of older jobs that the task runs too.
        self.aliases = aliases
        self.defaults = defaults
        #: The options of the handler.
        self.handling = handling
        #: The decorated function.
        self.function = function
        self.payloads = self._payloads_of(name, function)
        for what, key in (("unique", defaults.unique), ("group", defaults.group)):
            if key is not None and not isinstance(key, str):
                self.payloads.check_key(what, key)

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Returned_co: ...

    @overload
    def __call__(self, job: JobData, /, *args: P.args, **kwargs: P.kwargs) -> Returned_co: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    @overload
    def using(self, *, on_duplicate: None = None, **options: Unpack[EnqueueOptions]) -> Enqueuing[P, Id_co]: ...

    @overload
    def using(
        self, *, on_duplicate: Literal["raise", "replace", "debounce"], **options: Unpack[EnqueueOptions]
    ) -> Enqueuing[P, int]: ...

    @overload
    def using(self, *, on_duplicate: OnDuplicate, **options: Unpack[EnqueueOptions]) -> Enqueuing[P, int | None]: ...

    def using(self, *, on_duplicate: OnDuplicate | None = None, **options: Unpack[EnqueueOptions]) -> Enqueuing[P, Any]:
        """Options for the enqueues of the object that is returned: ``welcome.using(delay=60).enqueue(user=7)``.

        They are those of :meth:`queue_db.Queue.enqueue`, and ``queue``. With ``connection``, a Connection or Session, or for
        ``aenqueue`` and ``amany`` an AsyncConnection or AsyncSession, the jobs commit or roll back with the caller's own data.

        :param on_duplicate: what to do if a live job has the unique key.
        :param options: the other options.
        :raises ArgumentError: there is no such option.
        """
        known("an enqueue", options, EnqueueOptions)
        given: dict[str, Any] = {**options}
        return Enqueuing(self, given if on_duplicate is None else given | {"on_duplicate": on_duplicate})

    @overload
    def result(self: Task[P, Coroutine[Any, Any, T | Snooze | Retry | Cancel | Dead], Id_co], job_id: int, timeout: float) -> T: ...

    @overload
    def result(self: Task[P, T | Snooze | Retry | Cancel | Dead, Id_co], job_id: int, timeout: float) -> T: ...

    def result(self, job_id: int, timeout: float) -> Any:
        """Wait until a job of this task is completed; return its result, of the type that the function's annotation says.

        The task must retain results: ``result_ttl=``.

        :param timeout: seconds.
        :raises JobDeadError: the job is dead.
        :raises JobNotFoundError: its result was not retained or has expired, or it was cancelled or purged, or never existed.
        :raises TimeoutError: the job is not completed after ``timeout`` seconds.
        :raises PayloadError: the stored result does not fit the annotation.
        """
        return self.payloads.result(self.tasks.place.result(job_id, timeout))

    @overload
    async def aresult(  # the argument is that of AsyncQueueDB.wait
        self: Task[P, Coroutine[Any, Any, T | Snooze | Retry | Cancel | Dead], Id_co],
        job_id: int,
        timeout: float,  # noqa: ASYNC109
    ) -> T: ...

    @overload
    async def aresult(self: Task[P, T | Snooze | Retry | Cancel | Dead, Id_co], job_id: int, timeout: float) -> T: ...  # noqa: ASYNC109

    async def aresult(self, job_id: int, timeout: float) -> Any:  # noqa: ASYNC109 - as AsyncQueueDB.wait
        """:meth:`result` for asyncio, through the AsyncQueueDB of the tasks."""
        return self.payloads.result(await self.tasks.place.aresult(job_id, timeout))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the jobs that the task runs: its name and its aliases."""
        return (self.name, *self.aliases)

    @cached_property
    def handler(self) -> Callable[[Any], Any]:
        """The handler of the jobs: a function of one job. A handler process finds it as an attribute of the task."""
        return self.payloads.handler()

    def options_for(self, payload: Any) -> dict[str, Any]:
        """The options of Queue.enqueue that the task's own options make for this payload."""
        own, options = self.defaults, dict[str, Any]()
        if own.priority:
            options["priority"] = own.priority
        if own.delay:
            options["delay"] = own.delay
        if (most := self.handling.get("max_attempts")) is not None:
            options["max_attempts"] = most
        if isinstance(own.group, str):
            options["group"] = own.group
        elif own.group is not None:
            options["group"] = self.payloads.key("group", own.group, payload)
        if own.unique is not None:
            options["unique_key"] = self.payloads.key("unique", own.unique, payload)
            if own.unique_for is not None:
                options["unique_for"] = own.unique_for
        return options

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of queue {self.defaults.queue!r}>"

    _payloads_of: ClassVar[type[Payloads]] = Payloads


class ListTask(Task[[T], Returned_co, Id_co], Generic[T, Returned_co, Id_co]):
    """A task whose function gets a list; each ``enqueue`` makes one element of it. A call of the task calls the function."""

    _payloads_of = ListPayloads

    def __call__(self, elements: list[Any], /) -> Returned_co:  # type: ignore[override]
        """Call the function."""
        returned: Returned_co = self.function(elements)
        return returned

    def result(self, job_id: int, timeout: float) -> Any:
        """:meth:`Task.result` of one job: of the type of an element, if the function returns a ``list[…]``."""
        return super().result(job_id, timeout)

    async def aresult(self, job_id: int, timeout: float) -> Any:  # noqa: ASYNC109 - as AsyncQueueDB.wait
        """:meth:`result` for asyncio, through the AsyncQueueDB of the tasks."""
        return await super().aresult(job_id, timeout)


class Definition(Generic[Id_co]):
    """Makes a task of a function; :meth:`Tasks.task` returns it."""

    def __init__(self, define: Callable[[Any], Any]) -> None:
        self._define = define

    @overload
    def __call__(self, function: Callable[Concatenate[_Unrelated, P], R], /) -> Task[..., R, Id_co]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[_AnyJob, P], R], /) -> Task[P, R, Id_co]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, Id_co]: ...

    def __call__(self, function: Any, /) -> Any:
        """Make a task of this function."""
        return self._define(function)


class ListDefinition(Generic[Id_co]):
    """Makes a task of many jobs; :meth:`Tasks.task` with ``many=`` returns it."""

    def __init__(self, define: Callable[[Any], Any]) -> None:
        self._define = define

    @overload
    def __call__(self, function: Callable[[list[LeasedJob[T]]], R], /) -> ListTask[T, R, Id_co]: ...

    @overload
    def __call__(self, function: Callable[[list[T]], R], /) -> ListTask[T, R, Id_co]: ...

    def __call__(self, function: Any, /) -> Any:
        """Make a task of this function."""
        return self._define(function)
