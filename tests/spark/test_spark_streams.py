"""Streams: micro-batches that are claimed once, read again after a crash, and completed; others that are enqueued once."""

import json
import shutil
import uuid

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import functions as f

from queue_db import QueueDB
from queue_db.spark import dead_letter, register

TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ALL = pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"], scope="session")
ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def read(spark, url, name):
    """The queue as a stream of the same name."""
    register(spark)

    def make(**given):
        settings = {"url": url, "queue": name, "stream": name} | given
        return spark.readStream.format("queue_db").options(**settings).load()

    return make


@pytest.fixture
def drain_into(tmp_path):
    """Run a stream into a Parquet folder until nothing is due; return the query."""

    def run(frame, folder="out", checkpoint="checkpoint"):
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / folder))
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    return run


@pytest.fixture
def numbers(spark, tmp_path):
    """The numbers in a Parquet folder, each as often as it is there."""

    def found(folder="out"):
        rows = spark.read.parquet(str(tmp_path / folder)).select("payload").collect()
        return sorted(json.loads(row.payload)["n"] for row in rows)

    return found


@pytest.fixture
def fill(url, name):
    def enqueue(count, start=0, **options):
        with QueueDB(url) as db:
            db.queue(name).enqueue_many(("k", {"n": n}, options) for n in range(start, start + count))

    return enqueue


def failure(query):
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    return " ".join(str(failed.value).split())


@ALL
def test_all_that_is_available_is_written_once_and_completed(read, drain_into, numbers, fill, stats):
    fill(2500)
    query = drain_into(read(maxJobsPerTrigger="1000", partitions="2"))
    assert numbers() == list(range(2500))
    assert (stats().available, stats().held) == (0, 0)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [1000, 1000, 500]
    fill(10, start=2500)
    drain_into(read())
    assert numbers() == list(range(2510))


@ONE
def test_progress_reports_backlog_held_and_oldest_age(read, drain_into, fill):
    fill(50)
    query = drain_into(read(maxJobsPerTrigger="20"))
    (first, *_) = [progress for progress in query.recentProgress if progress["numInputRows"]]
    reported = json.loads(first["sources"][0]["latestOffset"])
    assert (reported["backlog"], reported["held"], reported["batch"]) == (30, 20, 1)
    assert reported["oldestSeconds"] >= 0


@ONE
def test_some_columns_and_variants(spark, url, name, drain_into, fill, tmp_path):
    fill(5)
    register(spark)
    reader = spark.readStream.format("queue_db").options(url=url, queue=name, stream=name).schema("fence string, payload variant")
    drain_into(reader.load().selectExpr("payload:n::int AS n", "fence"))
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.n, row.fence.partition(":")[2]) for row in rows) == [(n, "1") for n in range(5)]


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_a_paused_queue_is_left_alone(url, name, read, drain_into, numbers, fill, stats):
    fill(5)
    with QueueDB(url) as db:
        db.queue(name).pause()
        query = drain_into(read())
        assert not any(progress["numInputRows"] for progress in query.recentProgress)
        assert (stats().available, stats().held) == (5, 0)
        db.queue(name).resume()
    drain_into(read())
    assert numbers() == list(range(5))


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_what_is_not_due_is_left(read, drain_into, numbers, fill, stats):
    fill(5)
    fill(5, start=100, delay=3600)
    drain_into(read())
    assert numbers() == list(range(5))
    assert stats().scheduled == 5


@TWO
def test_jobs_with_keys_keep_them_until_they_are_completed(read, drain_into, numbers, url, name):
    with QueueDB(url) as db:
        queue = db.queue(name)
        queue.enqueue_many(("k", {"n": n}, {"unique_key": str(n)}) for n in range(30))
        assert queue.stats().available == 30
        drain_into(read())
        assert numbers() == list(range(30))
        assert queue.enqueue("k", {"n": 0}, unique_key="0") is not None
        assert queue.stats().available == 1


@TWO
def test_a_stream_into_a_queue_enqueues_each_micro_batch_once(spark, url, name, tmp_path):
    register(spark)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.txt").write_text("".join(f"{number * 100 + n}\n" for n in range(100)))
        writer = spark.readStream.text(str(source)).selectExpr("value AS payload").writeStream.format("queue_db")
        settings = {"url": url, "queue": name, "checkpointLocation": str(checkpoint)}
        writer.options(**settings).trigger(availableNow=True).start().awaitTermination()
        with QueueDB(url) as db:
            assert sorted(job.payload for job in db.queue(name).peek(10_000)) == list(range(100 * (number + 1)))
        # As if the driver had died before it noted that the batch is written: it is written again.
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@ONE
def test_foreach_batch_with_a_transaction_enqueues_once(spark, read, fill, url, name, tmp_path):
    fill(200)
    sink = f"{name}-sink"

    def publish(frame, batch):
        for _ in range(2):
            writer = frame.select("payload").write.format("queue_db").options(url=url, queue=sink)
            writer.options(txnAppId=name, txnVersion=str(batch)).mode("append").save()

    writer = read(maxJobsPerTrigger="100").writeStream.foreachBatch(publish)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    with QueueDB(url) as db:
        assert sorted(job.payload["n"] for job in db.queue(sink).peek(10_000)) == list(range(200))


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_jobs_with_a_reason_go_to_the_dead(read, fill, stats, url, name, tmp_path):
    fill(100)

    def settle(frame, batch):
        bad = frame.withColumn("dead_reason", f.when(f.col("payload").contains('"n":7}'), "not\0seven"))
        marked = dead_letter(bad, url, name)
        assert marked == dead_letter(bad, url, name)
        with pytest.raises(PythonException, match="row 1 with a reason: column 'fence' has '7', which is not the stream's fence"):
            dead_letter(bad.withColumn("fence", f.lit("7")), url, name)

    writer = read().writeStream.foreachBatch(settle).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert (stats().available, stats().held, stats().dead) == (0, 0, 1)
    with QueueDB(url) as db:
        (dead,) = db.dead.list(name)
        assert (dead.payload, dead.last_error) == ({"n": 7}, "not\N{REPLACEMENT CHARACTER}seven")


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_the_older_of_two_queries_with_one_stream_name_stops(spark, read, fill, numbers, drain_into, tmp_path):
    fill(20)
    older = read().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "older")).start()
    try:
        older.processAllAvailable()
        fill(20, start=20)
        drain_into(read(), checkpoint="newer")
        # The older one polls its stream again, whether or not there are jobs.
        assert "StreamFencedError" in failure(older)
    finally:
        older.stop()


@ONE
@pytest.mark.rest("tests/spark/streams/test_stream_loses.py races them")
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_two_streams_on_one_queue_share_its_jobs(spark, read, fill, stats, tmp_path):
    fill(1200)
    for number in range(2):  # one of them writes nothing if it comes when the other has all: then there is no folder, and no schema
        (tmp_path / "shared" / str(number)).mkdir(parents=True)
    queries = [
        read(stream=f"{number}-{uuid.uuid4()}", maxJobsPerTrigger="200")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "shared" / str(number)))
        .option("checkpointLocation", str(tmp_path / f"checkpoint{number}"))
        .trigger(availableNow=True)
        .start()
        for number in range(2)
    ]
    for query in queries:
        query.awaitTermination()
    found = [spark.read.schema("id long").parquet(str(tmp_path / "shared" / str(number))).count() for number in range(2)]
    both = spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path / "shared"))
    assert both.count() == both.select("id").distinct().count() == sum(found) == 1200
    assert (stats().available, stats().held) == (0, 0)


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_a_restored_checkpoint_is_refused_and_nothing_is_lost(read, drain_into, fill, numbers, stats, tmp_path):
    fill(100)
    drain_into(read())
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    fill(100, start=100)
    drain_into(read())
    fill(100, start=200)
    query = read().writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = query.option("checkpointLocation", str(tmp_path / "backup")).trigger(availableNow=True).start()
    assert "CheckpointMismatchError" in failure(query)
    assert stats().available == 100
    drain_into(read())
    assert numbers() == list(range(300))


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_the_checkpoint_of_another_stream_is_refused(read, drain_into, fill, name, tmp_path):
    fill(10)
    drain_into(read())
    query = read(stream=f"{name}-other").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert "CheckpointMismatchError" in failure(query.trigger(availableNow=True).start())


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_a_stream_belongs_to_one_queue(spark, read, drain_into, fill, name, tmp_path):
    fill(10)
    drain_into(read())
    query = read(queue=f"{name}-other").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "other"))
    assert f"stream '{name}' reads queue '{name}'" in failure(query.trigger(availableNow=True).start())


@ONE
@pytest.mark.rest("tests/spark/streams has it without a JVM")
def test_after_a_release_the_checkpoint_is_refused_and_its_jobs_are_drained_again(
    read, fill, url, name, tmp_path, drain_into, numbers
):
    fill(50)

    def die(frame, batch):
        raise RuntimeError("the sink is full")

    query = read(maxJobsPerTrigger="20").writeStream.foreachBatch(die).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert "the sink is full" in failure(query.start())
    with QueueDB(url) as db:
        assert (db.queue(name).stats().available, db.queue(name).stats().held) == (30, 20)
        assert db.streams.release(name) == 20
    assert "CheckpointMismatchError" in failure(query.start())
    drain_into(read(), checkpoint="fresh")
    assert numbers() == list(range(50))
