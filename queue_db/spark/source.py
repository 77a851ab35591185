"""``format("queue_db")``: the data source that Spark sees."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from queue_db.errors import ConfigurationError
from queue_db.spark import batch_reader
from queue_db.spark.connecting import Place, place_of, telling
from queue_db.spark.options import Settings, Use, address, parse
from queue_db.spark.streaming import StreamReader
from queue_db.spark.writing import BatchWriter, StreamWriter


class QueueDataSource(DataSource):
    """Queues as a source and a sink of DataFrames, in batches and in streams.

    ``spark.dataSource.register(QueueDataSource)`` makes ``format("queue_db")`` known to a session;
    :func:`queue_db.spark.register` does so where the executors or the Connect server do not have the package, too. The options are
    in ``docs/spark.md``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Not kept as they are: this object is shown in places that the options must not be shown in.
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "queue_db"

    def schema(self) -> StructType:
        return batch_reader.SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        place, settings = self._open(Use.READ, schema)
        return batch_reader.BatchReader(place, settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        place, settings = self._open(Use.WRITE, None, overwrite=overwrite)
        with telling(place.url):
            return BatchWriter(place, settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        place, settings = self._open(Use.READ_STREAM, schema)
        return StreamReader(place, settings, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        place, settings = self._open(Use.WRITE_STREAM, None, overwrite=overwrite)
        with telling(place.url):
            return StreamWriter(place, settings, schema)

    def _open(self, use: Use, schema: StructType | None, *, overwrite: bool = False) -> tuple[Place, Settings]:
        with telling(None):
            settings = parse(self._given, use)
            place = place_of(
                address(settings["url"]),
                settings["table"],
                settings["tableSchema"],
                local_infile=bool(settings.values.get("localInfile")),
            )
            if overwrite:
                raise ConfigurationError(
                    'a queue cannot be overwritten, only added to: .mode("append") or outputMode("append"); '
                    "db.queue(…).purge() empties a queue"
                )
            if schema is not None:
                batch_reader.Shape(schema)
            return place, settings
