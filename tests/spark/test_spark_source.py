"""``format("queue_db")`` in batches: what is written is there once, what is read is what is there, and what is wrong is named."""

import json
import os
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from sqlalchemy import make_url, text

from queue_db import QueueDB
from queue_db.spark import QueueDataSource, options, register
from queue_db.spark.masked_errors import SparkTaskError
from queue_db.spark.rows import SCHEMA

TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def save(spark, url, name):
    """Write a DataFrame into the queue."""
    register(spark)

    def write(df, mode="append", **given):
        settings = {"url": url, "queue": name} | given
        df.write.format("queue_db").options(**settings).mode(mode).save()

    return write


@pytest.fixture
def load(spark, url, name):
    """The queue as a DataFrame."""
    register(spark)

    def read(**given):
        return spark.read.format("queue_db").options(**{"url": url, "queue": name} | given).load()

    return read


@pytest.fixture
def jobs(url, name):
    """The queue's due jobs, in claim order."""

    def peek():
        with QueueDB(url) as db:
            return db.queue(name).peek(10_000)

    return peek


def refusal(do):
    """The user's error message, on one line."""
    with pytest.raises(PySparkException) as refused:
        do()
    return " ".join(str(refused.value).split())


# --- writing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_every_row_is_a_job(spark, save, jobs, guarantee):
    df = spark.range(0, 2500, 1, 3).selectExpr("concat('{\"n\":', id, '}') AS payload")
    save(df, guarantee=guarantee)
    found = jobs()
    assert sorted(job.payload["n"] for job in found) == list(range(2500))
    assert {(job.kind, job.priority, job.attempts, job.max_attempts, job.version) for job in found} == {("default", 0, 0, 25, 0)}


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_all_columns(spark, save, jobs, url, name, guarantee):
    due = datetime(2001, 1, 1, tzinfo=UTC)
    rows = [
        ("1", "a", 5, due, "k1", {"x": "y"}, 3),
        ("2", None, None, None, None, None, None),
        ("3", "b", -5, datetime(2101, 1, 1, tzinfo=UTC), "k2", {}, 1),
    ]
    columns = "payload string, kind string, priority int, available_at timestamp, unique_key string, headers map<string,string>"
    save(spark.createDataFrame(rows, columns + ", max_attempts int").repartition(1), guarantee=guarantee, kind="other")
    assert [(job.payload, job.kind, job.priority, job.unique_key, job.headers, job.max_attempts) for job in jobs()] == [
        (2, "other", 0, None, {}, 25),
        (1, "a", 5, "k1", {"x": "y"}, 3),
    ]
    with QueueDB(url) as db:
        assert db.queue(name).stats().scheduled == 1


@ONE
@pytest.mark.parametrize("delay", ["3600", "CAST(3600.5 AS decimal(9,1))", "3600e0", "INTERVAL '1' HOUR"])
@pytest.mark.rest("tests/spark/staging and tests/spark/test_option_values.py have it without a JVM")
def test_delays(spark, save, url, name, delay):
    save(spark.sql(f"SELECT '1' AS payload, {delay} AS delay"))
    with QueueDB(url) as db:
        assert db.queue(name).stats().scheduled == 1


@TWO
def test_a_null_is_a_payload_and_an_empty_frame_is_nothing(spark, save, jobs):
    save(spark.sql("SELECT CAST(NULL AS string) AS payload"))
    save(spark.sql("SELECT NULL AS payload"))
    save(spark.sql("SELECT '1' AS payload WHERE false"))
    assert [job.payload for job in jobs()] == [None, None]


@ONE
def test_structs_maps_and_nested_values_are_json(spark, save, jobs):
    save(
        spark.sql(
            """SELECT struct(1 AS `order`, '\N{GRINNING FACE}' AS face, array(struct(CAST(1.10 AS decimal(5,2)) AS price)) AS items,
            map('a', CAST(NULL AS int)) AS m, DATE'2001-02-03' AS day, TIMESTAMP'2001-02-03 04:05:06.000007 UTC' AS at,
            TIMESTAMP_NTZ'2001-02-03 04:05:06' AS here, X'00ff' AS bytes, true AS yes, 1.5e0 AS half) AS payload"""
        )
    )
    (job,) = jobs()
    assert job.payload == {
        "order": 1,
        "face": "\N{GRINNING FACE}",
        "items": [{"price": "1.10"}],
        "m": {"a": None},
        "day": "2001-02-03",
        "at": "2001-02-03T04:05:06.000007Z",
        "here": "2001-02-03T04:05:06",
        "bytes": "AP8=",
        "yes": True,
        "half": 1.5,
    }
    assert Decimal(job.payload["items"][0]["price"]) == Decimal("1.10")


@SERVERS
def test_large_and_odd_texts_come_through_exactly(spark, save, load):
    odd = [json.dumps(text) for text in ("\N{GRINNING FACE}", 'a"b\\c', "line\nline", "tab\t,;'%s :x", "\x00\x01", "é" * 500_000)]
    save(spark.createDataFrame([(text,) for text in odd], "payload string").repartition(2))
    assert sorted(row.payload for row in load().select("payload").collect()) == sorted(odd)


@ONE
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.rest("tests/spark/staging and tests/spark/test_option_values.py have it without a JVM")
def test_timestamps_mean_the_same_in_every_session_time_zone(spark, save, load, url, name, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        instant = datetime(2001, 7, 1, 12, 30, 15, 123456, tzinfo=UTC)
        df = spark.sql(
            "SELECT struct(TIMESTAMP'2001-07-01 12:30:15.123456 UTC' AS at) AS payload, "
            "TIMESTAMP'2001-07-01 12:30:15.123456 UTC' AS available_at"
        )
        save(df)
        with QueueDB(url) as db:
            (job,) = db.queue(name).claim()
            created = job.created_at
            assert job.payload == {"at": "2001-07-01T12:30:15.123456Z"}
        # A job is never due before it was made.
        assert instant < created <= datetime.now(UTC) + timedelta(minutes=1)
        micros = load().selectExpr("unix_micros(enqueued_at) AS at").collect()[0].at
        assert micros == round(created.timestamp() * 1_000_000)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@ONE
def test_many_partitions_of_which_most_are_empty(spark, save, jobs):
    df = spark.range(0, 200, 1, 40).where("id % 50 = 0").selectExpr("cast(id AS string) AS payload")
    save(df)
    assert sorted(job.payload for job in jobs()) == list(range(0, 200, 50))


@ONE
def test_payload_formats(spark, save, url, name):
    df = spark.sql("SELECT 'not json' AS payload")
    assert "column 'payload' has a string that is not JSON" in refusal(lambda: save(df))
    save(df, payloadFormat="text")
    save(df, payloadFormat="RAW")
    with QueueDB(url) as db, db.database.begin() as connection:
        found = (
            connection.execute(text("SELECT payload FROM jobs WHERE queue = :queue ORDER BY id"), {"queue": name}).scalars().all()
        )
    assert found == ['"not json"', "not json"]


@TWO
@pytest.mark.parametrize("bad", [1500, 0])
def test_one_bad_row_and_nothing_is_enqueued(spark, save, jobs, bad):
    df = spark.range(0, 2000, 1, 2).selectExpr(f"if(id = {bad}, '{{', '1') AS payload")
    assert "is not JSON" in refusal(lambda: save(df))
    assert jobs() == []


@ONE
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'1' AS payload, 1 AS priorty", "unknown column 'priorty'; did you mean 'priority'?"),
        ("'1' AS payload, 1 AS `order`", "unknown column 'order'; put it into the payload"),
        ("1 AS kind", "column 'kind' is int; it must be a string"),
        ("'k' AS kind", "the column 'payload' is missing"),
        ("1 AS id", "the column 'payload' is missing"),
        ("'1' AS payload, 'x' AS priority", "column 'priority' is string; it must be a whole number"),
        ("'1' AS payload, TIMESTAMP_NTZ'2001-01-01 00:00:00' AS available_at", "it must be a timestamp"),
        ("'1' AS payload, 1 AS delay, now() AS available_at", "there are both 'delay' and 'available_at'"),
        ("map(1, 2) AS payload", "has keys of type int"),
        ("struct(INTERVAL '1' DAY AS i) AS payload", "column 'payload.i' is interval day, which JSON cannot hold"),
        ("'1' AS payload, 1 AS PAYLOAD", "column 'payload' is there twice"),
        ("'1' AS payload, '' AS kind", "kind is empty"),
    ],
)
@pytest.mark.rest("tests/spark/staging and tests/spark/test_option_values.py have it without a JVM")
def test_bad_columns_are_named_and_nothing_is_enqueued(spark, save, jobs, columns, message):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert message in refusal(lambda: save(spark.sql(f"SELECT {columns}")))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert jobs() == []


@TWO
@pytest.mark.parametrize(("policy", "left"), [("skip", {"1": "old", "2": "new"}), ("replace", {"1": "new", "2": "new"})])
def test_live_keys(spark, save, jobs, policy, left):
    save(spark.sql("SELECT struct('1' AS k, 'old' AS v) AS payload, '1' AS unique_key"))
    save(spark.sql("SELECT struct(k, 'new' AS v) AS payload, k AS unique_key FROM VALUES ('1'), ('2') AS t(k)"), onDuplicate=policy)
    assert {job.payload["k"]: job.payload["v"] for job in jobs()} == left


@TWO
def test_a_live_key_that_is_to_raise_undoes_all(spark, save, jobs):
    save(spark.sql("SELECT '1' AS payload, 'k' AS unique_key"))
    df = spark.range(0, 10, 1, 2).selectExpr("'2' AS payload", "if(id = 9, 'k', concat('other', id)) AS unique_key")
    assert "DuplicateJobError" in refusal(lambda: save(df, onDuplicate="raise"))
    assert [job.payload for job in jobs()] == [1]


# --- once ---------------------------------------------------------------------------------------------------------------


@TWO
def test_the_same_transaction_again_adds_nothing(spark, save, jobs, name):
    df = spark.range(100).selectExpr("cast(id AS string) AS payload")
    for version in (7, 7, 3, 7, 3):
        save(df, txnAppId=f"load of {name}", txnVersion=str(version))
    assert len(jobs()) == 200
    save(df)
    assert len(jobs()) == 300


@ONE
def test_another_load_under_an_old_transaction_is_refused(spark, save, jobs, name):
    df = spark.range(100).selectExpr("cast(id AS string) AS payload")
    save(df, txnAppId=name, txnVersion="1")
    assert "before with 100 jobs, and this time it has 99" in refusal(lambda: save(df.limit(99), txnAppId=name, txnVersion="1"))
    assert len(jobs()) == 100


def test_a_load_that_was_published_is_not_staged_again(url, name):
    schema = StructType().add("payload", "string")
    batch = pa.RecordBatch.from_pydict({"payload": [json.dumps(random.Random(n).random()) for n in range(20_000)]})
    given = {"url": url, "queue": name, "txnAppId": name, "txnVersion": "1"}
    staged = []
    for _ in range(2):
        writer = QueueDataSource(given).writer(schema, overwrite=False)
        message = writer.write(iter([batch]))
        writer.commit([message])
        staged.append((message.chunks > 0, message.jobs))
    assert staged == [(True, 20_000), (False, 20_000)]
    fewer = QueueDataSource(given).writer(schema, overwrite=False)
    with pytest.raises(SparkTaskError, match="before with 20000 jobs, and this time it has 5"):
        fewer.commit([fewer.write(iter([batch.slice(0, 5)]))])
    with QueueDB(url) as db:
        assert db.queue(name).stats().available == 20_000


@TWO
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_task_that_dies_while_it_writes(spark, save, jobs, tmp_path, guarantee):
    marker = tmp_path / "died"

    @f.udf("string")
    def killing(number):
        if number == 9000 and not marker.exists():
            marker.touch()
            os._exit(1)
        return str(number)

    save(spark.range(0, 9500, 1, 1).select(killing("id").alias("payload")), guarantee=guarantee)
    assert marker.exists()
    assert sorted(job.payload for job in jobs()) == list(range(9500))


# --- reading ------------------------------------------------------------------------------------------------------------


def test_reading_claims_nothing(spark, url, name, load):
    with QueueDB(url) as db:
        queue = db.queue(name)
        queue.enqueue_many(("k", {"n": n}, {"headers": {"h": n}, "priority": n % 3}) for n in range(2000))
        queue.enqueue("later", delay=1000)
        (job,) = queue.claim()
        before = queue.stats()
    df = load(partitions="3")
    assert df.schema == SCHEMA
    assert df.rdd.getNumPartitions() <= 3
    rows = {row.id: row for row in df.collect()}
    assert len(rows) == 2001
    mine = rows[job.id]
    assert (mine.queue, mine.kind, json.loads(mine.payload), json.loads(mine.headers)) == (name, "k", job.payload, job.headers)
    assert (mine.priority, mine.attempts, mine.fence) == (0, 1, job.fence)
    with QueueDB(url) as db:
        after = db.queue(name).stats()
        assert (after.available, after.scheduled, after.running) == (before.available, before.scheduled, before.running)


@TWO
def test_an_empty_queue_and_a_limit(spark, load, url, name):
    assert load().count() == 0
    with QueueDB(url) as db:
        db.queue(name).enqueue_many(("k", n) for n in range(50))
    assert load().limit(5).count() == 5


@SERVERS
def test_large_payloads_are_read_in_small_portions(url, name):
    with QueueDB(url) as db:
        db.queue(name).enqueue_many(("k", f"{n}" + "x" * 1_000_000) for n in range(24))
    given = {"url": url, "queue": name, "partitions": "1"}
    reader = QueueDataSource(given).reader(SCHEMA)
    (partition,) = reader.partitions()
    batches = list(reader.read(partition))
    assert sum(batch.num_rows for batch in batches) == 24
    assert max(batch.nbytes for batch in batches) < 12_000_000  # of 24


@pytest.mark.parametrize(("gap", "dense"), [(0, True), (300, False)])
@pytest.mark.rest("tests/spark/staging and tests/spark/test_option_values.py have it without a JVM")
def test_jobs_between_those_of_other_queues(url, name, gap, dense):
    with QueueDB(url) as db:
        queue, other = db.queue(name), db.queue(f"{name}-other")
        for n in range(20):
            queue.enqueue_many(("k", number) for number in range(100 * n, 100 * n + 100))
            other.enqueue_many(("k", number) for number in range(10 * gap // 3))
    reader = QueueDataSource({"url": url, "queue": name, "partitions": "2"}).reader(SCHEMA)
    parts = reader.partitions()
    assert [(len(parts), all(part.pieces[0].range.dense is dense for part in parts))] == [(2, True)]
    payloads = [row["payload"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(map(int, payloads)) == list(range(2000))


def test_a_filter_reaches_the_database(url, name):
    with QueueDB(url) as db:
        db.queue(name).enqueue_many((f"k'{n % 5}", n, {"priority": n % 3}) for n in range(1000))
    wanted = "kind = 'k''1' and Priority >= 1 AND attempts<1 AND enqueued_at > '2020-01-01T00:00Z'"
    reader = QueueDataSource({"url": url, "queue": name, "filter": wanted}).reader(SCHEMA)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(int(row["payload"]) for row in rows) == [n for n in range(1000) if n % 5 == 1 and n % 3 > 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kind", "must be comparisons with"),
        ("kind = 'a' AND ", "must be comparisons with"),
        ("kind = 'a' OR id = 1", "must be comparisons with"),
        ("payload = 'a'", "must be comparisons with"),
        ("kind = 1", "kind is compared with a text in single quotes"),
        ("id = '1'", "id is compared with a number"),
        ("kind > 'a'", "kind is compared with = only"),
        ("kind = ''", "filter: kind is empty"),
        ("enqueued_at > 'yesterday'", "enqueued_at is compared with a time"),
    ],
)
def test_a_malformed_filter_is_refused(given, message):
    with pytest.raises(SparkTaskError, match=message):
        QueueDataSource({"url": "sqlite:////tmp/none.db", "queue": "q", "filter": given}).reader(SCHEMA)


@TWO
def test_some_columns(spark, load, url, name):
    with QueueDB(url) as db:
        db.queue(name).enqueue_many((f"k{n % 5}", {"n": n}) for n in range(20))
    reader = spark.read.format("queue_db").options(url=url, queue=name, filter="kind = 'k3'")
    found = reader.schema("kind string, fence string, id long").load().collect()
    assert sorted((row.kind, row.fence) for row in found) == sorted(("k3", f"{row.id}:0") for row in found)
    assert len(found) == 4
    assert reader.schema("queue string").load().distinct().collect() == [(name,)]


@TWO
def test_variants_both_ways(spark, save, url, name, jobs):
    text = '{"a":[1,2.5,"x",null,true],"b":{"c":"\u00fc"}}'
    save(spark.sql(f"SELECT parse_json('{text}') AS payload, parse_json('{{\"h\":1}}') AS headers"))
    save(spark.sql(f"SELECT struct(1 AS n, parse_json('{text}') AS v, array(parse_json('7'), NULL) AS l) AS payload"))
    save(spark.sql("SELECT CAST(NULL AS variant) AS payload"))
    value = json.loads(text)
    assert [(job.payload, job.headers) for job in jobs()] == [
        (value, {"h": 1}),
        ({"n": 1, "v": value, "l": [7, None]}, {}),
        (None, {}),
    ]
    read = spark.read.format("queue_db").options(url=url, queue=name).schema("id long, payload variant, headers variant").load()
    rows = read.selectExpr("payload:b.c::string AS c", "payload:n::int AS n", "headers:h::int AS h", "to_json(payload) AS text")
    assert [tuple(row)[:3] for row in rows.orderBy("id").collect()] == [("ü", None, 1), (None, 1, None), (None, None, None)]
    assert json.loads(rows.orderBy("id").collect()[0].text) == value


@ONE
def test_what_was_read_can_be_written(spark, load, save, url, name):
    with QueueDB(url) as db:
        db.queue(name).enqueue("k", {"a": [1, "ü"]}, headers={"h": 1}, priority=3)
    save(load().select("payload", "kind", "headers", "priority"), queue=f"{name}-copy")
    with QueueDB(url) as db:
        (copy,) = db.queue(f"{name}-copy").peek()
    assert (copy.kind, copy.payload, copy.headers, copy.priority) == ("k", {"a": [1, "ü"]}, {"h": 1}, 3)


# --- options ------------------------------------------------------------------------------------------------------------


@ONE
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nonsense": "x"}, "unknown option 'nonsense'. Options of write: url, queue"),
        ({"queu": "x"}, "unknown option 'queu'; did you mean 'queue'? Options of write: url, queue"),
        ({"maxJobsPerTrigger": "5"}, "option 'maxJobsPerTrigger' belongs to readStream, not to write"),
        ({"guarantee": "exactly-once"}, "guarantee='exactly-once': must be exactly_once or at_least_once"),
        ({"txnAppId": "x"}, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "x", "txnVersion": "1", "guarantee": "at_least_once"}, "txnAppId needs guarantee=exactly_once"),
        ({"txnAppId": "query:x", "txnVersion": "1"}, "names that begin with write: or query: are queue_db's own"),
        ({"txnAppId": "x", "txnVersion": "first"}, "txnVersion='first': must be a whole number"),
        ({"url": "env:NO_SUCH_VARIABLE"}, "the driver has no environment variable 'NO_SUCH_VARIABLE'"),
        ({"url": "file:/no/such/file"}, "url=file:/no/such/file: No such file"),
        ({"url": "nonsense"}, "this is not a database URL"),
        ({"table": "Jobs"}, "table='Jobs': use 1 to 40 lower-case letters"),
        ({"table": "others"}, "the table 'others' of the queue is not there yet"),
        ({"queue": " x"}, "queue=' x' begins or ends with a blank"),
    ],
)
@pytest.mark.rest("tests/spark/staging and tests/spark/test_option_values.py have it without a JVM")
def test_bad_options_are_named(spark, save, given, message):
    assert message in refusal(lambda: save(spark.sql("SELECT '1' AS payload"), **given))


@ONE
def test_missing_options_and_modes_are_named(spark, url, name):
    register(spark)
    df = spark.sql("SELECT '1' AS payload")
    assert "option 'url' is missing" in refusal(lambda: df.write.format("queue_db").option("queue", name).mode("append").save())
    assert "option 'queue' is missing" in refusal(lambda: spark.read.format("queue_db").option("url", url).load().count())
    writer = df.write.format("queue_db").options(url=url, queue=name)
    assert "cannot be overwritten" in refusal(lambda: writer.mode("overwrite").save())
    for schema in ("id int", "number long", "kind variant"):
        reader = spark.read.format("queue_db").options(url=url, queue=name).schema(schema)
        assert "a queue has no column" in refusal(lambda reader=reader: reader.load().count())


@ONE
def test_options_in_any_case_and_addresses_from_elsewhere(spark, save, jobs, url, tmp_path):
    secret = tmp_path / "url"
    secret.write_text(f"{url}\n")
    df = spark.sql("SELECT '1' AS payload")
    save(df, URL=f"file:{secret}", GUARANTEE="AT_LEAST_ONCE")
    assert len(jobs()) == 1


@ONE
def test_views_work_and_tables_with_options_say_why_not(spark, url, name):
    register(spark)
    with QueueDB(url) as db:
        db.queue(name).enqueue("k")
    spark.sql(f"CREATE TEMPORARY VIEW waiting USING queue_db OPTIONS (url '{url}', queue '{name}')")
    assert spark.sql("SELECT kind FROM waiting").collect()[0].kind == "k"
    spark.catalog.dropTempView("waiting")
    # Spark writes the options of a CREATE TABLE into its event log, as they are; this one is refused before it connects.
    create = f"USING queue_db OPTIONS (url '{make_url(url)._replace(password=None)}', queue '{name}')"
    assert "Spark does not pass a table's options" in refusal(lambda: spark.sql(f"CREATE TABLE waiting {create}"))
    # With columns Spark does not ask the source.
    spark.sql(f"CREATE TABLE waiting (kind string) USING queue_db OPTIONS (queue '{name}')")
    try:
        assert "without OPTIONS and with the columns" in refusal(lambda: spark.sql("SELECT kind FROM waiting").collect())
    finally:
        spark.sql("DROP TABLE waiting")


@ONE
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.rest("tests/spark/staging and tests/spark/test_option_values.py have it without a JVM")
def test_a_write_that_would_leave_a_table_is_refused(spark, url, name, guarantee):
    register(spark)
    df = spark.sql("SELECT '1' AS payload")
    given = {"url": url, "queue": name, "guarantee": guarantee}
    writer = df.write.format("queue_db").options(**given).mode("append")
    message = "Spark does not pass a table's options"
    assert message in refusal(lambda: writer.saveAsTable("saved"))
    assert message in refusal(lambda: df.writeTo("saved").using("queue_db").options(**given).create())
    assert [table.name for table in spark.catalog.listTables() if table.name == "saved"] == []
    with QueueDB(url) as db:
        assert db.queue(name).stats().available == 0
    writer.save()
    with QueueDB(url) as db:
        assert db.queue(name).stats().available == 1


@ONE
def test_what_is_wrong_with_a_stream_is_said_in_load_or_as_the_querys_only_error(spark, url, name, tmp_path):
    register(spark)

    def source(**given):
        return spark.readStream.format("queue_db").options(**({"url": url, "queue": name, "stream": name} | given))

    assert "unknown option 'strem'; did you mean 'stream'? Options of read or readStream" in refusal(source(strem="x").load)
    assert "maxJobsPerTrigger='x': must be a whole number" in refusal(source(maxJobsPerTrigger="x").load)
    assert "option 'kind' belongs to write, writeStream, not to read or readStream" in refusal(source(kind="x").load)
    assert "option 'url' is missing" in refusal(lambda: spark.read.format("queue_db").option("queue", name).load())
    # With a schema Spark does not ask the source before the query runs.
    frame = source(strem="x").schema("id long").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException) as failed:
        query.processAllAvailable()
    assert "unknown option 'strem'; did you mean 'stream'? Options of readStream" in str(failed.value)
    assert "UnboundLocalError" not in str(failed.value)


@pytest.mark.parametrize("days", ["-1", "0", "nan", "inf", "36500"])
def test_retention_is_in_days(days):
    given = {"url": "sqlite:////tmp/none.db", "queue": "q", "stream": "s", "retentionDays": days}
    with pytest.raises(SparkTaskError, match=f"retentionDays='{days}': must be more than 0 and less than 36,500 days"):
        QueueDataSource(given).streamReader(SCHEMA).initialOffset()


@ONE
def test_the_traceback_is_the_cause_of_an_error(spark, save, url):
    message = refusal(lambda: save(spark.range(5).selectExpr("if(id = 3, '{', '1') AS payload").coalesce(1)))
    assert "row 4 of partition 0: column 'payload' has a string that is not JSON" in message
    assert "encoding.py" in message
    assert "It came from: Traceback" in message


def test_every_option_is_documented():
    docs = Path(__file__).parents[2] / "docs"
    text = "".join((docs / page).read_text(encoding="utf-8") for page in ("spark.md", "spark-streams.md"))
    assert [option.name for option in options.OPTIONS if f"`{option.name}`" not in text] == []


# --- secrets ------------------------------------------------------------------------------------------------------------


@ONE
def test_the_password_is_nowhere(spark, event_log, save, load, url, name, tmp_path, capfd):
    password = make_url(url).password
    wrong = make_url(url).set(password="pencil-and-paper").render_as_string(hide_password=False)
    df = spark.range(10).selectExpr("cast(id AS string) AS payload")
    save(df)
    frame = load()
    frame.explain(extended=True)
    messages = [refusal(lambda: save(df, url=wrong)), refusal(lambda: load(url=wrong).count())]
    messages.append(refusal(lambda: save(df.selectExpr("'{' AS payload"))))
    messages.append(refusal(lambda: save(df, url=url.replace(":", "::", 1))))
    register(spark)
    spark.sql(f"CREATE TEMPORARY VIEW secretive USING queue_db OPTIONS (url '{url}', queue '{name}')")
    spark.sql("SELECT * FROM secretive").explain(extended=True)
    assert spark.sql("SELECT * FROM secretive").count() == 10
    spark.catalog.dropTempView("secretive")
    written = [path.read_text() for path in event_log.rglob("events_*")]
    printed = capfd.readouterr()
    everything = [*messages, *written, printed.out, printed.err, repr(frame), str(frame.schema)]
    assert any("queue_db" in text for text in written)
    assert not any(secret in text for text in everything for secret in (password, "pencil-and-paper"))
