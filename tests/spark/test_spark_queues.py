"""Several queues through a real Spark: one write into them, reads in all states, and one stream of all."""

import pytest
from pyspark.sql import functions as f

from queue_db import QueueDB
from queue_db.spark import complete_on_commit, dead_letter, enqueue, register

ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")
COLUMNS = (
    "to_json(struct(id)) AS payload",
    "concat('{}.', id % 3) AS queue",
    "concat('g', id % 2) AS group_key",
    "concat('k', id) AS unique_key",
    "INTERVAL '1' HOUR AS unique_for",
)


@pytest.fixture
def db(url):
    with QueueDB(url) as db:
        yield db


@pytest.fixture
def queues(spark, url, name):
    """Three queues of a pattern, written at once."""
    register(spark)
    df = spark.range(0, 300, 1, 4).selectExpr(*(column.format(name) for column in COLUMNS))
    df.write.format("queue_db").options(url=url).mode("append").save()
    return f"{name}.*"


@ONE
def test_one_write_into_several_queues_and_reads_of_them(spark, url, name, db, queues):
    def read(**options):
        return spark.read.format("queue_db").options(url=url, queues=queues, **options).load()

    assert {row.queue: row["count"] for row in read().groupBy("queue").count().collect()} == {
        f"{name}.{number}": 100 for number in range(3)
    }
    job = db.queue(f"{name}.0").claim()[0]
    job.bury("no")
    found = {row.state: row.jobs for row in read(states="available,blocked,running,dead", countBy="state").collect()}
    # Two groups in each queue: one job of each can run.
    assert found == {"available": 6, "blocked": 293, "dead": 1}
    assert read(limit=7).count() == 7
    assert [(row.state, row.last_error, row.id) for row in read(states="dead").collect()] == [("dead", "no", job.id)]
    # In their order: the jobs of a group in one queue.
    jobs = []
    while some := db.queue(f"{name}.1").claim(10):
        jobs += [job.payload["id"] for job in some]
        assert all(db.queue(f"{name}.1").complete_many(some))
    for group in range(2):
        assert [number for number in jobs if number % 2 == group] == [n for n in range(1, 300, 3) if n % 2 == group]


@ONE
@pytest.mark.rest("tests/spark/streams/test_queues_in_one_stream.py has its steps without a JVM")
def test_a_stream_of_a_pattern_into_a_sink_and_the_dead(spark, url, name, db, tmp_path):
    register(spark)
    listener = complete_on_commit(spark, url)
    source = spark.readStream.format("queue_db").options(url=url, queues=f"{name}.*", stream=name, maxBytesPerTrigger=180)

    def write(rows, batch):
        judged = rows.withColumn("dead_reason", f.when(f.col("payload") == "7", "not seven"))
        judged.where("dead_reason IS NULL").write.mode("overwrite").parquet(f"{tmp_path}/out/batch={batch}")
        dead_letter(judged, url, name)

    try:
        for numbers in (range(100), range(100, 300)):  # the second time there is a queue more
            for number in numbers:
                db.queue(f"{name}.{number // 100}").enqueue("k", number)
            writer = source.load().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            assert len(query.recentProgress) > 1  # the bytes limit a batch
    finally:
        spark.streams.removeListener(listener)
    rows = spark.read.parquet(f"{tmp_path}/out").select("payload", "queue").collect()
    assert sorted(int(row.payload) for row in rows) == [number for number in range(300) if number != 7]
    assert all(row.queue == f"{name}.{int(row.payload) // 100}" for row in rows)
    assert [job.payload for job in db.dead.list(f"{name}.0")] == [7]


@ONE
@pytest.mark.rest("tests/spark/staging/test_written_columns.py has it without a JVM")
def test_enqueue_takes_a_group_and_the_time_of_a_key(spark, url, name, db):
    df = spark.range(4).selectExpr("id AS n", "'g' AS tenant", "concat('k', id) AS key", "60 AS lasting")
    given = {"payload": ["n"], "unique_key": "key", "columns": {"group": "tenant", "unique_for": "lasting"}}
    assert enqueue(df, url, name, kind="k", **given) == 4
    for number in range(4):
        (job,) = db.queue(name).claim(9)
        assert job.payload == {"n": number}
        assert job.complete()
    assert enqueue(df, url, name, kind="k", **given) == 0
