"""Runs tasks in the threads of the library's worker."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from django.db import close_old_connections, transaction
from django.utils import timezone

from queue_db import LeasedJob, Queue, QueueDB, Suspended
from queue_db.contrib.django.backend import QueueBackend
from queue_db.contrib.django.databases import joined
from queue_db.contrib.django.framework import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from queue_db.contrib.django.results import Record, change, is_task, result_of, stored_result, task_of
from queue_db.contrib.django.task_options import TaskOptions, options_of
from queue_db.errors import UnknownKindError
from queue_db.model import StoredResult
from queue_db.worker import JobEvent

log = logging.getLogger("queue_db.contrib.django")


class TaskRunner:
    """The handler of a worker for the tasks of one backend.

    :param db: the database object of the worker.
    """

    def __init__(self, backend: QueueBackend, db: QueueDB) -> None:
        self._backend = backend
        self._db = db
        # The results of tasks whose jobs are not completed yet, for the signal. By the attempt, and not by the id of the job: the
        # event of an attempt that has failed may come after the next one has ended.
        self._ended: dict[LeasedJob, TaskResult[..., Any]] = {}

    def __call__(self, job: LeasedJob) -> Any:
        """Run the task of a job."""
        close_old_connections()
        try:
            return self._run(job)
        finally:
            close_old_connections()

    def settled(self, event: JobEvent) -> None:
        """Send the signal of a task whose job is completed: only now others see the result."""
        result = self._ended.pop(event.job, None)
        if result is not None and event.type == "completed":
            self._send_finished(result)

    def _send_finished(self, result: TaskResult[..., Any]) -> None:
        close_old_connections()
        try:
            task_finished.send(sender=type(self._backend), task_result=result)
        finally:
            close_old_connections()

    def _run(self, job: LeasedJob) -> Any:
        payload = job.payload
        record = Record.begin(job.state.load(), job.attempts, self._db.worker[:64])
        try:
            task = task_of(_checked(payload, self._backend.alias), job)
        except UnknownKindError:
            raise
        except BaseException as error:  # noqa: BLE001 - a module may raise anything
            self._failed(job, record, error, options_of(_no_task, self._backend.settings), None)
            return None
        if not job.state.save(record.stored()):
            return None  # another worker has the job
        result: TaskResult[..., Any] | None = None
        wanted = options_of(task.func, self._backend.settings)
        try:
            result = _running(job, payload, task, record)
            task_started.send(sender=type(self._backend), task_result=result)
            if wanted.atomic:
                return self._run_in_transaction(job, result, record)
            value = normalize_json(_call(job, result))
        except Suspended:
            raise
        # SystemExit and KeyboardInterrupt, too: in a thread only the task itself raises them.
        except BaseException as error:  # noqa: BLE001
            self._failed(job, record, error, wanted, result)
            return None
        return self._succeeded(job, result, record, value)

    def _run_in_transaction(self, job: LeasedJob, result: TaskResult[..., Any], record: Record) -> None:
        database, committed = self._backend.settings.database, threading.Event()
        try:
            with joined(database) as connection:
                transaction.on_commit(committed.set, using=database)
                kept = self._succeeded(job, result, record, normalize_json(_call(job, result)))
                lasts = round(self._backend.settings.result_ttl * 1_000_000)
                stored = StoredResult(json.dumps(kept), lasts)
                (verdict,) = _queue(self._db, job).complete_many([job], using=connection, results=[stored])
                verdict.require(job)
        except BaseException:
            if committed.is_set():  # what the task has registered runs after the commit
                log.exception("Task id=%d path=%s is done; a function of on_commit raised", job.id, job.kind)
                return
            # If the COMMIT has failed, as at a deferred constraint, the job is leased again, and the failure must be stored.
            job.rolled_back()
            raise

    def _succeeded(self, job: LeasedJob, result: TaskResult[..., Any], record: Record, value: Any) -> dict[str, Any]:
        kept = stored_result(value, record)
        change(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
        self._ended[job] = result
        return kept

    def _failed(
        self, job: LeasedJob, record: Record, error: BaseException, wanted: TaskOptions, result: TaskResult[..., Any] | None
    ) -> None:
        self._ended.pop(job, None)
        record.add(error, job.attempts, most=wanted.max_attempts)
        if not job.state.save(record.stored()):
            return
        failures = record.failures
        wait = None if record.ended else wanted.backoff(failures)
        (verdict,) = _queue(self._db, job).fail_many([job], error, retry_in=wait, last=[record.ended])
        if not verdict:
            return
        if wait is not None:
            message = "Task id=%d path=%s failed %d of %d times, again in %.0f s"
            log.warning(message, job.id, job.kind, failures, wanted.max_attempts, wait, exc_info=error)
        elif result is None:  # Django has no line for it
            log.error("Task id=%d path=%s cannot be run", job.id, job.kind, exc_info=error)
        else:
            record.put_into(result)
            change(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            task_finished.send(sender=type(self._backend), task_result=result)


def _no_task() -> None:
    """Stands for a task that cannot be imported: its options are those of the settings."""


def _queue(db: QueueDB, job: LeasedJob) -> Queue:
    return db.queue(job.queue)


def _checked(payload: Any, alias: str) -> Mapping[str, Any]:
    if not is_task(payload, alias):
        raise ValueError(f"the job is no task of the backend {alias!r}")
    return dict(payload)


def _running(job: LeasedJob, payload: Mapping[str, Any], task: Task[..., Any], record: Record) -> TaskResult[..., Any]:
    result = result_of(job, payload, task)
    record.put_into(result)
    change(result, status=TaskResultStatus.RUNNING)
    return result


def _call(job: LeasedJob, result: TaskResult[..., Any]) -> Any:
    first: list[Any] = [TaskContext(task_result=result)] if result.task.takes_context else []
    return result.task.call(*first, *result.args, **result.kwargs)
