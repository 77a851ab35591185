"""The verbs of a leased job that make it resumable: steps, state, sleeps and signals. The slice ``steps`` has what they do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from queue_db.slices import load, type_hint

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from queue_db.steps.resumption import JobState, Loop, Resumption
else:
    Connection, AsyncConnection = type_hint("sqlalchemy", "Connection"), type_hint("sqlalchemy.ext.asyncio", "AsyncConnection")
    JobState, Loop = (type_hint("queue_db.steps.resumption", name) for name in ("JobState", "Loop"))

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Resumable:
    """What a leased job can do to go on where it was when it runs again.

    A coroutine awaits these verbs, and what it gives to them is ``async def``. Any other caller gets the result at once.
    """

    __slots__ = ()

    @property
    def state(self) -> JobState:
        """What the job keeps from run to run: ``job.state.load()`` and ``job.state.save(value)``, JSON of at most 64 KB."""
        return _resumption(self).state

    @overload
    def step(
        self, name: str, function: Callable[_P, Coroutine[Any, Any, _T]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Coroutine[Any, Any, _T]: ...

    @overload
    def step(self, name: str, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...

    def step(self, name: str, function: Callable[_P, Any], /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Call ``function`` and store its result; when the job runs again, return the stored result without the call.

        The call is *at least once*: a process that dies between the call and the store calls again. For the job's own SQL use
        :meth:`step_transaction`.

        :param name: one name for each step of the job, at most 100 characters.
        :raises ArgumentError: this run has used the name before.
        :raises HandlerResultError: the result is no JSON, or longer than 64 KB.
        :raises LeaseLostError: the lease was lost; nothing was stored.
        """
        return _resumption(self).step(name, function, args, kwargs, awaits=by_coroutine())

    @overload
    def step_transaction(
        self,
        name: str,
        function: Callable[Concatenate[AsyncConnection, _P], Coroutine[Any, Any, _T]],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> Coroutine[Any, Any, _T]: ...

    @overload
    def step_transaction(
        self, name: str, function: Callable[Concatenate[Connection, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...

    def step_transaction(
        self, name: str, function: Callable[Concatenate[Any, _P], Any], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Any:
        """:meth:`step` with SQL of its own: ``function(connection, …)`` runs in the transaction that stores its result.

        Both are committed or neither: *exactly-once effect*.

        :raises LeaseLostError: the lease was lost; what the function wrote is rolled back.
        """
        return _resumption(self).step_transaction(name, function, args, kwargs, awaits=by_coroutine())

    @overload
    def loop(
        self,
        name: str,
        function: Callable[Concatenate[Loop, _P], Coroutine[Any, Any, _T]],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> Coroutine[Any, Any, _T]: ...

    @overload
    def loop(self, name: str, function: Callable[Concatenate[Loop, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...

    def loop(self, name: str, function: Callable[Concatenate[Any, _P], Any], /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """:meth:`step` that stores where it is: ``function(loop, …)`` begins at ``loop.cursor`` and calls ``loop.advance(cursor)``.

        While the worker stops, ``advance`` ends the run, and the attempt is not counted.
        """
        return _resumption(self).loop(name, function, args, kwargs, awaits=by_coroutine())

    def sleep(self, seconds: float, *, name: str = "") -> Any:
        """End this run, and run the job again after ``seconds``; then this call returns at once. The attempt is not counted.

        :param name: needed if the job sleeps several times.
        :raises ArgumentError: this run has slept with this name before.
        :raises LeaseLostError: the lease was lost.
        """
        return self._called(by_coroutine(), "sleep", seconds, name)

    def wait_for(self, signal: str, *, timeout: float | None = None) -> Any:
        """Return the payload of a signal: of ``db.steps.send(job.id, signal, payload)``, or of a :meth:`callback`.

        If it was not sent yet, this ends the run; the job runs again when it is sent. The attempt is not counted.

        :param timeout: seconds from the first wait; None: no timeout.
        :raises TimeoutError: the signal was not sent in time; one that is sent later is refused.
        :raises ArgumentError: this run has waited for the signal before.
        :raises LeaseLostError: the lease was lost.
        """
        return self._called(by_coroutine(), "wait_for", signal, timeout)

    def callback(self, signal: str) -> Any:
        """Make a token with which a stranger sends the signal, once: ``POST /api/v1/callbacks/{token}`` of the service.

        Each call makes another one, so call it in the step that hands it over.

        :raises LeaseLostError: the lease was lost.
        """
        return self._called(by_coroutine(), "callback", signal)

    def _called(self, awaits: bool, verb: str, *given: Any) -> Any:
        resumption = _resumption(self)
        return resumption.called(awaits, getattr(resumption, verb), *given)


def _resumption(job: Resumable) -> Resumption:
    found: Resumption = load("steps.resumption", "resumption_of")(job)
    return found


def by_coroutine() -> bool:
    """Whether the function that calls this was called by the code of a coroutine, which can await what it gets.

    A running loop would not say as much: a plain function that a coroutine calls can await nothing.
    """
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
