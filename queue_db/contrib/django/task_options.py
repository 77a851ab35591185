"""Options of single tasks, which Django's ``@task`` does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ImproperlyConfigured

from queue_db.contrib.django import settings
from queue_db.contrib.django.framework import Task

_ATTRIBUTE = "queue_db_options"
_Function = TypeVar("_Function", bound=Callable[..., Any])


class TaskOptions(NamedTuple):
    """How one task is retried and run."""

    max_attempts: int
    backoff: settings.Backoff
    atomic: bool


def options(
    *, max_attempts: int | None = None, backoff: settings.Backoff | str | float | None = None, atomic: bool | None = None
) -> Callable[[_Function], _Function]:
    """Decorate the function of a task, below ``@task``. What is not given is as in ``OPTIONS`` of the backend.

    :param max_attempts: how often the task may raise before it is FAILED; default 1.
    :param backoff: attempt → seconds until the next one, as in ``queue_db.backoff``; or a number of seconds.
    :param atomic: run the task and store its end in one transaction of Django: what it has written counts exactly once. If its
        worker has lost the task to another one, everything is rolled back.
    :raises ImproperlyConfigured: a value is outside its allowed range, or the decorator is above ``@task``.
    """
    if max_attempts is not None:
        settings.whole("max_attempts", max_attempts, 1)
    if backoff is not None:
        settings.waits(backoff)

    def decorated(function: _Function) -> _Function:
        if isinstance(function, Task):
            raise ImproperlyConfigured("@options got a task: put it below @task, on the function itself")
        setattr(function, _ATTRIBUTE, {"max_attempts": max_attempts, "backoff": backoff, "atomic": atomic})
        return function

    return decorated


def options_of(function: Callable[..., Any], defaults: settings.Settings) -> TaskOptions:
    """The options of a task's function; what it has none for is as in the settings."""
    own = {name: value for name, value in getattr(function, _ATTRIBUTE, {}).items() if value is not None}
    return TaskOptions(
        max_attempts=own.get("max_attempts", defaults.max_attempts),
        backoff=settings.waits(own.get("backoff", defaults.backoff)),
        atomic=own.get("atomic", defaults.atomic),
    )
