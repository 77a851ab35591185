"""The page of the queues in Django's admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from queue_db import Job, QueueStats
from queue_db.contrib.django.backend import QueueBackend
from queue_db.contrib.django.databases import with_command
from queue_db.contrib.django.models import TaskQueue
from queue_db.contrib.django.tables import backends
from queue_db.errors import QueueDBError, SchemaOutOfDateError

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[TaskQueue]
else:  # Django's own class has no type parameters
    _ModelAdmin = admin.ModelAdmin

# A page counts up to this many tasks of each state.
_MOST = 10_000

# An id of a task has fewer digits than this.
_DIGITS = 20

# A button retries up to this many failed tasks.
_MOST_RETRIED = 1000

# The page shows this many failed tasks of a backend.
_LATEST = 20

# Seconds without a heartbeat after which a worker does not count as alive.
_SILENT = 60.0


class _Row(NamedTuple):
    """A queue on the page."""

    stats: QueueStats
    paused: bool
    workers: int


class _Failure(NamedTuple):
    """A failed task on the page."""

    job: Job
    error: str


class _Part(NamedTuple):
    """A backend on the page."""

    alias: str
    dashboard: str | None
    rows: list[_Row]
    failures: list[_Failure]
    error: str | None


@admin.register(TaskQueue)
class TaskQueueAdmin(_ModelAdmin):
    """A table of the queues with their counts, and their latest failed tasks, to be retried one by one or all of a queue."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """No queue is added here: a task does that."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: TaskQueue | None = None) -> bool:
        """No queue is deleted here."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The page; a POST retries a failed task, or those of a queue after a page that asks whether it is meant."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Task queues",
            "opts": self.opts,
            "may_retry": self.has_change_permission(request),
            **(extra_context or {}),
        }
        if request.method == "POST":
            return self._retry(request, context)
        context["parts"] = [_part(backend) for backend in backends()]
        return TemplateResponse(request, "admin/queue_db/task_queues.html", context)

    def _retry(self, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
        if not self.has_change_permission(request):
            raise PermissionDenied
        alias, queue, job_id = (request.POST.get(name, "") for name in ("backend", "queue", "id"))
        backend = next((each for each in backends() if each.alias == alias), None)
        if backend is not None and queue:
            if "id" in request.POST:
                if job_id.isascii() and job_id.isdecimal() and len(job_id) < _DIGITS:
                    _retry_failed(request, backend, queue, int(job_id))
            elif request.POST.get("post") == "yes":
                _retry_failed(request, backend, queue, None)
            else:
                context |= {"title": "Are you sure?", "backend": alias, "queue": queue, "most": _MOST_RETRIED}
                return TemplateResponse(request, "admin/queue_db/retry_confirmation.html", context)
        return HttpResponseRedirect(request.path)


def _retry_failed(request: HttpRequest, backend: QueueBackend, queue: str, job_id: int | None) -> None:
    """Retry a failed task of a queue; None: all of them."""
    try:
        again = backend.db.dead.redrive(job_id, queue=queue, limit=_MOST_RETRIED)
        target = queue if job_id is None else f"dead job {job_id}"
        backend.db.actions.add(f"django:{request.user}"[:100], "redrive", target, len(again))
    except QueueDBError as error:
        messages.error(request, _text(error, backend))
        return
    done = f"Task {job_id} of {queue} is ready again."
    if job_id is None:
        done = f"{len(again)} failed task{'s' * (len(again) != 1)} of {queue}: ready again."
    messages.success(request, done)


def _part(backend: QueueBackend) -> _Part:
    rows: list[_Row] = []
    failures: list[_Failure] = []
    error = None
    try:
        db = backend.db
        alive = [worker for worker in db.workers() if worker.silent < _SILENT]
        for name in sorted(backend.queues | set(db.queues())):
            queue = db.queue(name)
            rows.append(_Row(queue.stats(most=_MOST), queue.controls().paused, sum(name in worker.queues for worker in alive)))
        failures = [_Failure(job, _last_line(job.last_error)) for job in db.dead.list(limit=_LATEST, newest=True)]
    except (QueueDBError, ImproperlyConfigured) as refused:
        error = _text(refused, backend)
    return _Part(backend.alias, backend.settings.dashboard, rows, failures, error)


def _last_line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _text(error: Exception, backend: QueueBackend) -> str:
    return str(with_command(error, backend.settings.database) if isinstance(error, SchemaOutOfDateError) else error)
