"""Tasks of many jobs: the function gets a list, and each call of ``enqueue`` makes one element of it."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from queue_db import arguments
from queue_db.errors import ArgumentError, text_of
from queue_db.leased_job import JobData
from queue_db.tasks import coding
from queue_db.tasks.payloads import Payloads, without_outcomes


class ListPayloads(Payloads):
    """The payloads of a task of many jobs: each is an element of the list that the function gets, and has no names of arguments.

    :raises ArgumentError: the function does not take one list.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(name, function)
        given = list(self.signature.arguments.parameters)
        if self.signature.job is not None or len(given) != 1:
            raise ArgumentError(f"task {name!r} has many=: its function gets one list: write its type, such as list[Page]")
        (self._argument,) = given

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if len(args) != 1 or kwargs:
            raise self.misfit("enqueue takes one element of the list, without a name")
        return args[0]

    def written(self, given: Any) -> Any:
        _ = self._element
        try:
            payload = coding.written(given)
        except Exception as error:
            raise self.misfit(text_of(error)) from error
        self.schema.read(self._name, payload)
        return payload

    def key(self, what: str, function: Callable[..., Any], payload: Any) -> Any:
        found = function(self._read(payload))
        arguments.done(f"{what}= of task {self._name!r}", found)
        return found

    def check_key(self, what: str, function: object) -> None:
        if not callable(function):
            raise arguments.wrong(what, function, f" of task {self._name!r}: must be a function of one element of the list")
        arguments.plain(what, function)
        arguments.takes(f"{what}= of task {self._name!r}", function, "one element of the list")

    def handler(self) -> Callable[[Any], Any]:
        """A handler of a list of jobs."""
        function, jobs_wanted = self._function, self._element[0]

        def given(jobs: list[Any]) -> list[Any]:
            return jobs if jobs_wanted else [job.payload for job in jobs]

        async def coroutine(jobs: list[Any]) -> Any:
            return await function(given(jobs))

        def plain(jobs: list[Any]) -> Any:
            return function(given(jobs))

        return coroutine if arguments.asynchronous(function) else plain

    @cached_property
    def _element(self) -> tuple[bool, Any]:
        """Whether the list has jobs, and the type of their payloads."""
        (kind,) = self.signature.types().values()
        if kind is Any:
            return self._argument == "jobs", Any
        if typing.get_origin(kind) not in (list, Sequence) and kind is not list:
            raise ArgumentError(f"task {self._name!r} has many=: its function gets a list, and {self._argument} is {kind!r}")
        (element,) = typing.get_args(kind) or (Any,)
        of_jobs = issubclass(origin, JobData) if isinstance(origin := typing.get_origin(element) or element, type) else False
        payload = (typing.get_args(element) or (Any,))[0] if of_jobs else element
        coding.check(f"task {self._name!r}", payload)
        return of_jobs, payload

    @cached_property
    def _model(self) -> Any:
        return self._element[1]

    @cached_property
    def _result(self) -> Any:
        returned = self.signature.returned()
        if typing.get_origin(returned) not in (list, Sequence):
            return Any
        return without_outcomes(typing.get_args(returned)[0])

    def _read(self, payload: Any) -> Any:
        return coding.read(payload, self._model)
