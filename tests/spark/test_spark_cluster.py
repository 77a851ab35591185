"""A cluster and a Connect server whose Python lacks the package: they really lack it, and everything works there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from queue_db import QueueDB
from tests.servers import processes
from tests.spark.cluster import START_LIMIT, bare_python, connect_server, standalone, until

ROOT = Path(__file__).parents[2]
HOSTS = ["127.0.0.1", "127.0.0.2"]
MISSING = "No module named 'queue_db'"
pytestmark = pytest.mark.rest(
    "test_spark_code_bundle.py has a Python without the package, and each use of WORK is tested on the local Spark"
)

# Each task reports where it runs and whether it finds the package, and ends when it may.
CLIENT = """
import json, os, sys, time
from pathlib import Path
import pandas as pd
from pyspark.sql import SparkSession

def probe(batches):
    sum(map(len, batches))
    try:
        import queue_db
        answer = queue_db.__file__
    except ModuleNotFoundError as error:
        answer = str(error)
    host = os.environ["SPARK_LOCAL_IP"]
    (folder / f"{os.getpid()}.{host}.started").touch()
    while not (folder / "go on").exists():
        time.sleep(0.03)
    yield pd.DataFrame({"host": [host], "answer": [answer], "python": [sys.executable]})

folder = Path(sys.argv[1])
session = SparkSession.builder.getOrCreate()
rows = session.range(0, 2, 1, 2).mapInPandas(probe, "host string, answer string, python string").collect()
count = session.range(10).count() if "count" in sys.argv else None
print(json.dumps({"session": type(session).__module__, "rows": [list(row) for row in rows], "count": count}))
session.stop()
"""

# Everything that the package does in Spark, on a client that has it.
WORK = """
import json, sys
from pathlib import Path
import pandas as pd
from pyspark.sql import SparkSession
from queue_db import QueueDB
from queue_db.spark import drain_to, enqueue, read_results, register

url, queue, folder = sys.argv[1:]
session = SparkSession.builder.getOrCreate()
register(session)
options = {"url": url, "queue": queue}

def numbers(rows):
    return sorted(json.loads(row.payload)["n"] for row in rows)

def run(writer, name):
    query = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
    query.awaitTermination()

frame = session.range(0, 300, 1, 3).selectExpr("struct(id AS n) AS payload")
frame.write.format("queue_db").options(**options).mode("append").save()
frame.write.format("queue_db").options(**options, guarantee="at_least_once").option("queue", queue + "2").mode("append").save()
read = session.read.format("queue_db").options(**options).load()
found = {"read": numbers(read.collect())}
stream = session.readStream.format("queue_db").options(**options, stream=queue).load()
run(stream.writeStream.format("parquet").option("path", f"{folder}/out"), "first")
found["streamed"] = numbers(session.read.parquet(f"{folder}/out").collect())
stream = session.readStream.format("queue_db").options(**options, stream=queue + "2").option("queue", queue + "2").load()
run(stream.select("payload").writeStream.format("queue_db").options(**options).option("queue", queue + "3"), "second")
found["enqueued"] = enqueue(session.range(300, 310), url, queue + "3", kind="k", payload=["id"])

def double(jobs):
    values = [payload["n"] if "n" in payload else payload["id"] for payload in jobs["payload"]]
    return pd.DataFrame({"id": jobs["id"], "n": values})

done = drain_to(session, url, queue + "3", double, "n long", f"{folder}/drained", partitions=2)
found["completed"] = done.completed
found["drained"] = sorted(row.n for row in read_results(session, f"{folder}/drained", "n long").collect())

# Behind it is this machine's disk, which driver and executors share as they would an object store.
session.conf.set("fs.viewfs.mounttable.elsewhere.link./results", Path(folder).as_uri())
enqueue(session.range(20), url, queue + "4", kind="k", payload=["id"])
done = drain_to(session, url, queue + "4", double, "n long", "viewfs://elsewhere/results/rounds", partitions=2)
found["elsewhere"] = sorted(row.n for row in read_results(session, "viewfs://elsewhere/results/rounds", "n long").collect())
print(json.dumps(found))
session.stop()
"""
WORKED = {
    "read": list(range(300)),
    "streamed": list(range(300)),
    "enqueued": 10,
    "completed": 310,
    "drained": list(range(310)),
    "elsewhere": list(range(20)),
}

# In each of three steps every task waits, in the middle of its rows, until the test has killed a worker and lets them go on.
KILLED = """
import json, os, sys, time
from pathlib import Path
import pandas as pd
from pyspark import TaskContext
from pyspark.sql import SparkSession
from queue_db.spark import drain_to, read_results, register

url, queue, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
session = SparkSession.builder.getOrCreate()
register(session)

def gate(step):
    (folder / f"{step}.{os.getpid()}.{TaskContext.get().attemptNumber()}.{time.monotonic_ns()}").touch()
    while not (folder / f"{step} goes on").exists():
        time.sleep(0.03)

def through(step):
    def halves(batches):
        for batch in batches:
            yield batch.iloc[: len(batch) // 2]
            gate(step)
            yield batch.iloc[len(batch) // 2 :]
    return halves

columns = "payload string, queue string"
rows = session.range(0, 1200, 1, 4).selectExpr("cast(id AS string) AS payload", f"concat('{queue}-', id % 3) AS queue")
rows = rows.mapInPandas(through("write"), columns)
rows.write.format("queue_db").options(url=url).mode("append").save()

source = session.readStream.format("queue_db")
source = source.options(url=url, queues=f"{queue}-*", stream=queue, partitions=4, maxJobsPerTrigger=600).load()
moved = source.select("payload", "queue").mapInPandas(through("stream"), columns).select("payload")
writer = moved.writeStream.format("queue_db").options(url=url, queue=queue).option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()

def work(jobs):
    gate("drain")
    return pd.DataFrame({"id": jobs["id"], "n": [int(payload) for payload in jobs["payload"]]})

done = drain_to(session, url, queue, work, "n long", f"{folder}/drained", partitions=2, batch=100, lease=30.0)
results = read_results(session, f"{folder}/drained", "n long").collect()
print(json.dumps({"completed": done.completed, "drained": done.drained, "rows": sorted(row.n for row in results)}))
session.stop()
"""
ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def client(tmp_path):
    """Start the program above as a process that is gone after the test; Spark's environment has the address."""
    started = []

    def start(environment, *arguments, program=CLIENT):
        command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environment, cwd=tmp_path, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=START_LIMIT)  # its Java ends when it is gone, and with that the pipe


def answer_of(process):
    output, complaints = process.communicate(timeout=5 * START_LIMIT)
    assert process.returncode == 0, complaints
    return json.loads(output)


@ONE
def test_a_cluster_runs_tasks_on_two_hosts_without_the_package_and_replaces_an_executor(java_home, client, tmp_path, url, name):
    python = bare_python(tmp_path)
    with standalone(tmp_path, python) as cluster:
        program = client(cluster.environment, tmp_path)

        def both_have_started():
            assert program.poll() is None, program.communicate()[1]
            return len(list(tmp_path.glob("*.started"))) == 2

        until(both_have_started, START_LIMIT, cluster.logs)
        started = dict(path.name.removesuffix(".started").split(".", 1) for path in tmp_path.glob("*.started"))
        assert sorted(started.values()) == HOSTS
        first, second = cluster.executors()
        tasks = cluster.python_workers()
        assert {str(pid) for pid in tasks} == set(started)
        assert sorted(tasks.values()) == [first, second]

        cluster.kill_executor(first)
        until(lambda: len(cluster.executors()) == 2, START_LIMIT, cluster.logs)
        assert second in cluster.executors()
        assert first not in cluster.executors()
        (tmp_path / "go on").touch()
        answer = answer_of(program)
        seen = {first, second, *tasks, *cluster.executors()}
        environment = cluster.environment | {"PYTHONPATH": str(ROOT)}
        assert answer_of(client(environment, url, name, tmp_path, program=WORK)) == WORKED
    assert len(answer["rows"]) == 2
    assert {host for host, *_ in answer["rows"]} <= set(HOSTS)
    assert {tuple(rest) for _, *rest in answer["rows"]} == {(MISSING, str(python))}
    assert not any(processes.start_time(pid) for pid in seen)


@ONE
def test_a_connect_server_runs_tasks_without_the_package(java_home, client, tmp_path, url, name):
    python = bare_python(tmp_path)
    (tmp_path / "go on").touch()
    with connect_server(tmp_path, python, {}) as address:
        remote = os.environ | {"SPARK_REMOTE": address, "PYTHONPATH": str(ROOT)}
        answer = answer_of(client(remote, tmp_path, "count"))
        worked = answer_of(client(remote, url, name, tmp_path, program=WORK))
    assert answer["session"] == "pyspark.sql.connect.session"
    assert answer["count"] == 10
    assert answer["rows"] == [["127.0.0.1", MISSING, str(python)]] * 2
    assert worked == WORKED


@ONE
def test_a_worker_is_killed_in_each_step_and_nothing_is_lost_or_there_twice(java_home, client, tmp_path, url, name):
    """A write into three queues, a stream of these into a fourth, and its drain."""
    with standalone(tmp_path, bare_python(tmp_path)) as cluster:
        program = client(cluster.environment | {"PYTHONPATH": str(ROOT)}, url, name, tmp_path, program=KILLED)
        for step, host in (("write", HOSTS[0]), ("stream", HOSTS[1]), ("drain", HOSTS[0])):

            def both_are_in_it(step=step):
                assert program.poll() is None, program.communicate()[1]
                return len({path.name.split(".")[1] for path in tmp_path.glob(f"{step}.*.*")}) == 2

            until(both_are_in_it, START_LIMIT, cluster.logs)
            if step == "write":  # a task has staged nothing that anybody sees
                with QueueDB(url) as db:
                    assert [queue for queue in db.queues() if queue.startswith(name)] == []
            cluster.kill_worker(host)
            (tmp_path / f"{step} goes on").touch()
            cluster.start_worker(host)
            cluster.wait_for_workers()
        answer = answer_of(program)
    assert answer == {"completed": 1200, "drained": True, "rows": list(range(1200))}
    # Each kill met a task: it was begun again, or another task has called the function for its batch, the thirteenth call.
    assert all(list(tmp_path.glob(f"{step}.*.1.*")) for step in ("write", "stream"))
    assert len(list(tmp_path.glob("drain.*.*"))) > 12
    with QueueDB(url) as db:
        left = {queue: db.queue(queue).stats() for queue in db.queues() if queue.startswith(name)}
    assert {(found.available, found.running, found.dead) for found in left.values()} <= {(0, 0, 0)}
