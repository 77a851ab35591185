"""``OPTIONS`` of the backend in the setting ``TASKS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from queue_db import backoff

#: Results of successful tasks are kept for this many seconds.
RESULTS_KEPT = 7 * 86_400.0

Backoff = Callable[[int], float]

#: Options of a worker that tasks have not: their state is in rows of leased jobs.
NOT_OF_TASKS = frozenset({"mode", "feeds", "span"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What ``OPTIONS`` may have.

    :raises ImproperlyConfigured: a value is outside its allowed range.
    """

    #: The alias in ``DATABASES`` of the database with the queue.
    database: str = "default"
    #: The URL of the same database for the worker, where Django's settings cannot tell it; its database is that of the alias.
    url: str | None = None
    #: The name of the jobs table.
    table: str = "jobs"
    #: The schema of the tables.
    schema: str | None = None
    #: How often a task may raise before it is FAILED.
    max_attempts: int = 1
    #: Attempt → seconds until the next one: a function, its path, or a number of seconds.
    backoff: Backoff | str | float | None = None
    #: How often, beside ``max_attempts``, the worker of a task may die before the task is FAILED.
    max_crashes: int = 3
    #: Run each task and store its end in one transaction of Django.
    atomic: bool = False
    #: Seconds for which results are kept.
    result_ttl: float = RESULTS_KEPT
    #: Seconds for which failed tasks are kept; None: until somebody deletes them.
    failed_ttl: float | None = None
    #: The address of the dashboard, for the link in the admin.
    dashboard: str | None = None
    #: Options of the worker, as ``queue_db.worker.Worker`` takes them.
    worker: Mapping[str, Any] = field(default_factory=dict)
    #: Name → ``{"task": path, "cron": line}`` or ``{"task": path, "every": seconds}``, with ``args``, ``kwargs`` and ``zone``.
    schedules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("max_attempts", 1), ("max_crashes", 0)):
            whole(name, getattr(self, name), least)
        for name in ("result_ttl", "failed_ttl"):
            seconds = getattr(self, name)
            if (seconds is not None or name == "result_ttl") and not _positive(seconds):
                raise ImproperlyConfigured(f"OPTIONS[{name!r}] is {seconds!r}: must be a number of seconds above 0")
        for name in ("worker", "schedules"):
            if not isinstance(getattr(self, name), Mapping):
                raise ImproperlyConfigured(f"OPTIONS[{name!r}] must be a mapping")
        if self.worker:
            _check_worker(self.worker)
        for name, rule in self.schedules.items():
            _check_schedule(name, rule)
        waits(self.backoff)


def read(options: Mapping[str, Any]) -> Settings:
    """``OPTIONS``, checked.

    :raises ImproperlyConfigured: there is no such option, or a value is outside its allowed range.
    """
    known = [each.name for each in fields(Settings)]
    if unknown := sorted(set(options) - set(known)):
        raise ImproperlyConfigured(f"OPTIONS has {', '.join(map(repr, unknown))}: the options are {', '.join(known)}")
    return Settings(**options)


def waits(given: Backoff | str | float | None) -> Backoff:
    """A function from the attempt that failed to the seconds until the next one.

    :raises ImproperlyConfigured: ``given`` is neither a function, nor the path of one, nor a number of seconds.
    """
    if given is None:
        return backoff.exponential()
    if isinstance(given, str):
        try:
            given = import_string(given)
        except ImportError as error:
            raise ImproperlyConfigured(f"backoff={given!r}: {error}") from error
    if callable(given):
        return given
    if _positive(given):
        return backoff.constant(float(given))
    raise ImproperlyConfigured(f"backoff={given!r}: must be a function of the attempt, its path, or a number of seconds")


def whole(name: str, given: object, least: int) -> int:
    """A whole number.

    :raises ImproperlyConfigured: it is another value, or below ``least``.
    """
    if type(given) is not int or given < least:
        raise ImproperlyConfigured(f"{name}={given!r}: must be a whole number, at least {least}")
    return given


def _positive(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and given > 0


def _check_schedule(name: str, rule: Any) -> None:
    known = {"task", "cron", "every", "zone", "args", "kwargs", "catch_up"}
    if not isinstance(rule, Mapping) or not isinstance(rule.get("task"), str) or set(rule) - known:
        raise ImproperlyConfigured(
            f"OPTIONS['schedules'][{name!r}]: must have a task, its path, and may have {', '.join(sorted(known))}"
        )
    if ("cron" in rule) is ("every" in rule):
        raise ImproperlyConfigured(f"OPTIONS['schedules'][{name!r}]: must have either cron or every")


def _check_worker(options: Mapping[str, Any]) -> None:
    from queue_db.worker import Worker  # here: without such options a process that only enqueues needs no worker

    known = [name for name in signature(Worker).parameters if name not in {"db", "queues", *NOT_OF_TASKS}]
    if unknown := sorted(map(str, set(options) - set(known))):
        raise ImproperlyConfigured(
            f"OPTIONS['worker'] has {', '.join(map(repr, unknown))}: the options of a worker are {', '.join(known)}"
        )
