"""Celery's integration tests, ``t/integration`` of its sdist, on broker and result backend of ``queue_db.contrib.kombu``.

Those of canvases are the suite ``celery_canvas``.

No result is kept yet. A run on SQLite beside other suites was interrupted after five minutes, at 84 of 167 tests: 57 had passed, 25
had skipped themselves, and two had failed. These are among those that are left out since.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from tests.others.suite import Run, Suite, without

#: The suite ``celery_canvas``; they take longest.
CANVAS = "t/integration/test_canvas.py"

_LEFT_OUT = {
    "t/integration/test_backend.py": "the backend is Azure's, and its import needs Azure's package",
    "t/integration/test_mem_leak_in_exception_handling.py": "they measure the memory of Celery's eager calls, without a broker",
    # The queue answers after 9 seconds, Kombu's files after 3; Celery waits for one.
    "t/integration/test_inspect.py::test_Inspect::test_revoked": (
        "a worker whose processes are busy answers late, as with each transport that is not asynchronous"
    ),
    CANVAS: "the tests of canvases are the suite celery_canvas",
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
    # Celery gives a test 300 seconds and six runs: one that hangs would take half an hour, and one of six is no proof.
    settings = run.folder / "t" / "integration" / "conftest.py"
    text = settings.read_text(encoding="utf-8").replace("timeout=300", "timeout=60").replace("reruns=5", "reruns=0")
    settings.write_text(text, encoding="utf-8")


def environment(run: Run) -> Mapping[str, str]:
    """The URLs of broker and results."""
    return {"TEST_BROKER": f"queuedb+{run.url}", "TEST_BACKEND": f"queuedb+{run.url}"}


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
    command=_command,
    environment=environment,
    left_out=_LEFT_OUT,
    timeout=1500,
)
