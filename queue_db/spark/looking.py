"""From a queue into a DataFrame without claiming: what is there, read in ranges of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
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

# Rows in one statement and one record batch: a LIMIT in Spark closes the reader between two.
_ROWS = 5000
# Characters of payloads in one record batch.
_LENGTH = 16 << 20


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
            db.check()
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
        with self.place.open() as db:
            after = partition.low - 1
            size = _ROWS
            while True:
                rows = db.database.run(
                    partial(ranges.jobs, store=db.store, queue=self._queue, after=after, high=partition.high, limit=size),
                    name="read range",
                    write=False,
                )
                if not rows:
                    return
                yield record_batch(rows, self._queue)
                after = rows[-1][0]
                size = fitting(rows)


def fitting(rows: Sequence[Sequence[Any]]) -> int:
    """How many rows like these make a record batch that is not too large."""
    return max(1, min(_ROWS, _LENGTH * len(rows) // (1 + sum(len(row[2]) for row in rows))))


def record_batch(rows: Sequence[Sequence[Any]], queue: str) -> pa.RecordBatch:
    """Rows of :data:`queue_db.store.ranges.COLUMNS` as Spark wants them: exactly these types."""
    ids, kinds, payloads, headers, priorities, attempts, created, versions = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids, pa.int64()),
            pa.repeat(pa.scalar(queue, pa.string()), len(rows)),
            pa.array(kinds, pa.string()),
            pa.array(payloads, pa.string()),
            pa.array(headers, pa.string()),
            pa.array(priorities, pa.int32()),
            pa.array(attempts, pa.int32()),
            pa.array(created, pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array([f"{job_id}:{version}" for job_id, version in zip(ids, versions, strict=True)], pa.string()),
        ],
        schema=_ARROW,
    )
