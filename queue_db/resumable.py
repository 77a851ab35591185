"""The verbs of a leased job that make it resumable: steps, state, sleeps and signals. The slice ``steps`` has what they do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from queue_db.dialects.borrowed import Using
from queue_db.slices import load, type_hint

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from queue_db.steps.resumption import JobState, Loop, Resumption
else:
    Connection = type_hint("sqlalchemy", "Connection")
    JobState, Loop = (type_hint("queue_db.steps.resumption", name) for name in ("JobState", "Loop"))

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Claimant:
    """For what jobs are claimed: a run of a worker."""

    def __init__(self, *, at_most_once: bool = False, stopping: threading.Event | None = None) -> None:
        #: Whether the jobs are deleted when they are claimed, so that nothing can be stored with them.
        self.at_most_once = at_most_once
        #: Set when nothing more is claimed and no more handlers are called.
        self.stopping = stopping or threading.Event()


class Resumable:
    """What a leased job can do to go on where it was when it runs again."""

    __slots__ = ()

    @property
    def state(self) -> JobState:
        """What the job keeps from run to run: ``job.state.load()`` and ``job.state.save(value)``, JSON of at most 64 KB."""
        return _resumption(self).state

    @overload
    def step(self, name: str, function: Callable[..., _T], /, *args: Any, using: Using, **kwargs: Any) -> _T: ...

    @overload
    def step(self, name: str, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, using: Any = None, **kwargs: Any) -> Any:
        """Call ``function`` and store its result; when the job runs again, return the stored result without the call.

        The call is *at least once*: a process that dies between the call and the store calls again. For the job's own SQL give
        ``using``, or let :meth:`step_transaction` open the transaction.

        :param name: one name for each step of the job, at most 100 characters.
        :param using: a transaction of yours, in which ``function`` writes: the result is stored if it is committed, *exactly-once
            effect*. The function does not get it. The row of the job is locked until its end, so end it before other verbs.
        :raises ArgumentError: this run has used the name before, or was ended by :meth:`sleep` or :meth:`wait_for`; or ``function``
            is an ``async def``: it needs an AsyncLeasedJob.
        :raises HandlerResultError: the result is no JSON, or longer than 64 KB.
        :raises LeaseLostError: the lease was lost; nothing was stored. With ``using`` let it roll back the transaction.
        """
        return _resumption(self).step(name, function, args, kwargs, using)

    def step_transaction(
        self, name: str, function: Callable[Concatenate[Connection, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """:meth:`step` with SQL of its own: ``function(connection, …)`` runs in the transaction that stores its result.

        Both are committed or neither: *exactly-once effect*.

        :raises LeaseLostError: the lease was lost; what the function wrote is rolled back.
        """
        result: _T = _resumption(self).step_transaction(name, function, args, kwargs)
        return result

    def loop(self, name: str, function: Callable[Concatenate[Loop, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """:meth:`step` that stores where it is: ``function(loop, …)`` begins at ``loop.cursor`` and calls ``loop.advance(cursor)``.

        While the worker stops, ``advance`` ends the run, and the attempt is not counted.
        """
        result: _T = _resumption(self).loop(name, function, args, kwargs)
        return result

    def sleep(self, seconds: float, *, name: str = "") -> None:
        """End this run, and run the job again after ``seconds``; then this call returns at once. The attempt is not counted.

        :param name: needed if the job sleeps several times.
        :raises ArgumentError: this run has slept with this name before, or a step of it is under way in another thread or task.
        :raises LeaseLostError: the lease was lost.
        """
        _resumption(self).sleep(seconds, name)

    def wait_for(self, signal: str, *, timeout: float | None = None) -> Any:
        """Return the payload of a signal: of ``db.steps.send(job.id, signal, payload)``, or of a :meth:`callback`.

        If it was not sent yet, this ends the run; the job runs again when it is sent. The attempt is not counted.

        :param timeout: seconds from the first wait; None: no timeout.
        :raises TimeoutError: the signal was not sent in time; one that is sent later is refused.
        :raises ArgumentError: this run has waited for the signal before, or a step of it is under way in another thread or task.
        :raises LeaseLostError: the lease was lost.
        """
        return _resumption(self).wait_for(signal, timeout)

    def callback(self, signal: str) -> str:
        """Make a token with which a stranger sends the signal, once: ``POST /api/v1/callbacks/{token}`` of the service.

        Each call makes another one, so call it in the step that hands it over.

        :raises LeaseLostError: the lease was lost.
        """
        return _resumption(self).callback(signal)


def _resumption(job: Resumable) -> Resumption:
    found: Resumption = load("steps.resumption", "resumption_of")(job)
    return found
