"""Reading a feed: by the source, in batch and as a stream, and by JDBC."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.spark.lab import QUEUE, SIZE, Row, Spent, measured, new_folder
from benchmarks.spark.reads import files_of
from benchmarks.spark.setting import JDBC, Chart, Setting


def feed(setting: Setting) -> Iterator[Chart]:
    """Measure reading a feed into Parquet: by the source, in batch and as a stream, and by JDBC."""
    tables, messages = setting.tables, setting.jobs
    batch, rival = "spark.read of a feed", "spark.read.jdbc of its messages, 8 partitions"
    memory = "spark.read of a Python source, from memory"
    rows = [
        Row(memory, partial(_read_nothing, setting)),
        Row(batch, partial(_read_feed, setting), ours=True),
        Row("stream of a feed, 5 batches", lambda count: _stream_feed(setting, -(-count // 5)), ours=True),
    ]
    if tables.family != "sqlite":
        rows.append(Row(rival, partial(_read_messages, setting)))
    chart = Chart("feed", f"{messages:,} messages of {SIZE} bytes into Parquet", rows, "messages/s")
    chart.rivals = tuple(row.name for row in rows if not row.ours)
    tables.fill_feed(messages)
    # A read takes nothing away: all turns read the same rows, and the first turn of each is to warm up.
    for row in rows:
        setting.once(row, messages, lambda row: None, partial(files_of, setting, column="seq"))
        row.runs.clear()
    setting.turns(chart, messages, lambda row: None, partial(files_of, setting, column="seq"))
    chart.bar("reading a feed, against a Python source that has the rows in memory", batch, memory, 0.75)
    if tables.family != "sqlite":
        chart.bar("reading a feed, against JDBC's read of the same rows", batch, rival, 0.6)
    yield chart


def _feed_options(setting: Setting, **more: str) -> dict[str, str]:
    options = setting.options(feed=QUEUE, **more)
    return {name: value for name, value in options.items() if name != "queue"}


def _read_feed(setting: Setting, messages: int) -> Spent:
    out = new_folder(setting.folder, "out")
    with measured() as spent:
        setting.spark.read.format("queue_db").options(**_feed_options(setting)).load().write.mode("overwrite").parquet(str(out))
    return spent()


def _read_nothing(setting: Setting, rows: int) -> Spent:
    out = new_folder(setting.folder, "out")
    with measured() as spent:
        setting.spark.read.format("nothing").option("rows", str(rows)).load().write.mode("overwrite").parquet(str(out))
    return spent()


def _stream_feed(setting: Setting, most: int) -> Spent:
    out, checkpoint = new_folder(setting.folder, "out"), new_folder(setting.folder, "checkpoint")
    options = _feed_options(setting, maxMessagesPerTrigger=str(most))
    with measured() as spent:
        source = setting.spark.readStream.format("queue_db").options(**options).load()
        sink = source.writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", str(checkpoint))
        sink.trigger(availableNow=True).start().awaitTermination()
    return spent()


def _read_messages(setting: Setting, messages: int) -> Spent:
    out = new_folder(setting.folder, "out")
    url, ways = setting.jdbc()
    properties = {**ways[JDBC], "fetchsize": "10000"}
    with measured() as spent:
        setting.spark.read.jdbc(
            url,
            setting.tables.messages,
            column="seq",
            lowerBound=1,
            upperBound=messages + 1,
            numPartitions=8,
            properties=properties,
        ).write.mode("overwrite").parquet(str(out))
    return spent()
