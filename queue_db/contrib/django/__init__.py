"""Django Tasks on the queue: a backend whose tasks are jobs in Django's own database, and its worker, ``manage.py queue_worker``.

``INSTALLED_APPS`` gets ``queue_db.contrib.django``, and ``TASKS`` the backend ``queue_db.contrib.django.QueueBackend``.
"""

from queue_db.contrib.django.backend import QueueBackend
from queue_db.contrib.django.task_options import options
from queue_db.contrib.django.worker import make_worker as worker

__all__ = ["QueueBackend", "options", "worker"]
