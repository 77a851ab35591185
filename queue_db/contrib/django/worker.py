"""The worker of the tasks: the library's, with one handler for all tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from queue_db import QueueDB
from queue_db.contrib.django.backend import QueueBackend
from queue_db.contrib.django.databases import own_queue_db
from queue_db.contrib.django.framework import task_backends
from queue_db.contrib.django.running import TaskRunner
from queue_db.contrib.django.schedules import set_schedules
from queue_db.contrib.django.settings import NOT_OF_TASKS
from queue_db.worker import Worker

log = logging.getLogger("queue_db.contrib.django")


def backend_of(alias: str) -> QueueBackend:
    """The backend of this alias in ``TASKS``.

    :raises ImproperlyConfigured: there is none, or it is not the queue's.
    """
    if alias not in task_backends.settings:
        raise ImproperlyConfigured(f"TASKS has no {alias!r}: it has {', '.join(map(repr, sorted(task_backends.settings)))}")
    backend = task_backends[alias]
    if not isinstance(backend, QueueBackend):
        raise ImproperlyConfigured(f"TASKS[{alias!r}] is a {type(backend).__name__}, which this worker cannot serve")
    return backend


def make_worker(
    backend: str = "default", queues: Sequence[str] | Mapping[str, int] | None = None, *, name: str | None = None, **options: Any
) -> Worker:
    """A worker for the tasks of a backend, for ``queue-db work`` with several processes, or for a program of your own.

    Django must be set up: ``django.setup()``. Close ``worker.db`` at the end.

    :param backend: the alias in ``TASKS``.
    :param queues: queues to serve, as for :class:`~queue_db.worker.Worker`; default: all ``QUEUES`` of the backend.
    :param name: the worker's name in ``worker_ids``; default: host, process id and a random part.
    :param options: options of :class:`~queue_db.worker.Worker`, over those of ``OPTIONS["worker"]``.
    :raises ImproperlyConfigured: there is no such backend or queue, or tasks have no such option.
    """
    if refused := sorted(NOT_OF_TASKS & set(options)):
        raise ImproperlyConfigured(f"a worker of tasks has no {', '.join(refused)}: tasks are leased jobs of queues")
    served = backend_of(backend)
    wanted = _checked_queues(served, queues)
    kept = {"result_ttl": served.settings.result_ttl, "dead_for": served.settings.failed_ttl}
    db = own_queue_db(served.settings, name)
    try:
        worker = Worker(db, wanted, **kept | dict(served.settings.worker) | options)
    except BaseException:
        db.close()
        raise
    runner = TaskRunner(served, db)
    worker.handles(None)(runner)
    worker.on(runner.settled, "completed", "dead", "lost", "failed")
    worker.on_start(partial(_tell_paused, db, list(wanted)))
    worker.on_start(partial(set_schedules, backend, served.settings, db))
    return worker


def _tell_paused(db: QueueDB, queues: Sequence[str]) -> None:
    for name in queues:
        if db.queue(name).controls().paused:
            log.warning(
                "the queue %r is paused: its tasks wait for db.queue(%r).resume(), or queue-db queues resume %s", *[name] * 3
            )


def _checked_queues(backend: QueueBackend, queues: Sequence[str] | Mapping[str, int] | None) -> Sequence[str] | Mapping[str, int]:
    if queues is None:
        queues = sorted(backend.queues)
        if not queues:
            raise ImproperlyConfigured(
                f"TASKS[{backend.alias!r}]['QUEUES'] is empty, so any queue may be used: name those to serve"
            )
    if backend.queues and (unknown := sorted(set(queues) - backend.queues)):
        raise ImproperlyConfigured(
            f"TASKS[{backend.alias!r}]['QUEUES'] has no {', '.join(map(repr, unknown))}: it has {', '.join(sorted(backend.queues))}"
        )
    return queues
