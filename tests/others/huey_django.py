"""Huey's tests of its backend of Django Tasks, from its wheel, on ``queue_db.contrib.django``.

``HUEY``, with which the tests look at the queue and run a task, is in ``django_shims/huey_on_queue.py``. Changed in the tests are
the backend and the database.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.others.django_tasks_db import database
from tests.others.suite import Run, Suite

_SHIM = Path(__file__).parent / "django_shims" / "huey_on_queue.py"

_REPLACED = (
    ("from huey import MemoryHuey\n", "import json\n    import os\n\n    import pymysql\n    pymysql.install_as_MySQLdb()\n"),
    (
        "DATABASES={'default': {\n            'ENGINE': 'django.db.backends.sqlite3',\n            'NAME': ':memory:'}}",
        "DATABASES={'default': json.loads(os.environ['SUITE_DATABASE'])}",
    ),
    ("'BACKEND': 'huey.contrib.djhuey.tasks_backend.HueyBackend'", "'BACKEND': 'queue_db.contrib.django.QueueBackend'"),
    ("        HUEY=MemoryHuey('djtasks-test'))", "        INSTALLED_APPS=['queue_db.contrib.django'])"),
    (
        "from huey.contrib.djhuey import HUEY\n    from huey.tests.base import BaseTestCase",
        "from huey_on_queue import HUEY, BaseTestCase",
    ),
)


def _prepare(run: Run) -> None:
    test = run.folder / "test_django_tasks.py"
    text = (run.folder / "huey" / "tests" / "test_django_tasks.py").read_text(encoding="utf-8")
    for original, instead in _REPLACED:
        assert original in text, f"the suite has no {original}"
        text = text.replace(original, instead)
    test.write_text(text, encoding="utf-8")
    shutil.copy(_SHIM, run.folder)


def _environment(run: Run) -> Mapping[str, str]:
    return {"SUITE_DATABASE": json.dumps(database(run))}


def _command(run: Run) -> Sequence[str]:
    return run.pytest("-q", "test_django_tasks.py")


_CLASS = "test_django_tasks.TestDjangoTasksBackend"

SUITE = Suite(
    name="huey_django",
    version="3.5.4",
    source="huey==3.5.4",
    requirements=("pytest==9.2.0", "pytest-django==4.14.0", "psycopg[binary]==3.3.9", "django-stubs-ext==6.1.2"),
    extras=("mysql", "migrate", "django"),
    framework="django",
    kinds=("postgresql", "sqlite", "mysql", "mariadb"),
    prepare=_prepare,
    command=_command,
    environment=_environment,
    wheel=True,
    differences={
        f"{_CLASS}::test_immediate_mode": "Huey's immediate mode runs a task where it is enqueued; Django has a backend for that",
        f"{_CLASS}::test_invalid_tasks": "the queue runs coroutines, which Huey refuses",
        f"{_CLASS}::test_unsupported_priority": "every queue has priorities",
        f"{_CLASS}::test_enqueue_on_commit": "the transaction has the task, and sees it, where Huey enqueues after the commit",
    },
    timeout=600,
)
