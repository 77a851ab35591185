"""The handlers of a worker: a function for each kind of job, and its options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, get_origin, runtime_checkable

from queue_db import arguments
from queue_db.backoff import Backoff, checked, constant, give_up
from queue_db.codecs import Schema
from queue_db.errors import ArgumentError, ConfigurationError, PayloadError, UnknownKindError
from queue_db.leased_job import LeasedJob
from queue_db.slices import load
from queue_db.store.schema import KIND_LENGTH
from queue_db.worker.options import MOST_SLOTS

if TYPE_CHECKING:
    from queue_db.aio import AsyncLeasedJob
    from queue_db.processes.main import Reference
    from queue_db.worker.worker import Worker

# Module and name of the class, which the worker does not import.
_AWAITED = ("queue_db.aio.leased", "AsyncLeasedJob")

Executor = Literal["thread", "process"]
"""Where functions are called."""

#: The return value completes the job, unless it is Snooze, Retry, Cancel or Dead. An exception fails the attempt.
Handler = Callable[[LeasedJob], Any]
"""A function of a job; its result is the outcome."""

RetryPolicy = Mapping[type[BaseException], Backoff | float]
"""Class of exception → backoff, or seconds; of several classes that fit an exception the most specific one counts."""


AwaitingHandler = Callable[["AsyncLeasedJob"], Coroutine[Any, Any, Any]]
"""A coroutine function of a job whose methods are awaited. It says so by the annotation of its parameter."""

Wrapper = Callable[[LeasedJob, Handler], Any]
"""A function of a job and of the function to call with it; for coroutines an ``async def``."""


@runtime_checkable
class Stoppable(Protocol):
    """A handler that can end its running calls. ``stop`` is called before their jobs are released."""

    def stop(self) -> None:
        """End the running calls; their results do not count."""


@runtime_checkable
class Registry(Protocol):
    """Handlers that were defined without a worker. ``Worker(db, registry)`` serves the registry's queues with them."""

    @property
    def queues(self) -> Sequence[str]:
        """The queues of the jobs that the handlers are for."""

    def attach(self, worker: Worker, /) -> None:
        """Add the handlers to a worker, by :meth:`Worker.handles`."""


@dataclass(frozen=True, slots=True, eq=False)
class HandlerSpec:
    """The handler of one kind, with its options."""

    function: Handler
    #: After this many attempts the job is dead; None: the job's own ``max_attempts`` counts.
    max_attempts: int | None = None
    #: Attempt number → seconds until the next attempt; None: the default of the database object.
    backoff: Backoff | None = None
    #: Class of exception → the backoff after such an exception; None: ``backoff`` is for all.
    retry: RetryPolicy | None = None
    #: The function gets a list of at most so many jobs; None: it gets one job.
    many: int | None = None
    #: Seconds for which a list that is not full waits for more jobs.
    linger: float = 0.0
    #: Seconds after which the attempt fails; None: never.
    timeout: float | None = None
    schema: Schema | None = None
    #: Seconds for which a completed job is kept with its result; 0: it is not kept; None: the worker's default.
    result_ttl: float | None = None
    asynchronous: bool = False
    #: The name by which another process imports the function; None: it is called in this process.
    apart: Reference | None = None
    #: Whether the function takes an AsyncLeasedJob.
    awaits: bool = False

    def wrapped(self, wrappers: Sequence[Wrapper], function: Handler | None = None) -> Handler:
        """The handler's function inside the wrappers of its type (functions or coroutines). The first wrapper is the outermost.

        :param function: called in place of the handler's own function.
        """
        made = function or self.function
        if self.awaits:
            made = partial(_call_awaiting, made)
        for wrapper in reversed(wrappers):
            if arguments.asynchronous(wrapper) == self.asynchronous:
                made = partial(_call_around, wrapper, made)
        return made

    @property
    def watched(self) -> bool:
        """Whether the worker must check the timeout itself, because the function runs on a thread, which cannot be stopped."""
        return self.timeout is not None and not self.asynchronous and self.apart is None

    def backoff_after(self, outcome: object) -> Backoff | None:
        """The backoff after what the handler has raised or returned; None: the default of the database object."""
        if self.retry is not None and isinstance(outcome, BaseException):
            for kind in type(outcome).__mro__:
                backoff = self.retry.get(kind)
                if backoff is not None:
                    return backoff if callable(backoff) else constant(backoff)
        return self.backoff

    def gives_up(self, outcome: object) -> bool:
        """Whether ``give_up`` follows this outcome: there is no other attempt."""
        return self.backoff_after(outcome) is give_up

    def read(self, job: LeasedJob) -> None:
        """Replace ``job.payload`` by the object that the schema makes of it.

        :raises PayloadError: the payload does not fit the schema.
        """
        if self.schema is not None:
            try:
                job.understood(self.schema.read(job.kind, job.payload))
            except PayloadError as error:
                job.misfit = error
                raise


class Handlers:
    """The handlers of a worker by kind. None stands for every kind without a handler of its own."""

    def __init__(self) -> None:
        #: The handlers by kind; None: the handler of all other kinds.
        self.by_kind: dict[str | None, HandlerSpec] = {}

    def add(self, kind: str | None, spec: HandlerSpec, executor: Executor) -> None:
        """Add the handler of a kind.

        :param spec: the values that the application has given; this method checks them.
        :raises ArgumentError: the function cannot be called, the kind has a handler, or a value is outside its allowed range.
        """
        function = spec.function
        if kind is not None:
            arguments.name("kind", kind, KIND_LENGTH)
        of_kind = "other kinds" if kind is None else f"kind {kind!r}"
        if not callable(function):
            raise ArgumentError(f"the handler of {of_kind} is {function!r}: must be a function of one job")
        if kind in self.by_kind:
            raise ArgumentError(f"{of_kind} has a handler already")
        check_runs(f"the handler of {of_kind}", function)
        asynchronous = arguments.asynchronous(function)
        if spec.many is not None and executor == "process":
            raise ArgumentError(f"the handler of {of_kind} has many=: a process gets one job at a time; use executor='thread'")
        apart = _apart(of_kind, function, executor, asynchronous)
        arguments.takes(f"the handler of {of_kind}", function, "one job" if spec.many is None else "one list of jobs")
        awaits = takes_awaited_job(function)
        if awaits and not asynchronous:
            raise ArgumentError(
                f"the handler of {of_kind} takes an AsyncLeasedJob, whose methods are awaited: make it async def, or annotate it "
                "as LeasedJob"
            )
        self.by_kind[kind] = replace(_checked_options(spec), asynchronous=asynchronous, apart=apart, awaits=awaits)

    def of(self, job: LeasedJob) -> HandlerSpec:
        """Find the handler of this job. If the handler has ``max_attempts``, the job gets this number.

        :raises UnknownKindError: there is no handler for the job's kind.
        """
        spec = self.by_kind.get(job.kind) or self.by_kind.get(None)
        if spec is None:
            raise UnknownKindError(job.kind, self.kinds())
        if spec.max_attempts is not None:
            job.limit_attempts(spec.max_attempts)
        return spec

    def require(self, names: str) -> None:
        """Check that there are handlers.

        :param names: the worker's queues, for the message.
        :raises ConfigurationError: there are no handlers.
        """
        if not self.by_kind:
            raise ConfigurationError(
                f"the worker of {names} has no handlers: decorate a function with @worker.handles(kind), or with "
                "@worker.handles(None) for jobs of every kind, before it runs"
            )

    def require_room(self, names: str, slots: int) -> None:
        """Check that the lists of the handlers of many jobs can be filled.

        :param slots: how many jobs the worker runs at once.
        :raises ConfigurationError: a handler takes more jobs than that.
        """
        for kind, spec in self.by_kind.items():
            if spec.many is not None and spec.many > slots:
                raise ConfigurationError(
                    f"the handler of kind {kind!r} has many={spec.many}, but the worker of {names} has {slots} jobs in hand at "
                    f"once, so its lists would never be full: give the worker concurrency={spec.many}, or the handler fewer jobs"
                )

    def kinds(self) -> list[str]:
        """The kinds that have a handler."""
        return sorted(kind for kind in self.by_kind if kind is not None)

    def shown(self) -> list[str]:
        """The kinds as log lines show them; ``*`` stands for all other kinds."""
        return [*self.kinds(), *(["*"] if None in self.by_kind else [])]

    def all(self) -> list[HandlerSpec]:
        """All handlers."""
        return list(self.by_kind.values())


def check_kind(kind: object) -> None:
    """Check that ``handles`` got a kind and not the function.

    :raises ArgumentError: the decorator was used without brackets.
    """
    if callable(kind):
        raise ArgumentError(
            f"handles({getattr(kind, '__name__', kind)}): the decorator takes the kind of job: "
            "@worker.handles('welcome'), or @worker.handles(None) for every kind"
        )


def check_runs(what: str, function: Callable[..., Any]) -> None:
    """Check that the code of a function runs when the function is called or awaited.

    :raises ArgumentError: the function is a class or a generator function.
    """
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        raise ArgumentError(f"{what} is a class: a call makes an object of it; give a function, or an object with __call__")
    if (problem := arguments.not_run(function)) is not None:
        raise ArgumentError(f"{what} {problem}")


def _checked_options(spec: HandlerSpec) -> HandlerSpec:
    """The spec with times in seconds.

    :raises ArgumentError: a value is outside its allowed range.
    """
    timeout, result_ttl = spec.timeout, spec.result_ttl
    if spec.max_attempts is not None:
        arguments.whole("max_attempts", spec.max_attempts, 1)
    if spec.backoff is not None:
        checked("backoff", spec.backoff)
    if spec.many is not None:
        arguments.whole("many", spec.many, 1, MOST_SLOTS)
    elif spec.linger:
        raise ArgumentError(f"linger={spec.linger!r}: without many= the handler gets one job, which does not wait for others")
    if timeout is not None:
        timeout = arguments.seconds("timeout", timeout, zero=False) / 1_000_000
    if result_ttl is not None:
        result_ttl = arguments.seconds("result_ttl", result_ttl) / 1_000_000
    linger = arguments.seconds("linger", spec.linger) / 1_000_000
    retry = None if spec.retry is None else _policy(spec.retry)
    return replace(spec, retry=retry, linger=linger, timeout=timeout, result_ttl=result_ttl)


def _policy(retry: object) -> dict[type[BaseException], Backoff]:
    """The backoff of each class of exception; seconds are a constant one."""
    if not isinstance(retry, Mapping):
        raise arguments.wrong("retry", retry, ": must be a mapping from classes of exceptions to backoffs, seconds or give_up")
    policy: dict[type[BaseException], Backoff] = {}
    for kind, backoff in retry.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise arguments.wrong("retry", kind, ": must be a class of exceptions")
        what = f"retry[{kind.__name__}]"
        if not callable(backoff):
            arguments.seconds(what, backoff)
        policy[kind] = checked(what, backoff) if callable(backoff) else constant(backoff)
    return policy


def takes_awaited_job(function: Handler | AwaitingHandler) -> bool:
    """Whether the first parameter of a function is annotated as an AsyncLeasedJob, with or without the type of its payload."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 - an annotation that cannot be evaluated, perhaps of another parameter: its text must do
        try:
            signature = arguments.signature(function)
        except (TypeError, ValueError):
            return False
    first = next(iter(signature.parameters.values()), None)
    annotation: Any = None if first is None else first.annotation
    text = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(text, str):
        return re.match(r"[\"'\s]*(\w+\.)*AsyncLeasedJob\b", text) is not None
    found = get_origin(annotation) or annotation
    return isinstance(found, type) and any((one.__module__, one.__name__) == _AWAITED for one in found.__mro__)


def awaited_job(job: LeasedJob) -> AsyncLeasedJob:
    """The job of a worker for a coroutine that awaits its methods."""
    made: AsyncLeasedJob = load("aio.handled", "HandledJob")(job)
    return made


async def _call_awaiting(function: Callable[[Any], Any], job: LeasedJob) -> Any:
    return await function(awaited_job(job))


def _apart(of_kind: str, function: Handler, executor: str, asynchronous: bool) -> Reference | None:
    if executor not in get_args(Executor):
        raise ArgumentError(f"executor={executor!r}: must be one of {', '.join(get_args(Executor))}")
    if executor != "process":
        return None
    if asynchronous:
        raise ArgumentError(f"the handler of {of_kind} is async def: it runs on the worker's event loop, not in a process")
    reference: Reference = load("processes.main", "reference_of")(function)
    return reference


def timeout_error(spec: HandlerSpec) -> TimeoutError:
    """The failure of an attempt whose timeout has passed."""
    return TimeoutError(f"no result after {spec.timeout:g} s")


def _call_around(wrapper: Wrapper, inner: Handler, job: LeasedJob) -> Any:
    return wrapper(job, inner)
