"""Feeds in Spark: queries that each see every message once, also after a kill; trimmed messages; schema and time zones."""

import json

import pytest
from pyspark.errors import StreamingQueryException

from queue_db import QueueDB
from queue_db.spark import register
from queue_db.spark.rows import MESSAGES

TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
ONE = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def feed(url, name):
    with QueueDB(url) as db:
        yield db.feed(name)


@pytest.fixture
def fill(feed):
    """Publish messages with these numbers."""
    return lambda start, end: feed.publish_many(("k", {"n": n}) for n in range(start, end)) and None


@pytest.fixture
def run(spark, url, name, tmp_path):
    """Run the query of this name, which appends to ``written``, until it has read what is there."""
    register(spark)

    def query(which, sink, **options):
        source = spark.readStream.format("queue_db").options(url=url, feed=name, **options).load()
        writer = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / which))
        started = writer.trigger(availableNow=True).start()
        started.awaitTermination()
        return started

    return query


def collector(into):
    """A sink that keeps each batch under its number, as a sink that can be repeated does."""
    return lambda frame, batch: into.__setitem__(batch, [json.loads(row.payload)["n"] for row in frame.collect()])


def numbers(written):
    return sorted(n for batch in written.values() for n in batch)


@TWO
def test_two_queries_on_one_feed_and_one_is_stopped_in_a_batch_and_started_again(run, fill, feed):
    """Both see every message once, and the batch that is repeated is the same."""
    fill(0, 2500)
    one, other, tried = {}, {}, []

    def fails_once(frame, batch):
        tried.append([json.loads(row.payload)["n"] for row in frame.collect()])
        if len(tried) == 2:
            raise RuntimeError("stopped in the second batch")
        one[batch] = tried[-1]

    with pytest.raises(StreamingQueryException, match="stopped in the second batch"):
        run("one", fails_once, maxMessagesPerTrigger="1000", cursor="one")
    query = run("other", collector(other), maxMessagesPerTrigger="700", partitions="2")
    assert numbers(other) == list(range(2500))
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sizes == [700, 700, 700, 400]
    reported = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])
    assert (reported["behind"], reported["position"]) == (1800, feed.end())
    fill(2500, 2600)
    run("one", fails_once, maxMessagesPerTrigger="1000", cursor="one")
    assert sorted(tried[2]) == sorted(tried[1])
    assert numbers(one) == list(range(2600))
    (cursor,) = feed.cursors()
    assert (cursor.name, cursor.behind) == ("one", 0)


@ONE
def test_trimmed_below_the_checkpoint(run, fill, url, name, feed):
    fill(0, 10)
    written = {}
    run("query", collector(written))
    fill(10, 30)
    with QueueDB(url) as db:
        db.feeds.set(name, keep_rows=5)
        db.feed(name).trim()
    with pytest.raises(StreamingQueryException) as failed:
        run("query", collector(written))
    assert f"TrimmedError: messages 11 to 25 of feed '{name}', 15 of them, were trimmed" in " ".join(str(failed.value).split())
    run("query", collector(written), failOnDataLoss="false")
    assert numbers(written) == [*range(10), *range(25, 30)]


@ONE
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_columns_and_time_zones(spark, url, name, feed, zone):
    register(spark)
    feed.publish("paid", {"n": 1}, key="order-7", headers={"trace": "t"}, client="shop")
    (message,) = feed.read().messages
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.format("queue_db").options(url=url, feed=name).load()
        assert frame.schema == MESSAGES
        row = frame.selectExpr("*", "unix_micros(published_at) AS micros").first()
        assert (row.position, row.seq, row.feed, row.kind, row.key, row.client) == (
            message.position,
            1,
            name,
            "paid",
            "order-7",
            "shop",
        )
        assert (json.loads(row.payload), json.loads(row.headers)) == ({"n": 1}, {"trace": "t"})
        assert row.micros == round(message.published_at.timestamp() * 1_000_000)
        some = spark.read.format("queue_db").options(url=url, feed=name).schema("payload variant, seq long").load()
        assert some.selectExpr("payload:n::int AS n", "seq").first() == (1, 1)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@TWO
def test_a_stream_into_a_feed_publishes_each_micro_batch_once(spark, url, name, feed, tmp_path):
    register(spark)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.txt").write_text("".join(f"{number * 100 + n}\n" for n in range(100)))
        rows = spark.readStream.text(str(source)).selectExpr("value AS payload", "concat('n-', value) AS key", "'line' AS kind")
        writer = rows.writeStream.format("queue_db").options(url=url, feed=name, checkpointLocation=str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        messages = feed.read(limit=1000).messages
        assert [(message.payload, message.key) for message in messages] == [(n, f"n-{n}") for n in range(100 * (number + 1))]
        # As if the driver had died before it noted that the batch is written: it is written again.
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@ONE
def test_a_dataframe_is_published_in_the_order_of_its_partitions(spark, url, name, feed):
    register(spark)
    rows = spark.range(0, 300, 1, 3).selectExpr(
        "struct(id AS n) AS payload", "'k' AS kind", "map('at', current_timestamp()) AS headers"
    )
    for _ in range(2):
        writer = rows.write.format("queue_db").options(url=url, feed=name, txnAppId=name, txnVersion="1")
        writer.mode("append").save()
    assert [message.payload["n"] for message in feed.read(limit=1000).messages] == list(range(300))
