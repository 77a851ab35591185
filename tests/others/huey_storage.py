"""Huey's tests of a storage, ``StorageTests`` of its wheel with the slow ones, on ``queue_db.contrib.huey``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.others.suite import Run, Suite

# Each storage of Huey has such a class.
_MODULE = """
import os

from huey.tests.base import BaseTestCase
from huey.tests.test_storage import StorageTests

from queue_db import QueueDB
from queue_db.contrib.huey import QueueHuey

HUEY = QueueHuey(utc=False, database=QueueDB(os.environ["SUITE_DATABASE"], os.environ["SUITE_STRATEGY"]))


class TestQueueStorage(StorageTests, BaseTestCase):
    def get_huey(self):
        return HUEY
"""


def _prepare(run: Run) -> None:
    (run.folder / "test_queue_storage.py").write_text(_MODULE, encoding="utf-8")


def _environment(run: Run) -> Mapping[str, str]:
    strategy = "skip_locked" if run.kind in {"mysql", "mariadb"} else "adaptive"
    return {"SUITE_DATABASE": run.url, "SUITE_STRATEGY": strategy, "HUEY_SLOW_TESTS": "1"}


def _command(run: Run) -> Sequence[str]:
    return run.pytest("-q", "test_queue_storage.py")


SUITE = Suite(
    name="huey_storage",
    version="3.5.4",
    source="huey==3.5.4",
    requirements=("pytest==9.2.0",),
    extras=("postgresql", "mysql", "migrate", "huey"),
    kinds=("postgresql", "sqlite", "mysql", "mariadb"),
    prepare=_prepare,
    command=_command,
    environment=_environment,
    wheel=True,
    adapted=(
        "on MySQL and MariaDB with the strategy `skip_locked`: for some moments the default one may pass over higher "
        "priorities there"
    ),
    timeout=600,
)
