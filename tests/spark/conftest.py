"""One Spark for all tests here: two slots, and a failed task is tried again up to three times."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from queue_db import QueueDB, QueueStats
from tests.spark import preloaded
from tests.spark.cluster import set_java_home

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"))


@pytest.fixture(scope="session")
def java_home() -> str:
    return set_java_home()


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark notes plans, settings and errors."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(java_home: str, event_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with preloaded.python_in(tmp_path_factory.mktemp("python")) as python:
        os.environ |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        session = (
            SparkSession.builder.master("local[2,4]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.compress", "false")
            .config("spark.eventLog.dir", event_log.as_uri())
            .config("spark.python.authenticate.socketTimeout", "10m")  # a loaded machine takes longer than the 15 s
            .config("spark.log.level", "OFF")  # these tests kill tasks
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        yield session
        session.stop()


@pytest.fixture
def stats(url: str, name: str) -> Callable[[], QueueStats]:
    """The counts of the queue at this moment."""

    def read() -> QueueStats:
        with QueueDB(url) as db:
            return db.queue(name).stats()

    return read
