"""The schedules of the settings: tasks that are enqueued by cron lines or at intervals."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from queue_db import QueueDB
from queue_db.contrib.django.framework import Task
from queue_db.contrib.django.results import kind_of, new_result, payload_of
from queue_db.contrib.django.settings import Settings
from queue_db.contrib.django.task_options import options_of
from queue_db.errors import ArgumentError, ConfigurationError, PayloadError
from queue_db.schedules import check_rule


def set_schedules(alias: str, settings: Settings, db: QueueDB) -> None:
    """Make the schedules of the database those of the settings: set what they have, remove what they had before.

    :raises ImproperlyConfigured: a schedule names no task, or its rule is wrong.
    """
    prefix = f"django:{alias}:"
    wanted = settings.schedules
    tasks = {name: scheduled_task(alias, settings, name) for name in wanted}
    for name, rule in wanted.items():
        task, options = tasks[name], options_of(tasks[name].func, settings)
        timing = {key: rule[key] for key in ("cron", "every", "zone", "catch_up") if key in rule}
        try:
            payload = payload_of(new_result(task, list(rule.get("args", ())), dict(rule.get("kwargs", {})), alias))
            del payload["enqueued_at"]  # that of each job
            db.schedules.set(
                f"{prefix}{name}",
                task.queue_name,
                kind_of(task.module_path),
                payload,
                priority=-task.priority,
                max_attempts=options.max_attempts + settings.max_crashes,
                **timing,
            )
        except (ArgumentError, PayloadError, TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: the schedule {name!r}: {error}") from error
    for schedule in db.schedules.list():
        if schedule.name.startswith(prefix) and schedule.name.removeprefix(prefix) not in wanted:
            db.schedules.remove(schedule.name)


def scheduled_task(alias: str, settings: Settings, name: str) -> Task[..., Any]:
    """The task of a schedule of the settings.

    :raises ImproperlyConfigured: its path leads to no task, or its rule is wrong.
    """
    rule = settings.schedules[name]
    path = rule["task"]
    try:
        check_rule(**{key: rule[key] for key in ("cron", "every", "zone") if key in rule})
    except ConfigurationError as error:
        raise ImproperlyConfigured(f"TASKS[{alias!r}]: the schedule {name!r}: {error}") from error
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"TASKS[{alias!r}]: the task of the schedule {name!r}: {error}") from error
    if not isinstance(found, Task):
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]: the schedule {name!r} names {path}, which is no task: decorate it with @task"
        )
    return found
