"""The payloads of a task's jobs: made of a call's arguments, read by the worker, checked against the annotations both times."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from queue_db import arguments
from queue_db.codecs import Schema
from queue_db.errors import ArgumentError, ConfigurationError, PayloadError, text_of
from queue_db.leased_job import LeasedJob
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.slices import load
from queue_db.tasks import coding
from queue_db.tasks.annotations import Signature

_OUTCOMES = (Snooze, Retry, Cancel, Dead)


class Payloads:
    """The payloads of one task.

    :param name: the kind of its jobs.
    :raises ArgumentError: a payload cannot have the arguments of this function.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self.signature = Signature(f"task {name!r}", function)

    def resolve(self) -> None:
        """Evaluate the annotations, if that is not done yet.

        :raises ArgumentError: an annotation names what is not defined, or a type that JSON does not have.
        :raises ConfigurationError: msgspec is not installed.
        """
        _ = self._model, self._result

    @cached_property
    def schema(self) -> Schema:
        """The schema of the payloads: it makes the arguments by name of a payload."""

        def read(payload: Any) -> Any:
            return self._read(payload)

        read.__name__ = self._name
        return Schema(read)

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The arguments of a call by name, without those that are not given.

        :raises PayloadError: one is missing, or there is no such argument.
        """
        try:
            return self.signature.arguments.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise self.misfit(error) from None

    def written(self, given: Any) -> Any:
        """The payload of a job with these arguments.

        :raises PayloadError: an argument does not fit its annotation, or JSON cannot have it.
        :raises ArgumentError, ConfigurationError: as :meth:`resolve`.
        """
        _ = self._model  # a mistake in an annotation is no mistake of the call
        payload = {}
        for name, value in given.items():
            try:
                payload[name] = coding.written(value)
            except Exception as error:
                raise self.misfit(f"{name}: {text_of(error)}") from error
        self.schema.read(self._name, payload)
        return payload

    def key(self, what: str, function: Callable[..., Any], payload: Mapping[str, Any]) -> Any:
        """What the task's function for its unique keys or groups says for a payload. It gets the arguments that it names."""
        values = self.signature.defaults | self._read(payload)
        wanted = arguments.signature(function).parameters
        if any(one.kind is one.VAR_KEYWORD for one in wanted.values()):
            found = function(**values)
        else:
            found = function(**{name: value for name, value in values.items() if name in wanted})
        arguments.done(f"{what}= of task {self._name!r}", found)
        return found

    def check_key(self, what: str, function: object) -> None:
        """Check a function that makes a key of the arguments.

        :raises ArgumentError: it is no plain function, or names what is no argument of the task.
        """
        if not callable(function):
            raise arguments.wrong(what, function, f" of task {self._name!r}: must be a function of the task's arguments")
        arguments.plain(what, function)
        names = self.signature.arguments.parameters
        for one in arguments.signature(function).parameters.values():
            if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL) or (one.kind is not one.VAR_KEYWORD and one.name not in names):
                known = ", ".join(names) or "none"
                raise ArgumentError(f"{what}= of task {self._name!r} takes {one.name}, which is no argument of the task: {known}")

    def result(self, value: Any) -> Any:
        """The result of a job, of the type that the function returns.

        :raises PayloadError: it does not fit.
        """
        try:
            return coding.read_result(value, self._result)
        except ValueError as error:
            raise PayloadError(kind=self._name, reason=f"does not fit: {error}", subject="result of job") from error

    def handler(self) -> Callable[[Any], Any]:
        """A handler that calls the function with the arguments of a job, and with the job if it takes one."""
        function, job_class = self._function, self.signature.job

        def given(job: Any) -> tuple[Any, ...]:
            if job_class is None:
                return ()
            if job_class == "JobSnapshot":
                snapshot = load("processes.main", "JobSnapshot")
                return (job if isinstance(job, snapshot) else snapshot.of(job),)
            if job_class == "AsyncLeasedJob" and isinstance(job, LeasedJob):
                raise ConfigurationError(f"task {self._name!r} takes an AsyncLeasedJob, and this worker has a LeasedJob: take that")
            return (job,)

        async def coroutine(job: Any) -> Any:
            return await function(*given(job), **job.payload)

        def plain(job: Any) -> Any:
            return function(*given(job), **job.payload)

        made = coroutine if arguments.asynchronous(function) else plain
        made.__annotations__ = {"job": job_class or "LeasedJob"}
        if inspect.isfunction(function):  # a handler process imports it by this name
            made.__module__, made.__qualname__ = function.__module__, f"{function.__qualname__}.handler"
        return made

    @cached_property
    def _model(self) -> Any:
        return coding.model(self._name, self.signature.types(), frozenset(self.signature.defaults))

    @cached_property
    def _result(self) -> Any:
        return without_outcomes(self.signature.returned())

    def _read(self, payload: Any) -> Any:
        """The arguments by name.

        :raises ValueError: the payload does not fit.
        """
        return coding.given(coding.read({} if payload is None else payload, self._model))

    def misfit(self, error: object) -> PayloadError:
        """The error of a call whose arguments do not fit."""
        return PayloadError(kind=self._name, reason=f"does not fit {self._name}: {error}")


def without_outcomes(annotation: Any) -> Any:
    """The type of the results, without the outcomes that are no results."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return None if _is_outcome(annotation) else annotation
    left = tuple(one for one in typing.get_args(annotation) if not _is_outcome(one))
    return typing.Union[left] if left else None  # noqa: UP007 - of a tuple


def _is_outcome(annotation: Any) -> bool:
    return annotation in _OUTCOMES or (isinstance(annotation, type) and issubclass(annotation, BaseException))
