"""The applications in spark_jobs, as they are called from a command line; but in this process, on the Spark of these tests."""

import json
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from queue_db import QueueDB
from queue_db.spark import read_results
from tests.patience import PATIENCE
from tests.spark.conftest import ROOT

pytestmark = pytest.mark.rest("test_spark_source.py and test_spark_streams.py do what these programs call")

JOBS = ROOT / "spark_jobs"
NEW = ["enqueue_parquet", "drain_to_parquet", "stream_events", "redrive_dead", "plot_backlog"]


@pytest.fixture
def url(tmp_path):
    """A migrated database of one's own."""
    address = f"sqlite:///{tmp_path}/queue.db"
    with QueueDB(address) as db:
        db.migrate()
    return address


@pytest.fixture
def queue(url):
    with QueueDB(url) as db:
        yield db.queue("work")


@pytest.fixture
def call(spark, url, monkeypatch, capsys):
    """Run an application with these arguments; return its exit status and its output."""
    monkeypatch.syspath_prepend(str(JOBS))
    monkeypatch.setenv("QUEUE_DB_URL", url)
    # It ends its Spark, as an application should; this one is needed for the next test.
    monkeypatch.setattr(type(spark), "stop", lambda session: None)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        # A worker process imports the module by its name, as with --py-files.
        spark.sparkContext.addPyFile(str(JOBS / f"{name}.py"))
        capsys.readouterr()
        try:
            status = __import__(name).main()
        except SystemExit as left:
            status = left.code
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


@pytest.mark.parametrize("name", NEW)
def test_help_has_an_example(call, name):
    status, printed = call(name, "--help")
    assert status == 0
    assert f"spark_jobs/{name}.py" in printed
    assert "QUEUE_DB_URL" in printed


@pytest.mark.parametrize("name", NEW[:-1])
def test_without_a_database(call, monkeypatch, name, tmp_path):
    arguments = {"enqueue_parquet": ["--input", tmp_path], "drain_to_parquet": ["--output", tmp_path / "out"]}
    arguments["stream_events"] = arguments["drain_to_parquet"]
    monkeypatch.delenv("QUEUE_DB_URL")
    status, printed = call(name, "--queue", "work", *arguments.get(name, []))
    assert (status, printed.splitlines()[-1]) == (2, f"{name}.py: error: give --url or set QUEUE_DB_URL")
    unmigrated = f"sqlite:///{tmp_path}/empty.db"
    status, printed = call(name, "--queue", "work", "--url", unmigrated, *arguments.get(name, []))
    assert status == 1
    assert printed.count("\n") == 1
    assert "queue-db migrate" in printed


# --- enqueue_parquet ----------------------------------------------------------------------------------------------------


@pytest.fixture
def orders(spark, tmp_path):
    folder = tmp_path / "orders"
    spark.range(0, 300, 1, 2).selectExpr("id AS number", "id * 1.5e0 AS total", "'x' AS `not.wanted`").write.parquet(str(folder))
    return folder


def test_rows_of_parquet_become_jobs(call, orders, queue):
    status, printed = call(
        "enqueue_parquet", "--queue", "work", "--input", orders, "--kind", "invoice", "--payload", "number, total",
        "--unique-key", "number",
    )  # fmt: skip
    assert (status, printed) == (0, "300 rows enqueued to queue 'work', without those whose key a live job has\n")
    jobs = queue.peek(1000)
    assert sorted(job.payload["number"] for job in jobs) == list(range(300))
    job = next(job for job in jobs if job.payload["number"] == 7)
    assert (job.kind, job.payload, job.unique_key) == ("invoice", {"number": 7, "total": 10.5}, "7")
    status, printed = call("enqueue_parquet", "--queue", "work", "--input", orders, "--unique-key", "number")
    assert status == 0
    assert queue.stats().available == 300


def test_a_named_load_is_published_once(call, orders, queue):
    arguments = ["--queue", "work", "--input", orders, "--txn-app-id", "orders", "--txn-version"]
    assert call("enqueue_parquet", *arguments, 1) == call("enqueue_parquet", *arguments, 1)
    assert queue.stats().available == 300
    assert set(queue.peek()[0].payload) == {"number", "total", "not.wanted"}
    status, printed = call("enqueue_parquet", *arguments, 2)
    assert (status, printed) == (
        0,
        "300 rows enqueued to queue 'work' (version 2 of load 'orders'; nothing is added if it was enqueued before)\n",
    )
    assert queue.stats().available == 600


def test_what_cannot_be_enqueued_is_said_in_a_line(call, orders, queue, tmp_path):
    status, printed = call("enqueue_parquet", "--queue", "work", "--input", orders, "--payload", "numbr")
    assert (status, printed) == (1, f"{orders} has no column 'numbr'; it has number, total, not.wanted\n")
    status, printed = call("enqueue_parquet", "--queue", "work", "--input", tmp_path / "nowhere")
    assert (status, printed.count("\n")) == (1, 1)
    assert "nowhere" in printed
    status, printed = call("enqueue_parquet", "--queue", "work", "--input", orders, "--txn-app-id", "orders")
    assert (status, printed.splitlines()[-1]) == (2, "enqueue_parquet.py: error: --txn-app-id and --txn-version belong together")
    status, printed = call("enqueue_parquet", "--queue", "w" * 101, "--input", orders)
    assert (status, printed.count("\n")) == (1, 1)
    assert "101 characters" in printed
    assert queue.stats().available == 0


# --- drain_to_parquet ---------------------------------------------------------------------------------------------------

WORK = """
import pandas as pd

def total(jobs):
    numbers = [payload["number"] for payload in jobs["payload"]]
    return pd.DataFrame({"id": jobs["id"], "total": [100 * number for number in numbers]})
"""


def test_a_queue_becomes_parquet(spark, call, queue, tmp_path):
    queue.enqueue_many(("k", {"number": number, "text": "ü"}) for number in range(50))
    output = tmp_path / "out"
    status, printed = call("drain_to_parquet", "--queue", "work", "--output", output, "--partitions", 2, "--batch", 20)
    assert (status, printed) == (0, f"50 jobs completed, 0 attempts failed, 0 leases lost; {output}\n")
    rows = read_results(spark, output, "kind string, payload string").collect()
    assert sorted(json.loads(row.payload)["number"] for row in rows) == list(range(50))
    assert {(row.kind, json.loads(row.payload)["text"]) for row in rows} == {("k", "ü")}


def test_a_function_of_ones_own(spark, call, queue, tmp_path, monkeypatch):
    queue.enqueue_many(("k", {"number": number}) for number in range(10))
    (tmp_path / "totals_of_jobs.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(tmp_path / "totals_of_jobs.py"))
    arguments = ["--queue", "work", "--output", tmp_path / "out", "--partitions", 1, "--function"]
    status, printed = call("drain_to_parquet", *arguments, "totals_of_jobs:total", "--schema", "total long")
    assert status == 0, printed
    rows = read_results(spark, tmp_path / "out", "total long").collect()
    assert sorted(row.total for row in rows) == [100 * number for number in range(10)]
    for wrong, problem in (("totals_of_jobs:sum", "has no attribute 'sum'"), ("no_such_module:f", "No module named")):
        status, printed = call("drain_to_parquet", *arguments, wrong, "--schema", "total long")
        assert status == 2
        assert problem in printed.splitlines()[-1]
    status, printed = call("drain_to_parquet", *arguments, "totals_of_jobs:total")
    assert (status, printed.splitlines()[-1]) == (2, "drain_to_parquet.py: error: --function needs a --schema")


# --- stream_events ------------------------------------------------------------------------------------------------------


def test_a_stream_becomes_parquet(spark, call, queue, tmp_path, monkeypatch):
    output = tmp_path / "events"
    queue.enqueue_many(("k", {"number": number}) for number in range(30))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    arguments = ["--queue", "work", "--output", f"{output}/", "--max-jobs", 20]
    status, printed = call("stream_events", *arguments)
    assert status == 0, printed
    assert f"queue 'work' was written to {output}" in printed.splitlines()
    assert re.search(r"^batch 1: 10 jobs in \d+\.\d s; backlog \d+, held \d+, oldest \d+ s$", printed, re.MULTILINE)
    queue.enqueue_many(("k", {"number": number}) for number in range(30, 35))
    assert call("stream_events", *arguments)[0] == 0
    assert sorted(path.name for path in output.iterdir()) == ["_checkpoint", "batch=0", "batch=1", "batch=2"]
    rows = spark.read.parquet(str(output)).select("payload", "batch").collect()
    assert sorted((json.loads(row.payload)["number"], row.batch) for row in rows) == [
        (n, min(n, 30) // 20 + (n > 29)) for n in range(35)
    ]
    assert queue.stats().available == queue.stats().held == 0


def test_a_new_checkpoint_replaces_no_batches(call, queue, tmp_path):
    output = tmp_path / "events"
    (output / "batch=0").mkdir(parents=True)
    queue.enqueue("k")
    status, printed = call("stream_events", "--queue", "work", "--output", output)
    assert (status, printed.count("\n")) == (1, 1)
    assert "give a new folder" in printed
    assert queue.stats().available == 1


def test_a_stream_that_fails_says_so_in_a_line(call, queue, tmp_path):
    queue.enqueue("k")
    assert call("stream_events", "--queue", "work", "--output", tmp_path / "one", "--stream", "s")[0] == 0
    status, printed = call("stream_events", "--queue", "other", "--output", tmp_path / "two", "--stream", "s")
    assert (status, printed.count("\n")) == (1, 1)
    assert "stream 's' reads queue 'work'" in printed
    status, printed = call("stream_events", "--queue", "work", "--output", tmp_path / "two", "--trigger", "soon")
    assert (status, "must be available-now or a number of seconds" in printed) == (2, True)


# --- redrive_dead -------------------------------------------------------------------------------------------------------


def test_dead_jobs_are_counted_and_come_back(call, queue):
    queue.enqueue_many([("invoice", number) for number in range(5)] + [("mail", 1)])
    for job in queue.claim(10):
        job.bury(f"TimeoutError: order {job.id}\nat line {job.id}" if job.kind == "invoice" else "no such user")
    status, printed = call("redrive_dead", "--queue", "work")
    assert status == 0
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line.startswith("|")]
    assert [line[:4] for line in lines[1:]] == [["5", "invoice", "TimeoutError: order …", "1"], ["1", "mail", "no such user", "1"]]
    assert printed.endswith("6 dead jobs\n")
    assert queue.stats().dead == 6
    status, printed = call("redrive_dead", "--queue", "work", "--kind", "invoice", "--redrive", "--limit", 3)
    assert printed.endswith("5 dead jobs\n3 redriven; 3 dead jobs of all kinds remain in queue 'work'\n")
    assert (queue.stats().available, queue.stats().dead) == (3, 3)
    status, printed = call("redrive_dead", "--queue", "work", "--redrive")
    assert (queue.stats().available, queue.stats().dead) == (6, 0)
    assert call("redrive_dead", "--queue", "work", "--limit", 3)[0] == 2


# --- plot_backlog -------------------------------------------------------------------------------------------------------


def test_the_plot_of_a_run(call, tmp_path, monkeypatch):
    output = tmp_path / "backlog.svg"
    monkeypatch.delenv("QUEUE_DB_URL")
    monkeypatch.setattr("plot_backlog._PATIENCE", PATIENCE)
    status, printed = call("plot_backlog", "--output", output, "--seconds", 2.5, "--rate", 200)
    assert status == 0, printed
    assert re.fullmatch(rf"\d+ micro-batches; largest backlog: \d+ after \d+ s; {re.escape(str(output))}\n", printed)
    assert "maxJobsPerTrigger" in "".join(ET.parse(output).getroot().itertext())  # noqa: S314 - made here


def test_a_run_without_a_report_has_no_plot(call, tmp_path, monkeypatch):
    output = tmp_path / "backlog.svg"
    monkeypatch.setattr("plot_backlog._PATIENCE", 0.0)
    monkeypatch.setattr("plot_backlog.points", lambda progress, began: [])
    status, printed = call("plot_backlog", "--output", output, "--seconds", 0.1)
    assert (status, printed) == (1, "the stream has reported no micro-batch in 0.1 s: give more --seconds\n")
    assert not output.exists()


def test_a_plot_is_a_picture(call, tmp_path):
    status, printed = call("plot_backlog", "--output", tmp_path / "backlog.txt")
    assert (status, "must end in .svg or .png" in printed) == (2, True)
    plot = sys.modules["plot_backlog"]
    plot.save(plot.draw([plot.Point(0.5, 10, 5, 1.0, 5)], 1.0, 10.0, 5, "nowhere"), tmp_path / "backlog.png")
    assert (tmp_path / "backlog.png").read_bytes().startswith(b"\x89PNG")
