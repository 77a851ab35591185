"""A Python data source without a database: it measures Spark's own share of any Python source or sink."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from queue_db.spark.rows import MESSAGES, MOST_ROWS

# Partitions of a read, as a feed's.
_PARTITIONS = 8


class Nothing(DataSource):
    """``format("nothing")``: discards what is written; a read has as many messages as its option ``rows`` says, from memory."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> StructType:
        return MESSAGES

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()


class _Reader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        borders = [self._rows * part // _PARTITIONS for part in range(_PARTITIONS + 1)]
        return [InputPartition(pair) for pair in pairwise(borders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        low, high = partition.value
        arrow = to_arrow_schema(MESSAGES, timezone="UTC")
        for start in range(low, high, MOST_ROWS):
            numbers = pa.array(range(start, min(high, start + MOST_ROWS)), pa.int64())
            texts = numbers.cast(pa.string())
            same = {"feed": "bench", "kind": "default", "payload": "x" * 100}
            made = {"seq": numbers, "position": texts, "published_at": numbers.cast(pa.timestamp("us", "UTC"))}
            columns = [
                made[name] if name in made else pa.repeat(pa.scalar(same.get(name), pa.string()), len(numbers))
                for name in arrow.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass
