"""Celery's integration tests, ``t/integration`` of its sdist, on broker and result backend of ``queue_db.contrib.kombu``.

Those of canvases are the suite ``celery_canvas``.

Celery runs some tests up to six times. Here each runs once: one of six is no proof. So two that race with the worker are adapted.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from tests.others.suite import Run, Suite, SuiteFailed, without

#: The suite ``celery_canvas``; they take longest.
CANVAS = "t/integration/test_canvas.py"

_DJANGO = "it is about Celery's support of Django; no message is sent"

_LEFT_OUT = {
    "t/integration/test_backend.py": "the backend is Azure's, and its import needs Azure's package",
    "t/integration/test_mem_leak_in_exception_handling.py": "they measure the memory of Celery's eager calls, without a broker",
    "t/integration/test_worker.py::test_django_fixup_direct_worker": _DJANGO,
    "t/integration/test_worker.py::test_django_fixup_installs_django_task_for_celery_subclass": _DJANGO,
    "t/integration/test_tasks.py::test_tasks::test_revoked_by_headers_complex_canvas": (
        "it leaves a minute of sleeping tasks to the one process of the worker, and Celery ends it after 20 s; what it leaves "
        "spoils the tests that read the log"
    ),
    CANVAS: "the tests of canvases are the suite celery_canvas",
}

_DIFFERENCES = {
    "t.integration.test_worker::test_concurrency_auto_sizes_prefork_pool": (
        "it starts a worker without an app, so nothing imports the module that makes the URL known"
    ),
}

# A process of the pool logs through a queue; the worker, a thread of the test, may receive a task before `delay()` returns.
_RACES = {
    "time.sleep(.01)": "time.sleep(2)",
    "res = non_replaced_task.delay()\n        assertion_result = False": (
        "assertion_result = False\n        res = non_replaced_task.delay()"
    ),
}

# One line makes the URLs known; the tables are created before.
_HEAD = "import queue_db.contrib.kombu  # noqa: F401\n"

REQUIREMENTS = (
    "celery==5.7.0",
    "kombu==5.7.0",
    "pytest==9.1.1",
    "pytest-rerunfailures==16.7",
    "pytest-subtests==0.15.0",
    "pytest-timeout==2.4.0",
    "pytest-order==1.5.0",
    "pydantic==2.14.4",
    "redis==8.1.0",
    "cryptography>=50",
    "psutil>=7",
)


def prepare(run: Run) -> None:
    """Use the installed package, make the URLs known, create the tables."""
    shutil.rmtree(run.folder / "celery")
    package = run.folder / "t" / "integration" / "__init__.py"
    package.write_text(_HEAD + package.read_text(encoding="utf-8"), encoding="utf-8")
    subprocess.run([run.python, "-c", "import sys, queue_db; queue_db.QueueDB(sys.argv[1]).migrate()", run.url], check=True)
    # Celery gives a test 300 seconds and up to six runs: one that hangs would take half an hour.
    for module in (run.folder / "t" / "integration").glob("*.py"):
        text = re.sub(r"timeout\((timeout=)?300\)", "timeout(60)", module.read_text(encoding="utf-8"))
        module.write_text(re.sub(r"reruns=\d+", "reruns=0", text), encoding="utf-8")
    tasks = run.folder / "t" / "integration" / "test_tasks.py"
    text = tasks.read_text(encoding="utf-8")
    for before, after in _RACES.items():
        if before not in text:
            raise SuiteFailed(f"{tasks.name} has no {before!r}")
        text = text.replace(before, after)
    tasks.write_text(text, encoding="utf-8")


def environment(run: Run) -> Mapping[str, str]:
    """The URLs of broker and results. Some tests read what the worker logs."""
    return {"TEST_BROKER": f"queuedb+{run.url}", "TEST_BACKEND": f"queuedb+{run.url}", "WORKER_LOGLEVEL": "INFO"}


def command(run: Run, *tests: str) -> Sequence[str]:
    """The command that runs these tests."""
    return run.pytest("-q", "-p", "celery.contrib.pytest", "-o", "addopts=", "--timeout=60", *tests)


def _command(run: Run) -> Sequence[str]:
    return command(run, *without(_LEFT_OUT), "t/integration")


SUITE = Suite(
    name="celery",
    version="5.7.0",
    source="celery==5.7.0",
    requirements=REQUIREMENTS,
    extras=("postgresql", "mysql", "migrate", "celery"),
    kinds=("postgresql", "sqlite"),
    prepare=prepare,
    adapted=(
        "each test runs once, for 60 s at most; two wait 2 s, not 10 ms, for the log of another process, and one sets its "
        "variable before it sends the task"
    ),
    command=_command,
    environment=environment,
    left_out=_LEFT_OUT,
    differences=_DIFFERENCES,
    timeout=1500,
)
