"""django-tasks-db's tests of its backend, its worker and its processes, on ``queue_db.contrib.django``.

Its package has neither its tasks nor its settings: these, its model and its command are in ``django_shims``. Changed in its tests
are ids (numbers, not UUIDs), the name of the app in a hint, pauses of a second (a wait for the event), and waits of half a second
for the end of a process (two minutes). Statements are not counted. A worker that ends when its queues are empty waits for a task
whose row somebody has locked: where the suite locks one, the worker ends after the other task, or after half a minute.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import make_url

from tests.others.suite import Run, Suite

SHIMS = Path(__file__).parent / "django_shims"

_ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}

#: Classes of the suite: those of its model, its admin page and its pruning are about its own table.
CLASSES = ("DatabaseBackendTestCase", "DatabaseBackendWorkerTestCase", "DatabaseWorkerProcessTestCase")

_REPLACED = (
    (r"self\.assertEqual\(uuid\.UUID\(result\.id\)\.version, 4\)", "self.assertTrue(result.id.isdecimal())"),
    (r'assertIn\("django_tasks_db", errors\[0\]\.hint\)', 'assertIn("queue_db.contrib.django", errors[0].hint)'),
    (r"time\.sleep\(self\.WORKER_STARTUP_TIME\)", "started(self.processes)"),
    (r"process\.wait\(timeout=[\d.]+\)", "process.wait(timeout=120)"),
    (r"all_output\.count\(result\.id\)", 'all_output.count(f"id={result.id} ")'),
    (r"(which isn't locked\n.*\n\n +)self\.run_worker\(\)", r"\1within(30, self.run_worker, max_tasks=1)"),
)


def _prepare(run: Run) -> None:
    shutil.rmtree(run.folder / "django_tasks_db" / "migrations")
    for name in ("admin", "models", "apps", "backend", "signal_handlers"):
        (run.folder / "django_tasks_db" / f"{name}.py").unlink()
    shutil.copytree(SHIMS, run.folder, dirs_exist_ok=True)
    tests = run.folder / "tests" / "tests.py"
    text = tests.read_text(encoding="utf-8")
    for pattern, instead in _REPLACED:
        text, number = re.subn(pattern, instead, text)
        assert number, f"the suite has no {pattern}"
    tests.write_text(
        text.replace(
            "from tests import tasks as test_tasks",
            "from tests import tasks as test_tasks\nfrom tests.adapted import started, within",
        )
    )


def database(run: Run) -> dict[str, object]:
    """The entry of DATABASES; the database of the run is that of the tests."""
    url = make_url(run.url)
    sqlite = run.kind == "sqlite"
    return {
        "ENGINE": f"django.db.backends.{_ENGINES[run.kind]}",
        "NAME": url.database,
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.host or "",
        "PORT": str(url.port or ""),
        "OPTIONS": {"timeout": 20} if sqlite else {},
        "TEST": {"NAME": f"{url.database}.test" if sqlite else f"{url.database}_test"},
    }


def _environment(run: Run) -> Mapping[str, str]:
    return {"SUITE_DATABASE": json.dumps(database(run)), "DJANGO_SETTINGS_MODULE": "tests.settings"}


def _command(run: Run) -> Sequence[str]:
    return run.pytest(
        "-v",
        "-o",
        "faulthandler_timeout=90",
        "-o",
        "python_files=tests.py",
        "--ds=tests.settings",
        "--create-db",
        "-k",
        " or ".join(CLASSES),
        "tests/tests.py",
    )


def _tests(where: str, reasons: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {f"tests.tests.{where}::{name}": reason for reason, names in reasons.items() for name in names}


_BACKEND = _tests(
    "DatabaseBackendTestCase",
    {
        "an option of the other backend: the ids of the queue are numbers of its database": (
            "test_custom_id_function",
            "test_unknown_id_function",
            "test_postgres_id_function_expression",
            "test_postgres_db_id_function",
        ),
        "looks at an index of the other backend's table": ("test_index_scan_for_ready",),
        "looks at the constraint and at a migration of the other backend's table": (
            "test_priority_range_check",
            "test_run_after_null_0016_migration",
        ),
    },
)
_WORKER = _tests(
    "DatabaseBackendWorkerTestCase",
    {
        "the words of the other command's options": (
            *("test_unknown_backend", "test_incorrect_backend", "test_negative_interval", "test_infinite_interval"),
            *("test_negative_max_tasks", "test_zero_max_tasks", "test_too_long_worker_id", "test_empty_worker_id"),
        ),
        "the order of the other table's rows: those that are not due among those that are": ("test_run_after_priority",),
        "the words of the other backend: here Django's own refuse the value": ("test_complex_return_value",),
        "looks at how the other command calls its Worker": ("test_fractional_interval", "test_zero_interval"),
    },
)
_PROCESSES = _tests(
    "DatabaseWorkerProcessTestCase",
    {"a second Ctrl-C returns the task to its queue, where the other worker makes it FAILED": ("test_repeat_ctrl_c",)},
)

_LOCKED = _tests(
    "DatabaseBackendWorkerTestCase",
    {"a claim of one job waits for the first row, which somebody has locked": ("test_worker_with_locked_rows",)},
)

SUITE = Suite(
    name="django_tasks_db",
    version="0.13.0",
    source="django-tasks-db==0.13.0",
    requirements=("pytest==9.2.0", "pytest-django==4.14.0", "psycopg[binary]==3.3.9", "django-stubs-ext==6.1.2"),
    extras=("mysql", "migrate", "django"),
    framework="django",
    kinds=("postgresql", "sqlite", "mysql", "mariadb"),
    prepare=_prepare,
    command=_command,
    environment=_environment,
    adapted=(
        "three of its nine test classes run (backend, worker, processes); its model `DBTaskResult`, its command `db_worker` and "
        "its tasks are shims on our tables and our worker, and `assertNumQueries` accepts any number"
    ),
    differences=_BACKEND | _WORKER | _PROCESSES,
    differences_on={"mysql": _LOCKED, "mariadb": _LOCKED},
    timeout=1200,
)
