"""The tables of the backends in ``TASKS``: which there are, and a system check of them, which runs with ``--database``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from queue_db.contrib.django.backend import QueueBackend
from queue_db.contrib.django.checks import place_of
from queue_db.contrib.django.databases import with_command
from queue_db.contrib.django.framework import task_backends
from queue_db.errors import QueueDBError, SchemaOutOfDateError


def register() -> None:
    """Register the check of the tables; Django's tasks call :func:`of_backend` themselves."""
    checks.register(of_tables, checks.Tags.database)


def of_tables(
    app_configs: Sequence[Any] | None = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterable[checks.CheckMessage]:
    """Whether the tables of each backend fit this version of the package. With ``databases``, as Django's checks of databases."""
    if sys.argv[1:2] == ["migrate"]:  # it checks first, and then makes the tables
        return []
    return [message for backend in backends() if backend.settings.database in (databases or ()) for message in _of_tables(backend)]


def _of_tables(backend: QueueBackend) -> Iterator[checks.CheckMessage]:
    try:
        backend.db.check()
    except SchemaOutOfDateError as error:
        what, _, command = str(with_command(error, backend.settings.database)).partition("; ")
        yield checks.Warning(what, hint=command, obj=place_of(backend), id="queue_db.W002")
    except ImproperlyConfigured:
        return  # found by the checks of the settings
    except QueueDBError as error:
        yield checks.Error(str(error), obj=place_of(backend), id="queue_db.E007")


def backends() -> list[QueueBackend]:
    """The backends of the queue in ``TASKS`` whose settings are right."""
    found = []
    for alias in task_backends.settings:
        backend = task_backends[alias]
        if isinstance(backend, QueueBackend):
            try:
                backend.settings  # noqa: B018 - checked at its first use
            except ImproperlyConfigured:
                continue
            found.append(backend)
    return found
