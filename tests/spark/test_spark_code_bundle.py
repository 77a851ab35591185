"""The package's code in what Spark gets: a Python that lacks the package uses it. No JVM is needed for this."""

import os
import pickle
import subprocess
from types import SimpleNamespace

import pytest
from pyspark import cloudpickle

from queue_db import QueueDB
from queue_db.spark import register
from queue_db.spark.code_bundle import bundled
from tests.spark.cluster import bare_python

# A writer and a reader, each made by the source and sent on to a task; then a function.
PROGRAM = """
import importlib.util, json, pickle, sys
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import StructType

assert importlib.util.find_spec("queue_db") is None

def sent(what):
    return pickle.loads(cloudpickle.dumps(what))

options, source, function = (pickle.loads(one) for one in pickle.load(sys.stdin.buffer))
writer = source(options).writer(StructType().add("payload", "string"), False)
message = sent(writer).write(iter([pa.RecordBatch.from_pydict({"payload": ["1", "2", "3"]})]))
writer.commit([message])
reader = source(options).reader(source(options).schema())
rows = [row["payload"] for part in reader.partitions() for batch in sent(reader).read(part) for row in batch.to_pylist()]
print(json.dumps({"rows": rows, "function": list(function([4])), "from": sys.modules["queue_db"].__spec__.origin}))
"""


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_python_that_lacks_the_package_reads_and_writes_with_it(url: str, name: str, tmp_path) -> None:
    registered: list[type] = []
    register(SimpleNamespace(dataSource=SimpleNamespace(register=registered.append)))

    def doubled(numbers):
        import queue_db  # noqa: F401 - that it is there

        return (2 * number for number in numbers)

    order = [cloudpickle.dumps(one) for one in ({"url": url, "queue": name}, *registered, bundled(doubled))]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [bare_python(tmp_path), "-c", PROGRAM]
    done = subprocess.run(command, input=pickle.dumps(order), env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == '{"rows": ["1", "2", "3"], "function": [8], "from": "bundled queue_db"}'
    with QueueDB(url) as db:
        assert sorted(job.payload for job in db.queue(name).peek(10)) == [1, 2, 3]
