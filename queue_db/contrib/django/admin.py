"""The page of the queues in Django's admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from queue_db import QueueStats
from queue_db.contrib.django.backend import QueueBackend
from queue_db.contrib.django.models import TaskQueue
from queue_db.contrib.django.tables import backends
from queue_db.errors import QueueDBError

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[TaskQueue]
else:  # Django's own class has no type parameters
    _ModelAdmin = admin.ModelAdmin

# A page counts up to this many tasks of each state.
_MOST = 10_000

# A button retries up to this many failed tasks.
_MOST_RETRIED = 1000


class _Part(NamedTuple):
    """A backend on the page."""

    alias: str
    dashboard: str | None
    queues: list[QueueStats]
    error: str | None


@admin.register(TaskQueue)
class TaskQueueAdmin(_ModelAdmin):
    """A table of the queues with their counts, and a button that retries failed tasks."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """No queue is added here: a task does that."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: TaskQueue | None = None) -> bool:
        """No queue is deleted here."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The page; a POST retries the failed tasks of a queue."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._retry(request)
        context = {
            **self.admin_site.each_context(request),
            "title": "Task queues",
            "opts": self.opts,
            "parts": [_part(backend) for backend in backends()],
            "may_retry": self.has_change_permission(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/queue_db/task_queues.html", context)

    def _retry(self, request: HttpRequest) -> HttpResponse:
        if not self.has_change_permission(request):
            raise PermissionDenied
        alias, queue = request.POST.get("backend"), request.POST.get("queue", "")
        for backend in backends():
            if backend.alias == alias and queue:
                _retry_failed(request, backend, queue)
        return HttpResponseRedirect(request.path)


def _retry_failed(request: HttpRequest, backend: QueueBackend, queue: str) -> None:
    try:
        again = backend.db.dead.redrive(queue=queue, limit=_MOST_RETRIED)
        backend.db.actions.add(f"django:{request.user}"[:100], "redrive", queue, len(again))
    except QueueDBError as error:
        messages.error(request, str(error))
        return
    messages.success(request, f"{len(again)} failed tasks of {queue} are ready again.")


def _part(backend: QueueBackend) -> _Part:
    try:
        db = backend.db
        names = sorted(backend.queues | set(db.queues()))
        queues, error = [db.queue(name).stats(most=_MOST) for name in names], None
    except QueueDBError as refused:
        queues, error = [], str(refused)
    return _Part(backend.alias, backend.settings.dashboard, queues, error)
