"""The Django app: its name, and its system checks."""

from django.apps import AppConfig


class QueueConfig(AppConfig):
    """The app ``queue_db``."""

    name = "queue_db.contrib.django"
    label = "queue_db"
    verbose_name = "Task queues"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks."""
        from queue_db.contrib.django import tables

        tables.register()
