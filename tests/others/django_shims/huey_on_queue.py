"""``HUEY`` of Huey's tests, on the queue of the backend: to look at it, and to run one task."""

import contextlib
import unittest
from types import SimpleNamespace

import pymysql

pymysql.install_as_MySQLdb()

import django  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from queue_db.contrib.django import worker  # noqa: E402
from queue_db.contrib.django.framework import task_backends  # noqa: E402

TABLES = ("jobs", "jobs_dead", "jobs_finished", "jobs_steps", "jobs_errors")


def _queue():
    return task_backends["default"].db.queue("default")


def _count(table):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return cursor.fetchone()[0]


class _Storage:
    priority = True

    def flush_all(self):
        with connection.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"DELETE FROM {table}")


class _Huey:
    immediate = False
    storage = _Storage()

    def pending_count(self):
        return _count("jobs")

    def result_count(self):
        return _count("jobs_finished")

    def dequeue(self):
        """The next task as Huey's: its arguments are an id and the task's own. A task that is not due stays."""
        due = _queue().claim()
        jobs = due or _queue().jobs("scheduled").jobs
        if not jobs:
            return None
        job = jobs[0]
        return SimpleNamespace(args=(job.id, job.payload["args"]), eta=job.payload["run_after"], job=job)

    def execute(self, task):
        task.job.release()
        made = worker("default", ["default"], max_jobs=1, concurrency=1)
        try:
            made.run(until_empty=True)
        finally:
            made.db.close()


HUEY = _Huey()


class BaseTestCase(unittest.TestCase):
    def setUp(self):
        self.get_huey()

    @contextlib.contextmanager
    def consumer_context(self):
        made = worker("default", ["default"])
        try:
            with made:
                yield
        finally:
            made.db.close()


call_command("migrate", "queue_db", verbosity=0)
assert django.VERSION
