"""No table of Django's own: a name for the page in the admin, and for its permissions."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class _Nothing(models.Manager["TaskQueue"]):
    """There is no table: ``dumpdata`` finds no row, and asks no database."""

    def get_queryset(self) -> models.QuerySet[TaskQueue]:
        """No row."""
        return super().get_queryset().none()


class TaskQueue(models.Model):
    """The queues, as the admin shows them: to view them, and to retry their failed tasks, takes its permissions."""

    name: models.CharField[str, str] = models.CharField(max_length=100, primary_key=True)

    objects: ClassVar[_Nothing] = _Nothing()

    class Meta:
        """Django makes the permissions only."""

        managed = False
        base_manager_name = "objects"
        default_permissions = ("view", "change")
        verbose_name = "task queue"
        verbose_name_plural = "task queues"

    def __str__(self) -> str:
        return str(self.name)
