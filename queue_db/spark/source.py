"""``format("queue_db")``: the data source that Spark sees."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from queue_db.errors import ConfigurationError
from queue_db.spark.batch_reader import BatchReader, CountReader, counted
from queue_db.spark.feed_reader import FeedBatchReader
from queue_db.spark.feed_stream_reader import FeedStreamReader
from queue_db.spark.masked_errors import SparkTaskError, masked_errors
from queue_db.spark.options import Of, Settings, Use, of_options, parse
from queue_db.spark.queues_stream_reader import QueuesStreamReader
from queue_db.spark.rows import MESSAGES, SCHEMA, STATES, MessageShape, RowShape, StateShape
from queue_db.spark.stream_reader import StreamReader
from queue_db.spark.target import Target, resolve_url, target_of
from queue_db.spark.writer import BatchWriter, StreamWriter


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error in the first step of a query. An error of ``streamReader`` itself would be followed by one of PySpark."""

    def __init__(self, error: SparkTaskError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error


class QueueDataSource(DataSource):
    """Queues and feeds as a source and a sink of DataFrames, in batches and in streams.

    ``spark.dataSource.register(QueueDataSource)`` registers ``format("queue_db")`` with a session;
    :func:`queue_db.spark.register` also works where executors or the Connect server do not have the package. The options are in
    ``docs/spark.md`` and ``docs/spark-streams.md``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # A copy, and not Spark's attribute ``options``: this object may be shown where the password must not be.
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "queue_db"

    def schema(self) -> StructType:
        # Spark calls it in load(), before it says whether this is a stream, and unless the user gives a schema.
        with masked_errors(None):
            settings = parse(self._options, Use.LOAD)
        if of_options(self._options) is Of.FEED:
            return MESSAGES
        if settings["countBy"] is not None:
            return counted(settings["countBy"])
        return SCHEMA if settings["states"] is None else STATES

    def reader(self, schema: StructType) -> DataSourceReader:
        target, settings = self._checked(Use.READ, schema)
        if settings.of_feed:
            return FeedBatchReader(target, settings, schema)
        with masked_errors(target.url):
            return (BatchReader if settings["countBy"] is None else CountReader)(target, settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        target, settings = self._checked(Use.WRITE, None, overwrite=overwrite)
        with masked_errors(target.url):
            return BatchWriter(target, settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            target, settings = self._checked(Use.READ_STREAM, schema)
            if settings.of_feed:
                return FeedStreamReader(target, settings, schema)
            with masked_errors(target.url):
                return (StreamReader if settings["queues"] is None else QueuesStreamReader)(target, settings, schema)
        except SparkTaskError as error:
            return RefusedStream(error)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        target, settings = self._checked(Use.WRITE_STREAM, None, overwrite=overwrite)
        with masked_errors(target.url):
            return StreamWriter(target, settings, schema)

    def _checked(self, use: Use, schema: StructType | None, *, overwrite: bool = False) -> tuple[Target, Settings]:
        """The database and the options, checked without a connection."""
        with masked_errors(None):
            settings = parse(self._options, use)
            target = target_of(
                resolve_url(settings["url"]),
                settings["table"],
                settings["tableSchema"],
                local_infile=bool(settings.values.get("localInfile")),
            )
            if overwrite:
                what, purge = ("feed", "db.feeds.purge(…)") if settings.of_feed else ("queue", "db.queue(…).purge()")
                raise ConfigurationError(
                    f'a {what} cannot be overwritten, only added to: .mode("append") or outputMode("append"); '
                    f"{purge} empties a {what}"
                )
            if schema is not None and settings.values.get("countBy") is None:
                (MessageShape if settings.of_feed else StateShape if use is Use.READ else RowShape)(schema)
            return target, settings
