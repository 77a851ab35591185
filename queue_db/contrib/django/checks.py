"""System checks of the settings, at each ``manage.py check``: no connection is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.utils.connection import ConnectionDoesNotExist
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from queue_db.contrib.django.databases import APP, url_for
from queue_db.contrib.django.schedules import scheduled_task
from queue_db.errors import ConfigurationError

if TYPE_CHECKING:
    from queue_db.contrib.django.backend import QueueBackend


def of_backend(backend: QueueBackend) -> Iterator[checks.CheckMessage]:
    """What is wrong with the settings of a backend; no connection is opened."""
    if not apps.is_installed("queue_db.contrib.django"):
        yield checks.Error(
            "the queue's app is not installed",
            hint='add "queue_db.contrib.django" to INSTALLED_APPS',
            obj=place_of(backend),
            id="queue_db.E001",
        )
    try:
        settings = backend.settings
    except ImproperlyConfigured as error:
        yield checks.Error(str(error), obj=place_of(backend), id="queue_db.E002")
        return
    yield from _of_database(backend)
    for name in settings.schedules:
        try:
            task = scheduled_task(backend.alias, settings, name)
        except ImproperlyConfigured as error:
            yield checks.Error(str(error), obj=place_of(backend), id="queue_db.E005")
            continue
        if task.backend != backend.alias:
            yield checks.Warning(
                f"the task of the schedule {name!r} is of the backend {task.backend!r}",
                hint=f"it runs on {backend.alias!r} when it is scheduled",
                obj=place_of(backend),
                id="queue_db.W003",
            )


def _of_database(backend: QueueBackend) -> Iterator[checks.CheckMessage]:
    alias = backend.settings.database
    try:
        connections[alias]
    except ConnectionDoesNotExist:
        known = ", ".join(map(repr, connections))
        yield checks.Error(
            f"OPTIONS['database'] is {alias!r}, which DATABASES does not have",
            hint=f"use one of {known}",
            obj=place_of(backend),
            id="queue_db.E003",
        )
        return
    try:
        url_for(backend.settings).get_dialect().import_dbapi()
    except (ImportError, NoSuchModuleError) as error:
        yield checks.Error(
            f"the driver of DATABASES[{alias!r}] is not installed: {error}",
            hint="install the driver that Django's documentation names for this database",
            obj=place_of(backend),
            id="queue_db.E006",
        )
    except (ImproperlyConfigured, ConfigurationError, ArgumentError) as error:
        yield checks.Error(str(error), obj=place_of(backend), id="queue_db.E004")
    if not router.allow_migrate(alias, APP):
        yield checks.Warning(
            f"DATABASE_ROUTERS keep the app {APP!r} from the database {alias!r}, so migrate makes no tables for the queue there",
            hint=f"let allow_migrate({alias!r}, {APP!r}) return True, or set OPTIONS['database']",
            obj=place_of(backend),
            id="queue_db.W001",
        )


def place_of(backend: QueueBackend) -> str:
    """Where the settings of a backend are, for messages."""
    return f"TASKS[{backend.alias!r}]"
