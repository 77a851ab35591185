"""From a queue into a DataFrame without claiming: what is there, read in ranges of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from queue_db.spark.connecting import Place, clean, telling
from queue_db.spark.options import Settings
from queue_db.store import ranges

#: What a job is, for Spark.
SCHEMA = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("queue", StringType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("payload", StringType(), nullable=False),
        StructField("headers", StringType()),
        StructField("priority", IntegerType(), nullable=False),
        StructField("attempts", IntegerType(), nullable=False),
        StructField("enqueued_at", TimestampType(), nullable=False),
        StructField("fence", StringType(), nullable=False),
    ]
)

_ARROW = to_arrow_schema(SCHEMA, timezone="UTC")

# Rows in one statement and one record batch: a LIMIT in Spark closes the reader between two. The first one is small, since nobody
# knows yet how large its payloads are, and each may have so many times the rows of the one before.
FIRST_ROWS = 8
_ROWS = 5000
_GROWTH = 16
# Characters of payloads in one record batch.
_LENGTH = 8 << 20


class IdRange(InputPartition):
    """Jobs with ids from … to, both included."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__((low, high))
        self.low, self.high = low, high


class BatchReader(DataSourceReader):
    """``spark.read``: looks, never claims."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self.place = place
        self._queue: str = settings["queue"]
        self._partitions: int = settings["partitions"]

    @clean
    def partitions(self) -> list[InputPartition]:
        with self.place.open() as db:
            db.ready()
            found = db.database.run(partial(ranges.of_queue, store=db.store, queue=self._queue), name="id range", write=False)
        if found is None:
            return [IdRange(0, -1)]
        low, high = found
        step = max(_ROWS // 5, -(-(high - low + 1) // self._partitions))
        return [IdRange(start, min(start + step - 1, high)) for start in range(low, high + 1, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with telling(self.place.url):
            yield from self._read(partition)

    def _read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if partition.low > partition.high:
            return
        with self.place.open(csv=True) as db:
            after = partition.low - 1
            size = FIRST_ROWS
            while True:
                rows = db.database.run(
                    partial(ranges.jobs, store=db.store, queue=self._queue, after=after, high=partition.high, limit=size),
                    name="read range",
                    write=False,
                )
                if not rows:
                    return
                batch = record_batch(rows, self._queue)
                yield batch
                after = pc.max(batch.column(0)).as_py()
                size = fitting(rows, batch.num_rows)


def fitting(rows: ranges.Rows, count: int) -> int:
    """How many rows like these ``count`` make a record batch that is not too large."""
    length = len(rows) if isinstance(rows, bytes) else sum(len(row[2]) for row in rows)
    return max(1, min(_ROWS, count * _GROWTH, _LENGTH * count // (1 + length)))


def record_batch(rows: ranges.Rows, queue: str) -> pa.RecordBatch:
    """Rows of :data:`queue_db.store.ranges.COLUMNS` as Spark wants them: exactly these types."""
    columns = _parsed(rows) if isinstance(rows, bytes) else _converted(rows)
    ids, kinds, payloads, headers, priorities, attempts, created, versions = columns
    fences = pc.binary_join_element_wise(ids.cast(pa.string()), versions.cast(pa.string()), ":")
    queues = pa.repeat(pa.scalar(queue, pa.string()), len(ids))
    made = created.cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([ids, queues, kinds, payloads, headers, priorities, attempts, made, fences], schema=_ARROW)


_TYPES = {
    "id": pa.int64(),
    "kind": pa.string(),
    "payload": pa.string(),
    "headers": pa.string(),
    "priority": pa.int32(),
    "attempts": pa.int32(),
    "created_at": pa.int64(),
    "version": pa.int64(),
}


def _converted(rows: Sequence[Sequence[Any]]) -> list[Any]:
    kinds = [_TYPES[name] for name in ranges.COLUMNS]
    return [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]


def _parsed(rows: bytes) -> list[Any]:
    table = csv.read_csv(
        pa.BufferReader(rows),
        # One block, since a row must fit into one.
        csv.ReadOptions(column_names=list(ranges.COLUMNS), use_threads=False, block_size=len(rows) + 1),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(column_types=_TYPES, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False),
    )
    return [column.combine_chunks() for column in table.columns]
