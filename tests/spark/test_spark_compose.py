"""The Spark of ``docker-compose.yml`` without Docker: its commands make a cluster, on which its driver submits an application."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from queue_db import QueueDB
from tests.compose import ROOT, SERVICES, environment
from tests.spark.cluster import START_LIMIT, standalone

URL = "spark://spark-master:7077"


MASTER, WORKER, DRIVER = (SERVICES[name] for name in ("spark-master", "spark-worker", "driver"))


def test_one_image_is_master_worker_and_driver() -> None:
    assert [one["image"] for one in (MASTER, WORKER, DRIVER)] == ["queue-db-spark"] * 3, "one Python, one Spark"
    assert (MASTER["command"][0], WORKER["command"][0], WORKER["command"][-1]) == ("spark-class", "spark-class", URL)
    assert URL in DRIVER["entrypoint"]


@pytest.mark.rest("test_spark_demo.py runs the application, and the services of the file are compared above")
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_the_driver_and_the_executors_reach_one_database_by_one_url(java_home: str, url: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for number in range(3):
        (tmp_path / "files" / str(number)).write_text("text")
    of_master = [word.replace("spark-master", "127.0.0.1") for word in MASTER["command"][1:]]
    python = Path(sys.executable)
    with standalone(tmp_path, python, ["127.0.0.1"], master=of_master, worker=WORKER["command"][1:-1]) as cluster:
        submit, *of_driver = (word.replace(URL, cluster.url) for word in DRIVER["entrypoint"])
        conf = [word for option in cluster.options.items() for word in ("--conf", "=".join(option))]
        application = ["spark_jobs/enqueue_files.py", "--queue", name, "--dir", tmp_path / "files"]
        done = subprocess.run(
            [python.with_name(submit), *of_driver, *conf, *application],
            cwd=ROOT,
            env=cluster.environment | environment("driver", url) | {"PYSPARK_PYTHON": str(python)},
            capture_output=True,
            text=True,
            timeout=START_LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with QueueDB(url) as db:
        assert db.queue(name).stats().available == 3
