"""Celery's integration tests, ``t/integration`` of its sdist, on broker and result backend of ``queue_db.contrib.kombu``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from tests.others.suite import Run, Suite

# One line makes the URLs known; the tables are created before.
_HEAD = "import queue_db.contrib.kombu  # noqa: F401\n"


def _prepare(run: Run) -> None:
    shutil.rmtree(run.folder / "celery")  # the environment has the installed package
    package = run.folder / "t" / "integration" / "__init__.py"
    package.write_text(_HEAD + package.read_text(encoding="utf-8"), encoding="utf-8")
    subprocess.run([run.python, "-c", "import sys, queue_db; queue_db.QueueDB(sys.argv[1]).migrate()", run.url], check=True)

    # Celery gives a test 300 seconds and six runs.
    settings = run.folder / "t" / "integration" / "conftest.py"
    text = settings.read_text(encoding="utf-8").replace("timeout=300", "timeout=60").replace("reruns=5", "reruns=0")
    settings.write_text(text, encoding="utf-8")


def _environment(run: Run) -> Mapping[str, str]:
    return {"TEST_BROKER": f"queuedb+{run.url}", "TEST_BACKEND": f"queuedb+{run.url}"}


# It is about a backend of Azure, and its import needs Azure's package.
_LEFT_OUT = "t/integration/test_backend.py"

_CHAINED = "t/integration/test_canvas.py::test_chain::test_header_failure_fails_the_chords_after"
_DESELECTED = (f"{_CHAINED}_it", f"{_CHAINED}_a_group_body")


def _command(run: Run) -> Sequence[str]:
    return run.pytest(
        "-q",
        "-p",
        "celery.contrib.pytest",
        "-o",
        "addopts=",
        "--timeout=60",
        f"--ignore={_LEFT_OUT}",
        *(f"--deselect={test}" for test in _DESELECTED),
        "t/integration",
    )


SUITE = Suite(
    name="celery",
    version="5.7.0",
    source="celery==5.7.0",
    requirements=(
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
    ),
    extras=("postgresql", "mysql", "migrate", "celery"),
    kinds=("postgresql", "sqlite"),
    prepare=_prepare,
    command=_command,
    environment=_environment,
    timeout=1500,
)
