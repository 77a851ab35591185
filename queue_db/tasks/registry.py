"""The registry of tasks: it defines them, binds them to databases, and gives their handlers to workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from queue_db import arguments
from queue_db.dialects.borrowed import AsyncUsing, Using
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.model import OnDuplicate
from queue_db.store.schema import KIND_LENGTH
from queue_db.tasks.options import Defaults, HandlerOptions, known
from queue_db.tasks.places import Databases, Place
from queue_db.tasks.task import Definition, ListDefinition, ListTask, Task
from queue_db.verbs.new_jobs import policy

if TYPE_CHECKING:
    from queue_db.aio import AsyncQueueDB
    from queue_db.db import QueueDB
    from queue_db.graphs.building import NewGraph
    from queue_db.worker import Worker
    from queue_db.worker.options import WorkerOptions


class Keep(TypedDict, total=False):
    """How long a graph is kept."""

    keep: float


class Tasks:
    """A registry of tasks. It needs no database until a task is enqueued, so a module may make it when it is imported."""

    def __init__(self) -> None:
        self._databases = Databases()
        #: Where the enqueues of the tasks go; tests replace it.
        self.place: Place = self._databases
        self._by_kind: dict[str, Task[..., Any, Any]] = {}

    @overload
    def task(
        self,
        *,
        queue: str,
        many: None = None,
        name: str | None = None,
        aliases: Iterable[str] = (),
        unique: Callable[..., str] | None = None,
        unique_for: float | None = None,
        on_duplicate: Literal["raise", "replace", "debounce"] = "raise",
        group: Callable[..., str | None] | str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        **handling: Unpack[HandlerOptions],
    ) -> Definition[int]: ...

    @overload
    def task(
        self,
        *,
        queue: str,
        many: None = None,
        name: str | None = None,
        aliases: Iterable[str] = (),
        unique: Callable[..., str] | None = None,
        unique_for: float | None = None,
        on_duplicate: OnDuplicate,
        group: Callable[..., str | None] | str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        **handling: Unpack[HandlerOptions],
    ) -> Definition[int | None]: ...

    @overload
    def task(
        self,
        *,
        queue: str,
        many: int,
        linger: float = 0.0,
        name: str | None = None,
        aliases: Iterable[str] = (),
        unique: Callable[..., str] | None = None,
        unique_for: float | None = None,
        on_duplicate: Literal["raise", "replace", "debounce"] = "raise",
        group: Callable[..., str | None] | str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        **handling: Unpack[HandlerOptions],
    ) -> ListDefinition[int]: ...

    @overload
    def task(
        self,
        *,
        queue: str,
        many: int,
        linger: float = 0.0,
        name: str | None = None,
        aliases: Iterable[str] = (),
        unique: Callable[..., str] | None = None,
        unique_for: float | None = None,
        on_duplicate: OnDuplicate,
        group: Callable[..., str | None] | str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        **handling: Unpack[HandlerOptions],
    ) -> ListDefinition[int | None]: ...

    def task(
        self,
        *positional: Any,
        queue: str = "",
        many: int | None = None,
        linger: float = 0.0,
        name: str | None = None,
        aliases: Iterable[str] = (),
        unique: Callable[..., str] | None = None,
        unique_for: float | None = None,
        on_duplicate: OnDuplicate = "raise",
        group: Callable[..., str | None] | str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        **handling: Unpack[HandlerOptions],
    ) -> Definition[Any] | ListDefinition[Any]:
        """Make a task of the decorated function.

        A first parameter that is annotated as a LeasedJob, an AsyncLeasedJob or a JobSnapshot, or is named ``job`` and has no
        annotation, gets the job. The payload has the other arguments by name.

        The options of :meth:`queue_db.worker.Worker.handles` belong to the handler; the others are for enqueues.

        :param queue: the name of the queue of its jobs.
        :param many: the function gets a list of at most so many payloads, as ``list[Page]``, or of jobs, as
            ``list[LeasedJob[Page]]``; ``enqueue(page)`` makes one job.
        :param linger: seconds for which a list that is not full waits for more.
        :param name: the kind of its jobs; default: the name of the function.
        :param aliases: kinds of older jobs that the task runs too.
        :param unique: a function that makes the unique key of the arguments that it names.
        :param unique_for: seconds for which the key stays taken, even if the job is done earlier.
        :param on_duplicate: what to do if a live job has the key.
        :param group: the group of the jobs, or a function that makes it of the arguments that it names.
        :param priority: jobs with a lower number are claimed first.
        :param delay: seconds until a job is due.
        :raises ArgumentError: the payload of a job cannot have the function's arguments, another task has the name or an alias, or
            an option is wrong.
        """
        if positional:
            raise ArgumentError('@tasks.task takes the queue of the jobs: @tasks.task(queue="mail")')
        known("a task", handling, HandlerOptions)
        policy(on_duplicate)
        defaults = Defaults(
            queue=queue,
            on_duplicate=on_duplicate,
            unique=unique,
            unique_for=unique_for,
            group=group,
            priority=priority,
            delay=delay,
        )
        others = tuple(arguments.members("aliases", aliases, "kinds"))
        of_handler = {**handling, **_of_lists(many, linger)}
        definition = Definition if many is None else ListDefinition
        return definition(lambda function: self._define(function, name, others, defaults, of_handler))

    def _define(
        self, function: Any, name: str | None, aliases: tuple[str, ...], defaults: Defaults, handling: Mapping[str, Any]
    ) -> Task[..., Any, Any]:
        kind = getattr(function, "__name__", None) if name is None else name
        if not callable(function) or isinstance(function, type) or kind is None:
            raise ArgumentError(f"{arguments.shown(function)}: must be a function; one without a name needs name=")
        if (problem := arguments.not_run(function)) is not None:
            raise ArgumentError(f"task {kind!r} {problem}")
        for one in (kind, *aliases):
            arguments.name("name" if one is kind else "alias", one, KIND_LENGTH)
        made: Any = ListTask if "many" in handling else Task
        task: Task[..., Any, Any] = made(self, function, kind, aliases, defaults, handling)
        for one in task.kinds:
            if one in self._by_kind or task.kinds.count(one) > 1:
                there = self._by_kind.get(one, task)
                raise ArgumentError(f"task {kind!r}: {there!r} has the kind {one!r} already: give another name= or aliases=")
        _check_executor(task)
        own = dict.fromkeys(task.kinds, task)
        self._by_kind |= own
        self._databases.show(own)
        return task

    @property
    def by_kind(self) -> Mapping[str, Task[..., Any, Any]]:
        """The tasks by the kinds of their jobs, also by aliases."""
        return MappingProxyType(self._by_kind)

    @property
    def queues(self) -> list[str]:
        """The queues of the tasks, in the order of their definitions.

        :raises ConfigurationError: there are no tasks.
        """
        if not self._by_kind:
            raise ConfigurationError("there are no tasks: import the modules that define them before the worker is made")
        return list(dict.fromkeys(task.defaults.queue for task in self._by_kind.values()))

    def bind(self, db: QueueDB | AsyncQueueDB) -> None:
        """Let the tasks enqueue through this object: a QueueDB for ``enqueue``, an AsyncQueueDB for ``aenqueue``.

        A later call with an object of the same class replaces the earlier one. The object also checks payloads of untyped enqueues
        of these kinds.

        :raises ArgumentError: ``db`` is neither.
        """
        self._databases.bind(db, self._by_kind)

    def graph(self, name: str | None = None, *, connection: Using | None = None, **options: Unpack[Keep]) -> NewGraph:
        """Describe a graph of jobs through the QueueDB of the tasks, as :meth:`queue_db.QueueDB.graph` does.

        ``graph.add(welcome.call(user=7), after=…)`` adds a node.

        :param connection: the jobs commit or roll back with the caller's own data.
        :param options: ``keep``, as there.
        :raises ConfigurationError: the tasks have no QueueDB (:meth:`bind`).
        """
        return self.place.graph(name, {"using": connection, **options})

    def agraph(self, name: str | None = None, *, connection: AsyncUsing | None = None, **options: Unpack[Keep]) -> NewGraph:
        """:meth:`graph` for asyncio, through the AsyncQueueDB of the tasks: ``async with tasks.agraph() as graph:``."""
        return self.place.agraph(name, {"using": connection, **options})

    def worker(self, db: QueueDB | AsyncQueueDB, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker that runs these tasks. By default it serves their queues.

        :param options: those of :class:`queue_db.worker.Worker`.
        """
        from queue_db.worker import Worker  # not before a worker is wanted: web code has none

        settings: dict[str, Any] = {"queues": self.queues, **options}
        made = Worker(db, **settings)
        self.attach(made)
        return made

    def attach(self, worker: Worker) -> None:
        """Add the handlers of the tasks that are defined by now to a worker.

        If the tasks have no open database of its class, they enqueue through that of the worker.

        :raises ArgumentError: an annotation cannot be evaluated, or the worker has a handler for one of the kinds.
        :raises ConfigurationError: msgspec is not installed.
        """
        for kind, task in self._by_kind.items():
            task.payloads.resolve()
            handles: Callable[[Any], Any] = worker.handles(kind, schema=task.payloads.schema.model, **task.handling)
            handles(task.handler)
        if isinstance(self.place, Databases):
            self.place.bind_once(worker.given, self._by_kind)

    @contextmanager
    def replaced(self, place: Place) -> Iterator[None]:
        """Send the enqueues within the block to another place, for tests."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    def __repr__(self) -> str:
        return f"<Tasks {', '.join(self._by_kind)}>"


def _of_lists(many: int | None, linger: float) -> Mapping[str, Any]:
    """The options of a handler of many jobs.

    :raises ArgumentError: a number is outside its allowed range, or there is no list that could wait.
    """
    arguments.seconds("linger", linger)
    if many is None:
        if linger:
            raise ArgumentError(f"linger={linger!r}: without many= there is no list that waits for more jobs")
        return {}
    arguments.whole("many", many, 1)
    return {"many": many, "linger": linger}


def _check_executor(task: Task[..., Any, Any]) -> None:
    """Check that a handler process can give the function the job that it takes.

    :raises ArgumentError: the function takes another one than a JobSnapshot.
    """
    job = task.payloads.signature.job
    if task.handling.get("executor") != "process":
        return
    if isinstance(task, ListTask):
        raise ArgumentError(f"task {task.name!r} has many=: a process gets one job at a time; use executor='thread'")
    if job not in (None, "JobSnapshot"):
        raise ArgumentError(f"task {task.name!r}: executor='process' gives a JobSnapshot, and no {job}")
