"""The backend: tasks become jobs on Django's own connection, and results are read from jobs."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, ParamSpec, TypeVar, cast

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from queue_db import Finished, Job, QueueDB
from queue_db.contrib.django import settings
from queue_db.contrib.django.databases import joined, queue_db
from queue_db.contrib.django.framework import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_enqueued,
)
from queue_db.contrib.django.results import (
    aware,
    change,
    finished_result,
    is_task,
    kind_of,
    live_result,
    new_result,
    payload_of,
    task_of,
)
from queue_db.contrib.django.task_options import options_of
from queue_db.errors import JobNotFoundError, UnknownKindError

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The highest id of a job.
_HIGHEST = 2**63 - 1


class QueueBackend(BaseTaskBackend):
    """A backend of Django Tasks whose tasks are jobs of the queue in one of Django's databases.

    ``enqueue`` joins the transaction of that database: the task is there when the transaction commits, and never if it rolls back.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def settings(self) -> settings.Settings:
        """``OPTIONS``, checked.

        :raises ImproperlyConfigured: a value is wrong.
        """
        try:
            return settings.read(self.options)
        except ImproperlyConfigured as error:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: {error}") from None

    @property
    def db(self) -> QueueDB:
        """The ``QueueDB`` of this process: what the library offers besides tasks."""
        return queue_db(self.settings)

    def enqueue(self, task: Task[_P, _T], args: Any, kwargs: Any) -> TaskResult[_P, _T]:
        """Add the task to its queue, in the transaction of the database's connection; outside one it is there at once.

        :raises InvalidTask: the task does not fit the backend.
        :raises TypeError: JSON has no such argument.
        """
        self.validate_task(task)
        result = new_result(task, args, kwargs, self.alias)
        alias, wanted = self.settings.database, options_of(task.func, self.settings)
        queue = self.db.queue(task.queue_name)
        with joined(alias) as connection:
            job_id = queue.enqueue(
                kind_of(task.module_path),
                payload_of(result),
                priority=-task.priority,
                run_at=None if task.run_after is None else aware(task.run_after),
                max_attempts=wanted.max_attempts + self.settings.max_crashes,
                using=connection,
            )
            change(result, id=str(job_id))
            # After the commit: until then no other connection sees the task, and it may be rolled back.
            transaction.on_commit(partial(task_enqueued.send, type(self), task_result=result), using=alias)
        return cast("TaskResult[_P, _T]", result)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """The result of a task, read in the transaction of the database's connection.

        :raises TaskResultDoesNotExist: there is no such task of this backend, it was kept for long enough,
            or it cannot be imported.
        """
        if not (isinstance(result_id, str) and result_id.isascii() and result_id.isdecimal() and int(result_id) <= _HIGHEST):
            raise TaskResultDoesNotExist(result_id)
        job_id, db = int(result_id), self.db
        with joined(self.settings.database) as connection:
            try:
                job = db.get(job_id, using=connection)
            except JobNotFoundError:
                try:
                    finished = db.finished(job_id, using=connection)
                except JobNotFoundError:
                    raise TaskResultDoesNotExist(result_id) from None
                return finished_result(finished, self._task(result_id, finished))
            task = self._task(result_id, job)
            states = [step.value for step in db.steps.list(job_id, using=connection) if step.what == "state"]
        return live_result(job, states[0] if states else None, task)

    def _task(self, result_id: str, job: Job | Finished) -> Task[..., Any]:
        if not is_task(job.payload, self.alias):
            raise TaskResultDoesNotExist(result_id)
        try:
            return task_of(job.payload, job)
        except (UnknownKindError, InvalidTask) as error:
            raise TaskResultDoesNotExist(f"{result_id}: {error}") from error

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """System checks of the settings of this backend."""
        from queue_db.contrib.django.checks import of_backend

        return list(of_backend(self))
