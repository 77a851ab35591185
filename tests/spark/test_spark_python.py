"""Threads of the program, and the Python that Spark runs its workers with."""

import os
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor

import pytest

from queue_db import QueueDB
from queue_db.spark import enqueue, register

pytestmark = pytest.mark.rest("test_spark_enqueue.py and test_spark_drain.py write and read with Python")

ONE = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

PROGRAM = """
import sys
import pandas as pd
from pyspark.sql import SparkSession
from queue_db.spark import drain_to, register

url, queue, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def drain():
    drain_to(spark, url, queue, lambda jobs: pd.DataFrame({"id": jobs["id"]}), None, folder, partitions=1)

for do in (drain, lambda: register(spark)):
    try:
        do()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


@ONE
@pytest.mark.parametrize("way", ["enqueue", "write"])
def test_threads_write(spark, url, name, way):
    def load(number):
        df = spark.range(10 * number, 10 * number + 10).selectExpr("struct(id AS n) AS payload")
        if way == "enqueue":
            enqueue(df.selectExpr("payload.n AS n"), url, name, kind="k")
        else:
            register(spark)
            df.write.format("queue_db").options(url=url, queue=name).mode("append").save()

    with ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(load, number) for number in range(4)]
    problems = [f"thread {number}: {load.exception()}" for number, load in enumerate(loads) if load.exception()]
    assert not problems, "\n\n".join(problems)
    with QueueDB(url) as db:
        assert sorted(job.payload["n"] for job in db.queue(name).claim(100)) == list(range(40))


@ONE
def test_another_python_is_an_error_that_names_the_cure(java_home, url, name, tmp_path):
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    with QueueDB(url) as db:
        job_id = db.queue(name).enqueue("k")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    environment |= {"PATH": f"{tmp_path / 'bare' / 'bin'}:{os.defpath}", "SPARK_LOCAL_IP": "127.0.0.1"}
    program = [sys.executable, "-c", PROGRAM, url, name, tmp_path / "out"]
    answer = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=300)
    errors = answer.stdout.splitlines()
    assert len(errors) == 2
    for error in errors:
        assert error.startswith("ConfigurationError: Spark runs its Python workers with")
        assert "lacks sqlalchemy" in error
        assert f"PYSPARK_PYTHON={sys.executable}" in error
    with QueueDB(url) as db:
        assert db.get(job_id).attempts == 0
