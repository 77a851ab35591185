"""The tests of Airflow's provider common-messaging, with ``queue_db.contrib.airflow`` among the providers that Airflow finds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.others.suite import CHECKOUT, Run, Suite, SuiteFailed

AIRFLOW = ("apache-airflow==3.3.2", "apache-airflow-providers-common-messaging==2.1.2", "apache-airflow-providers-standard==1.21.0")

# The tests take one fixture from Airflow's development package, which is not published with them.
_FIXTURE = """
import pytest
from airflow.exceptions import AirflowProviderDeprecationWarning


@pytest.fixture
def collect_queue_param_deprecation_warning():
    with pytest.warns(AirflowProviderDeprecationWarning, match="The `queue` parameter is deprecated"):
        yield
"""

# Beside their tests: ours is one of the providers that they choose from.
_REGISTERED = """
from airflow.providers.common.messaging.triggers import msg_queue


def test_queue_db_is_registered():
    trigger = msg_queue.MessageQueueTrigger(scheme="queue-db", feed="orders", cursor="airflow")
    assert trigger.serialize()[0] == "queue_db.contrib.airflow.triggers.FeedTrigger"
"""


def install(folder: Path) -> None:
    """Unpack the wheel of the checkout, with its entry points, into a folder.

    :raises SuiteFailed: it was not built.
    """
    with tempfile.TemporaryDirectory(prefix="queue-db-wheel-") as made:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", made]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise SuiteFailed(f"the wheel was not built:\n{done.stderr.strip()[-2000:]}")
        (wheel,) = Path(made).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


def _prepare(run: Run) -> None:
    tests = run.folder / "tests"
    helper = run.folder / "tests_common" / "test_utils"
    helper.mkdir(parents=True)
    (helper / "common_msg_queue.py").write_text(_FIXTURE, encoding="utf-8")
    (tests / "conftest.py").unlink()  # it asks for the same package
    (tests / "unit" / "common" / "messaging" / "test_registered.py").write_text(_REGISTERED, encoding="utf-8")
    install(run.folder / "installed")


def _environment(run: Run) -> Mapping[str, str]:
    return {"PYTHONPATH": str(run.folder / "installed"), "AIRFLOW_HOME": str(run.folder / "home")}


def _command(run: Run) -> Sequence[str]:
    return run.pytest("-q", "-c", "/dev/null", "--rootdir", str(run.folder), "-p", "asyncio", "tests/unit")


SUITE = Suite(
    name="airflow",
    version="common-messaging 2.1.2",
    source="apache-airflow-providers-common-messaging==2.1.2",
    requirements=(*AIRFLOW, "pytest==9.2.0", "pytest-asyncio==1.5.0"),
    extras=("postgresql", "async-postgresql", "async-sqlite", "cli"),
    kinds=("sqlite",),
    prepare=_prepare,
    command=_command,
    environment=_environment,
)
