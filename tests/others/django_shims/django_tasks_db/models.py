"""``DBTaskResult`` of the suite: a row for each task, read from the queue's tables on Django's connection."""

import json
from datetime import timedelta
from types import SimpleNamespace

from django.db import connection
from django.utils import timezone
from django.utils.module_loading import import_string

from queue_db.contrib.django.framework import Task, TaskResultStatus, task_backends
from queue_db.contrib.django.results import Record, stored_result
from queue_db.model import StoredResult

TABLES = ("jobs", "jobs_dead", "jobs_finished", "jobs_steps", "jobs_errors")


def get_date_max():
    """Of their migration."""
    return


def backend():
    return task_backends["default"]


def db():
    return backend().db


class DBTaskResult:
    """A task."""

    def __init__(self, job_id, path):
        self.id, self.task_path = str(job_id), path

    @property
    def task_result(self):
        return backend().get_result(self.id)

    @property
    def task(self):
        from django.core.exceptions import SuspiciousOperation

        found = import_string(self.task_path)
        if not isinstance(found, Task):
            raise SuspiciousOperation(f"Task {self.id} does not point to a Task ({self.task_path})")
        return self.task_result.task

    @property
    def task_name(self):
        return self.task_path.rpartition(".")[2]

    @property
    def worker_ids(self):
        return self.task_result.worker_ids

    def refresh_from_db(self):
        dead = db().get(int(self.id)).state == "dead"
        self.status = TaskResultStatus.FAILED if dead else TaskResultStatus.READY
        self.traceback = "".join(f"{each.error_class}: {each.trace}" for each in db().errors(int(self.id)))


class Rows:
    """What the manager and the query sets of the suite can do."""

    def __init__(self, *statuses, due=False):
        self.statuses, self.due, self.query = statuses, due, "SELECT id FROM jobs"

    def _ids(self):
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM jobs UNION SELECT id FROM jobs_dead UNION SELECT id FROM jobs_finished")
            return sorted(row[0] for row in cursor.fetchall())

    def _found(self):
        results = [backend().get_result(str(job_id)) for job_id in self._ids()]
        if self.due:
            results = [
                one for one in results if one.task.run_after is None or one.task.run_after <= timezone.now() or self._moved(one)
            ]
        return [one for one in results if not self.statuses or one.status in self.statuses]

    def _moved(self, result):
        return db().state(int(result.id)) == "available"

    def __iter__(self):
        far = timezone.now() - timedelta(days=3650)
        order = sorted(self._found(), key=lambda one: (-one.task.priority, one.task.run_after or far, one.enqueued_at))
        return (DBTaskResult(one.id, one.task.module_path) for one in order)

    def __len__(self):
        return len(self._found())

    def count(self):
        return len(self)

    def all(self):
        return self

    def values(self, *names):
        return self

    def select_for_update(self, **options):
        return SimpleNamespace(query="SELECT id FROM jobs FOR UPDATE")

    def filter(self, id):  # noqa: A002 - the suite's name
        found = Rows()
        found._ids = lambda: [int(id)]
        return found

    def get(self, id=None):  # noqa: A002 - the suite's name
        (job_id,) = self._ids() if id is None else [id]
        return DBTaskResult(job_id, backend().get_result(str(job_id)).task.module_path)

    def ready(self):
        return Rows(TaskResultStatus.READY, due=True)

    def successful(self):
        return Rows(TaskResultStatus.SUCCESSFUL)

    def failed(self):
        return Rows(TaskResultStatus.FAILED)

    def create(self, args_kwargs, task_path="", backend_name="default", priority=0, **others):
        payload = args_kwargs | {"task": task_path, "backend": backend_name, "priority": priority}
        job_id = db().queue("default").enqueue(task_path or "none", payload, priority=-priority, max_attempts=4)
        return DBTaskResult(job_id, task_path)

    def update(self, run_after=None, return_value=None, worker_ids=(), **others):
        for job_id in self._ids():
            queue = db().queue(db().get(job_id).queue)
            if run_after is not None:
                queue.reschedule(job_id, delay=0)
                continue
            (job,) = queue.claim()
            record = Record.begin(None, 1, worker_ids[0])
            queue.complete_many([job], results=[StoredResult(json.dumps(stored_result(return_value, record)), 10**9)])

    async def aupdate(self, **values):
        from asgiref.sync import sync_to_async

        await sync_to_async(self.update)(**values)


DBTaskResult.objects = Rows()
