"""What a job tells about a task: its payload, and the record of its attempts, as Django's ``TaskResult``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from traceback import format_exception
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from queue_db import Finished, Job, LeasedJob, State
from queue_db.contrib.django.framework import Task, TaskError, TaskResult, TaskResultStatus
from queue_db.errors import UnknownKindError

#: The longest kind of a job.
_KIND = 100

# A record is kept with its job, in at most 64 KB of JSON: of errors the first and the latest, of workers and of the attempts that
# raised the latest, and of each traceback the end.
_MOST_ERRORS = 8
_MOST_WORKERS = 100
_MOST_FAILED = 50
_LONGEST_TRACE = 5000

# The class in ``errors`` of a task that did not fail by itself: its workers died, or somebody has ended its job.
_DEAD = "queue_db.errors.JobDeadError"

_STATUS = {State.RUNNING: TaskResultStatus.RUNNING, State.DEAD: TaskResultStatus.FAILED}


def kind_of(path: str) -> str:
    """The kind of a task's jobs: the task's path, of a long one the end."""
    return path if len(path) <= _KIND else f"…{path[1 - _KIND :]}"


def payload_of(result: TaskResult[..., Any]) -> dict[str, Any]:
    """The payload of a task's job."""
    task = result.task
    return {
        "task": task.module_path,
        "args": result.args,
        "kwargs": result.kwargs,
        "backend": result.backend,
        "priority": task.priority,
        "run_after": None if task.run_after is None else _text(task.run_after),
        "enqueued_at": _text(result.enqueued_at or timezone.now()),
    }


def is_task(payload: Any, alias: str) -> bool:
    """Whether this is the payload of a task of this backend."""
    return isinstance(payload, Mapping) and payload.get("backend") == alias and isinstance(payload.get("task"), str)


def task_of(payload: Mapping[str, Any], job: Job | LeasedJob | Finished) -> Task[..., Any]:
    """The task of a job and its payload, with the options that it was enqueued with.

    :raises UnknownKindError: there is no such module or name, or the path leads to something else, which is not called.
    :raises InvalidTask: the settings have no such queue.
    """
    path, found, problem = payload["task"], None, "is no task here"
    try:
        found = import_string(path)
    except ImportError as error:
        problem = f"cannot be imported ({error})"
    if not isinstance(found, Task):
        message = f"the task {path} {problem}: deploy its code, or keep the old name of a renamed task"
        raise UnknownKindError(job.kind, message=message)
    return replace(
        found,
        priority=payload.get("priority", found.priority),
        queue_name=job.queue,
        run_after=None if payload.get("run_after") is None else _moment(payload["run_after"]),
        backend=payload["backend"],
    )


@dataclass(kw_only=True)
class Record:
    """The attempts of one task. It is stored with the job, and with the job's result."""

    started_at: str
    last_attempted_at: str
    worker_ids: list[str] = field(default_factory=list)
    errors: list[list[str]] = field(default_factory=list)
    #: The latest attempts of the job that raised.
    failed: list[int] = field(default_factory=list)
    #: How many raised before those.
    failed_before: int = 0
    #: Whether the last error was the last one allowed.
    ended: bool = False

    @classmethod
    def read(cls, stored: Any) -> Record | None:
        """A stored record."""
        if not isinstance(stored, Mapping):
            return None
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})

    @classmethod
    def begin(cls, stored: Any, attempt: int, worker: str) -> Record:
        """The record of a task whose next attempt begins. A job that was redriven begins anew, so later attempts do not count."""
        now = _text(timezone.now())
        before = cls.read(stored) or cls(started_at=now, last_attempted_at=now)
        failed = [each for each in before.failed if each < attempt]
        return replace(
            before,
            last_attempted_at=now,
            worker_ids=[*before.worker_ids, worker][-_MOST_WORKERS:],
            failed=failed,
            # Attempts rise until the job is redriven: if all that are kept are later than this one, so are those before.
            failed_before=before.failed_before if failed else 0,
            ended=False,
        )

    def add(self, error: BaseException, attempt: int, *, most: int) -> None:
        """Add the error of this attempt; of ``most`` errors the last one ends the task."""
        # A name of a file may have bytes that are no text.
        trace = "".join(format_exception(error)).encode("utf-8", "backslashreplace").decode()
        kind = type(error)
        while len(json.dumps(trace)) > _LONGEST_TRACE:  # a letter may take six bytes
            trace = trace[len(trace) // 4 + 1 :]
        errors = [*self.errors, [f"{kind.__module__}.{kind.__qualname__}", trace]]
        self.errors = errors if len(errors) <= _MOST_ERRORS else [errors[0], *errors[1 - _MOST_ERRORS :]]
        failed = [*self.failed, attempt]
        self.failed_before += max(0, len(failed) - _MOST_FAILED)
        self.failed = failed[-_MOST_FAILED:]
        self.ended = self.failures >= most

    @property
    def failures(self) -> int:
        """How many attempts have raised since the task was enqueued, or its job redriven."""
        return self.failed_before + len(self.failed)

    def stored(self) -> dict[str, Any]:
        """The record, for JSON."""
        return dict(vars(self))

    def put_into(self, result: TaskResult[..., Any]) -> None:
        """Set the attempts of a result."""
        errors = [TaskError(exception_class_path=path, traceback=trace) for path, trace in self.errors]
        values = {"started_at": _moment(self.started_at), "last_attempted_at": _moment(self.last_attempted_at)}
        change(result, **values, worker_ids=list(self.worker_ids), errors=errors)


def change(result: TaskResult[..., Any], **values: Any) -> None:
    """Set fields of a result, which is frozen."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def new_result(task: Task[..., Any], args: Any, kwargs: Any, alias: str, *, job_id: int = 0) -> TaskResult[..., Any]:
    """The result of a task that is enqueued now."""
    return TaskResult(
        task=task,
        id=str(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=timezone.now(),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def result_of(job: Job | LeasedJob | Finished, payload: Mapping[str, Any], task: Task[..., Any]) -> TaskResult[..., Any]:
    """The result of a job that has no attempts yet."""
    result = new_result(task, payload["args"], payload["kwargs"], payload["backend"], job_id=job.id)
    enqueued = payload.get("enqueued_at")  # the jobs of a schedule do not have it
    change(result, enqueued_at=_local(job.created_at) if enqueued is None else _moment(enqueued))
    return result


def live_result(job: Job, stored: Any, task: Task[..., Any]) -> TaskResult[..., Any]:
    """The result of a job that is in its queue or dead, with the record of its attempts."""
    result = result_of(job, job.payload, task)
    record = Record.read(stored)
    if record is not None:
        record.put_into(result)
    change(result, status=_STATUS.get(job.state, TaskResultStatus.READY))
    if job.state is State.DEAD:
        change(result, finished_at=_local(job.available_at))
        if record is None or not record.ended:
            result.errors.append(TaskError(exception_class_path=_DEAD, traceback=job.last_error or ""))
    return result


def finished_result(job: Finished, task: Task[..., Any]) -> TaskResult[..., Any]:
    """The result of a completed job."""
    result = result_of(job, job.payload, task)
    stored = job.result if isinstance(job.result, Mapping) else {}
    record = Record.read(stored.get("record"))
    if record is not None:
        record.put_into(result)
    change(result, status=TaskResultStatus.SUCCESSFUL, _return_value=stored.get("value"))
    change(result, finished_at=_local(job.finished_at) if "finished_at" not in stored else _moment(stored["finished_at"]))
    return result


def stored_result(value: Any, record: Record) -> dict[str, Any]:
    """What is kept as the result of a job."""
    return {"value": value, "record": record.stored(), "finished_at": _text(timezone.now())}


def aware(moment: datetime) -> datetime:
    """The moment as the queue wants it: aware."""
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _text(moment: datetime) -> str:
    return aware(moment).astimezone(UTC).isoformat()


def _moment(text: str) -> datetime:
    return _local(datetime.fromisoformat(text))


def _local(moment: datetime) -> datetime:
    """The moment as Django's ``timezone.now()`` has it."""
    return moment if settings.USE_TZ else timezone.make_naive(moment)
