"""``spark.read``: the live jobs of a queue, read in ranges of ids. Nothing is claimed or changed.

The driver cuts the queue's ids into ranges; each task reads its range in short statements. Where ids of other queues lie between,
the ids of this queue are looked up first, and then its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from queue_db import QueueDB
from queue_db.spark.masked_errors import masked_errors, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.ranges import store as ranges
from queue_db.spark.rows import FIRST_ROWS, MOST_ROWS, RowShape, fitting
from queue_db.spark.target import Target

# Jobs below this number are not worth a partition of their own.
_WORTH = MOST_ROWS // 5


class BatchPart(InputPartition):
    """A range of ids, both ends included."""

    def __init__(self, part: ranges.Range) -> None:
        super().__init__(tuple(part))
        self.part = part


class BatchReader(DataSourceReader):
    """``spark.read``."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._queue: str = settings["queue"]
        self._partitions: int = settings["partitions"]
        self._shape = RowShape(schema)
        self._query: dict[str, Any] = {"columns": self._shape.stored, "conditions": settings["filter"], "csv": True}

    @masks_errors
    def partitions(self) -> list[InputPartition]:
        with self.target.open() as db:
            found = db.core.read("ranges.queue_ranges", ranges.queue_ranges, self._queue, parts=self._partitions, worth=_WORTH)
        return [BatchPart(part) for part in found or [ranges.Range(0, -1, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with masked_errors(self.target.url):
            yield from self._read(partition)

    def _read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        part: ranges.Range = partition.part
        if part.jobs:
            with self.target.open() as db:
                yield from self._read_range(db, part) if part.dense else self._read_ids(db, part)

    def _read_range(self, db: QueueDB, part: ranges.Range) -> Iterator[pa.RecordBatch]:
        """All rows of the range."""
        after, size = part.low - 1, FIRST_ROWS
        while True:
            rows = db.core.read("ranges.jobs", ranges.jobs, self._queue, after=after, high=part.high, limit=size, **self._query)
            if not rows:
                return
            batch, ids = self._shape.batch(rows, {"queue": self._queue})
            yield batch
            after = pc.max(ids).as_py()
            size = fitting(rows, batch.num_rows)

    def _read_ids(self, db: QueueDB, part: ranges.Range) -> Iterator[pa.RecordBatch]:
        """The ids of the queue in the range first, then the rows of these."""
        wanted = db.core.read("ranges.ids", ranges.ids, self._queue, part)
        start, size = 0, FIRST_ROWS
        while start < len(wanted):
            some = wanted[start : start + size]
            rows = db.core.read("ranges.jobs_of", ranges.jobs_of, self._queue, some, **self._query)
            start += len(some)
            if rows:
                batch, _ = self._shape.batch(rows, {"queue": self._queue})
                yield batch
                size = fitting(rows, batch.num_rows)
