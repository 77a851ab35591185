"""What a worker calls: the decorators that add handlers, hooks and wrappers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from queue_db import arguments
from queue_db.backoff import Backoff
from queue_db.codecs import Schema
from queue_db.errors import ArgumentError
from queue_db.leased_job import LeasedJob
from queue_db.worker.events import EndHook, EndHooks, EventName, Hook, only
from queue_db.worker.handlers import (
    AwaitingHandler,
    Executor,
    Handler,
    Handlers,
    HandlerSpec,
    RetryPolicy,
    Wrapper,
    check_kind,
    check_runs,
)

if TYPE_CHECKING:
    from queue_db.processes.main import JobSnapshot

_Handler = TypeVar("_Handler", bound=Handler | AwaitingHandler)
_ListHandler = TypeVar("_ListHandler", bound=Callable[[list[LeasedJob[Any]]], Any])
_ProcessHandler = TypeVar("_ProcessHandler", bound="Callable[[JobSnapshot], Any]")
_Wrapper = TypeVar("_Wrapper", bound=Wrapper)
_Hook = TypeVar("_Hook", bound=Hook)
_EndHook = TypeVar("_EndHook", bound=EndHook)


class Decorators(ABC):
    """The decorators of a worker."""

    def __init__(self) -> None:
        self.handlers = Handlers()
        self.hooks: list[Hook] = []
        self.ends = EndHooks()
        self.wrappers: list[Wrapper] = []

    @overload
    def handles(
        self,
        kind: str | None,
        *,
        many: None = ...,
        max_attempts: int | None = ...,
        backoff: Backoff | None = ...,
        retry: RetryPolicy | None = ...,
        timeout: float | None = ...,
        schema: Any = ...,
        result_ttl: float | None = ...,
        executor: Literal["thread"] = ...,
    ) -> Callable[[_Handler], _Handler]: ...

    @overload
    def handles(
        self,
        kind: str | None,
        *,
        many: None = ...,
        max_attempts: int | None = ...,
        backoff: Backoff | None = ...,
        retry: RetryPolicy | None = ...,
        timeout: float | None = ...,
        schema: Any = ...,
        result_ttl: float | None = ...,
        executor: Literal["process"],
    ) -> Callable[[_ProcessHandler], _ProcessHandler]: ...

    @overload
    def handles(
        self,
        kind: str | None,
        *,
        many: int,
        linger: float = ...,
        max_attempts: int | None = ...,
        backoff: Backoff | None = ...,
        retry: RetryPolicy | None = ...,
        timeout: float | None = ...,
        schema: Any = ...,
        result_ttl: float | None = ...,
        executor: Literal["thread"] = ...,
    ) -> Callable[[_ListHandler], _ListHandler]: ...

    def handles(
        self,
        kind: str | None,
        *,
        many: int | None = None,
        linger: float = 0.0,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        schema: Any = None,
        result_ttl: float | None = None,
        executor: Executor = "thread",
    ) -> Callable[[Any], Any]:
        """Decorate the handler of jobs of this kind; None: of every kind without a handler of its own.

        The handler gets the job. Its return value completes the job and is the job's result, unless the value is a Snooze, Retry,
        Cancel or Dead. An exception fails the attempt. An ``async def`` runs on the worker's event loop, or with
        ``async with worker`` on the application's. If its parameter is annotated as an :class:`~queue_db.aio.AsyncLeasedJob`, it
        gets one.

        :param many: the handler gets a list of at most so many jobs of one kind, and returns nothing, one outcome for all, a list
            with one for each, or a mapping from jobs to outcomes. An exception fails all; their next attempts are in shorter lists.
        :param linger: seconds for which a list that is not full waits for more jobs.
        :param max_attempts: after this many attempts the job is dead; default: the job's own ``max_attempts``.
        :param backoff: attempt number → seconds until the next attempt, as in ``queue_db.backoff``.
        :param retry: class of exception → backoff, seconds, or ``give_up``; the most specific class of an exception counts.
        :param timeout: seconds after which the attempt fails. A coroutine is cancelled. A thread goes on, with ``job.lost`` set,
            and keeps its slot until it returns. A process is stopped.
        :param schema: the schema of the payload: a pydantic model, a msgspec Struct, a dataclass, or a function. ``job.payload`` is
            then what the schema makes. A payload that does not fit is refused when it is enqueued through the same database object;
            a claimed job with such a payload is dead.
        :param result_ttl: seconds for which a completed job is kept, with its payload and the return value (``db.finished``,
            ``db.wait``); 0: it is not kept; default: the worker's ``result_ttl``.
        :param executor: ``thread``; or ``process``, for handlers that keep a core busy: the function is called in another process,
            which imports it by its name. The function gets a :class:`JobSnapshot`, and its return value is pickled.
        :raises ArgumentError: the kind has a handler, no process can find the function, or a value is outside its allowed range.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        check_kind(kind)
        return partial(self._add_handler, given)

    def _add_handler(self, given: Mapping[str, Any], function: Any) -> Any:
        """Add the handler ``function`` with the options that :meth:`handles` got."""
        options = dict(given)
        kind, executor, schema = (options.pop(name) for name in ("kind", "executor", "schema"))
        model = None if schema is None else Schema(schema)
        self.handlers.add(kind, HandlerSpec(function, schema=model, **options), executor)
        if model is not None and kind is not None:
            self._learn(kind, model)
        return function

    @abstractmethod
    def _learn(self, kind: str, schema: Schema) -> None:
        """Let enqueues through the worker's database check payloads of this kind."""

    @overload
    def on(self, hook: _Hook, /, *types: EventName) -> _Hook: ...

    @overload
    def on(self, *types: EventName) -> Callable[[_Hook], _Hook]: ...

    def on(self, *given: Any) -> Any:
        """Call a hook with each :class:`~queue_db.worker.events.JobEvent`, or only with those of some types; for decorators too.

        ``@worker.on``, ``worker.on(hook)``, ``@worker.on("failed", "dead")`` and ``worker.on(hook, "failed")`` are possible.

        :raises ArgumentError: the hook is no plain function of one event, or there is no such type.
        """
        if given and all(isinstance(one, str) for one in given):
            return lambda hook: self.on(hook, *given)
        hook, *types = given or (None,)
        if not callable(hook):
            raise ArgumentError(f"hook={hook!r}: must be a function of one JobEvent")
        arguments.plain("hook", hook)
        arguments.takes("what @worker.on got", hook, "one JobEvent")
        self.hooks.append(only(types, hook) if types else hook)
        return hook

    def on_start(self, hook: _EndHook) -> _EndHook:
        """Call ``hook()`` when the worker starts, before its first claim; for decorators too.

        An ``async def`` runs on the event loop of the handlers. An exception ends the run, and :meth:`run` raises it.
        """
        self.ends.start.append(_checked_hook("@worker.on_start", hook))
        return hook

    def on_stop(self, hook: _EndHook) -> _EndHook:
        """Call ``hook()`` when the worker has stopped and has no job in hand; the last one added is called first.

        An ``async def`` runs on the event loop of the handlers. Exceptions are logged.
        """
        self.ends.stop.append(_checked_hook("@worker.on_stop", hook))
        return hook

    def around(self, wrapper: _Wrapper) -> _Wrapper:
        """Call ``wrapper(job, call)`` in place of each handler of its type; usable as a decorator.

        It returns ``call(job)`` or another outcome. Around a handler of many jobs ``job`` is their list. A plain function wraps
        only handlers that are plain functions. An ``async def``, which awaits ``call(job)``, wraps only coroutines. The first
        wrapper is the outermost.
        """
        if not callable(wrapper):
            raise ArgumentError(f"wrapper={wrapper!r}: must be a function of a job and of the function to call with it")
        check_runs("what @worker.around got", wrapper)
        arguments.takes("what @worker.around got", wrapper, "a job", "the function to call with it")
        self.wrappers.append(wrapper)
        return wrapper


def _checked_hook(what: str, hook: _EndHook) -> _EndHook:
    if not callable(hook):
        raise ArgumentError(f"hook={hook!r}: must be a function without arguments")
    check_runs(f"what {what} got", hook)
    arguments.takes(f"what {what} got", hook)
    return hook
