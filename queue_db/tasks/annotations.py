"""What the signature of a task's function says: its arguments with their types, and whether it takes the job."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from functools import partial
from types import UnionType
from typing import Any, Literal

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.leased_job import JobData

Job = Literal["LeasedJob", "AsyncLeasedJob", "JobSnapshot"]
"""The name of the class of the job that a function takes."""

JOBS: tuple[Job, ...] = typing.get_args(Job)

# Annotations that cannot be evaluated yet, and what they name: the last name before the brackets.
_LAST = re.compile(r"(?:[\w.]*\.)?(\w+)\s*(?:\[.*)?", re.DOTALL)

# Names for one of JOBS.
_ALIASES: Mapping[str, Job] = {"TaskJob": "LeasedJob", **{name: name for name in JOBS}}

_NO: Any = inspect.Parameter.empty


class Signature:
    """The signature of a task's function.

    :param what: the task, for messages.
    :raises ArgumentError: the payload of a job cannot have these arguments, or the job is not the first of them.
    """

    def __init__(self, what: str, function: Callable[..., Any]) -> None:
        self._what = what
        self._names = _names(function)
        try:
            found = arguments.signature(function)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{what}: {error}") from error
        parameters = list(found.parameters.values())
        #: The class of the job that the function takes first; None: it takes none.
        self.job: Job | None = None
        if parameters and (job := self._job_of(parameters[0])):
            self.job = job
            parameters = parameters[1:]
        for parameter in parameters:
            self._check(parameter)
        #: The arguments, without the job, to bind calls to.
        self.arguments = found.replace(parameters=parameters, return_annotation=_NO)
        #: The default of each argument that has one.
        self.defaults = {one.name: one.default for one in parameters if one.default is not _NO}
        self._annotations = {one.name: one.annotation for one in parameters}
        self._returned = found.return_annotation

    def _job_of(self, parameter: inspect.Parameter) -> Job | None:
        if parameter.annotation is _NO:
            return "LeasedJob" if parameter.name == "job" else None
        return _job_class(self._evaluated(parameter.annotation))

    def _check(self, parameter: inspect.Parameter) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise ArgumentError(
                f"{self._what} takes {stars}{parameter.name}: the payload has each argument by its name; write them out"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ArgumentError(f"{self._what}: {parameter.name} is positional-only: the payload has names; remove the / behind it")
        if self._job_of(parameter) is not None:
            raise ArgumentError(f"{self._what}: the job must be the first parameter, and {parameter.name} is not")

    def types(self) -> dict[str, Any]:
        """The type of each argument; Any for one without an annotation.

        :raises ArgumentError: an annotation names what is not defined.
        """
        return {name: Any if kind is _NO else self._resolved(f"argument {name}", kind) for name, kind in self._annotations.items()}

    def returned(self) -> Any:
        """The type of the result; Any without an annotation.

        :raises ArgumentError: the annotation names what is not defined.
        """
        return Any if self._returned is _NO else self._resolved("the result", self._returned)

    def _resolved(self, part: str, annotation: Any) -> Any:
        try:
            return self._evaluate(annotation)
        except Exception as error:
            shown = getattr(annotation, "__forward_arg__", annotation)
            raise ArgumentError(
                f"{self._what}: the annotation {shown!r} of {part} cannot be evaluated ({error}): "
                "import or define its names at the top of the module, and not only for type checkers"
            ) from error

    def _evaluated(self, annotation: Any) -> Any:
        """The evaluated annotation, or the annotation itself if its names are not defined yet."""
        try:
            return self._evaluate(annotation)
        except Exception:  # noqa: BLE001 - evaluating it may raise anything; types() raises it again
            return annotation

    def _evaluate(self, annotation: Any) -> Any:
        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        return typing.get_type_hints(holder, globalns=self._names, localns={}, include_extras=True)["it"]


def _names(function: Any) -> dict[str, Any]:
    """The names at the top of the module in which a function is defined: its annotations mean them."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isfunction(function):
        function = getattr(type(function), "__call__", function)  # noqa: B004 - its function, not whether there is one
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return names


def _job_class(annotation: Any) -> Job | None:
    """Which class of job an annotation names; None: none."""
    origin = typing.get_origin(annotation) or annotation
    if origin in (typing.Annotated, typing.Union, UnionType):  # it may be optional, for direct calls
        return next(filter(None, map(_job_class, typing.get_args(annotation))), None)
    if isinstance(origin, type):
        for name, module in (("LeasedJob", "leased_job"), ("AsyncLeasedJob", "aio.leased"), ("JobSnapshot", "processes.main")):
            if origin.__module__ == f"queue_db.{module}" and origin.__name__ == name:
                return _ALIASES[name]
        return "LeasedJob" if origin is JobData else None
    text = getattr(annotation, "__forward_arg__", annotation)
    found = _LAST.fullmatch(text.strip(" '\"")) if isinstance(text, str) else None
    return None if found is None else _ALIASES.get(found[1])
