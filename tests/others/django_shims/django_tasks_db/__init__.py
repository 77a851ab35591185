"""In the place of django-tasks-db: its names, on the queue."""

from queue_db.contrib.django import QueueBackend


class DatabaseBackend(QueueBackend):
    """The name of the backend in the suite."""
