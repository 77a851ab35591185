"""``manage.py db_worker``: the options of the suite, on the queue's worker."""

import logging

from django.core.management.base import BaseCommand, CommandError

from queue_db.contrib.django import QueueBackend, worker
from queue_db.contrib.django.framework import task_backends
from queue_db.contrib.django.management.commands import queue_worker


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("--queue-name", default="default")
        parser.add_argument("--exclude-queues", default="")
        parser.add_argument("--interval", type=queue_worker._seconds, default=1)
        parser.add_argument("--batch", action="store_true")
        parser.add_argument("--backend", default="default", dest="backend_name")
        parser.add_argument("--no-startup-delay", action="store_false", dest="startup_delay")
        parser.add_argument("--worker-id", type=queue_worker._name, default=None)
        parser.add_argument("--max-tasks", type=queue_worker._at_least_one, default=None)

    def handle(self, *, verbosity, queue_name, exclude_queues, interval, batch, backend_name, worker_id, max_tasks, **others):
        if exclude_queues and queue_name != "*":
            raise CommandError("--exclude-queues can only be used with --queue-name=*")
        if backend_name not in task_backends.settings:
            raise CommandError(f"there is no {backend_name}")
        served = task_backends[backend_name]
        if not isinstance(served, QueueBackend):
            if not batch:
                raise CommandError(f"{backend_name} is not the queue's")
            return
        queues = sorted(served.queues) if queue_name == "*" else queue_name.split(",")
        queues = [name for name in queues if name not in exclude_queues.split(",")]
        self._log(verbosity)
        self._say(verbosity, f"Starting worker worker_id={worker_id} queues={','.join(queues)}")
        # One task at a time, as the worker of the suite.
        made = worker(backend_name, queues, name=worker_id, concurrency=1, max_jobs=max_tasks, poll=max(interval, 0.05))
        try:
            summary = made.run(until_empty=batch)
        finally:
            made.db.close()
        if summary.recycled:
            self._say(verbosity, f"Run maximum tasks ({max_tasks})")
        else:
            self._say(verbosity, f"No more tasks to run for worker_id={worker_id} - exiting gracefully.")

    def _say(self, verbosity, text):
        if verbosity > 1:
            self.stdout.write(text)
            self.stdout.flush()

    def _log(self, verbosity):
        for name in ("django_tasks", "django.tasks"):
            logger = logging.getLogger(name)
            logger.setLevel(logging.INFO if verbosity > 1 else logging.CRITICAL)
            if verbosity > 1:
                logger.addHandler(logging.StreamHandler(self.stdout))
