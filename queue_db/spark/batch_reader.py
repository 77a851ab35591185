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
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType, VariantType
from pyspark.sql.variant_utils import VariantUtils

from queue_db.errors import ConfigurationError
from queue_db.spark.masked_errors import masked_errors, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.target import Target
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

# Rows in one statement and one record batch: a LIMIT in Spark closes the reader between two. The first one is small, since nobody
# knows yet how large its payloads are, and each may have so many times the rows of the one before.
FIRST_ROWS = 8
_ROWS = 5000
_GROWTH = 16
# Characters of payloads in one record batch.
_LENGTH = 8 << 20
# Jobs below this many are not worth a partition of their own.
_WORTH = _ROWS // 5

# Column of a DataFrame → columns of the jobs table that it is made of; the queue is known.
_MADE_OF = {
    "id": ("id",),
    "queue": (),
    "kind": ("kind",),
    "payload": ("payload",),
    "headers": ("headers",),
    "priority": ("priority",),
    "attempts": ("attempts",),
    "enqueued_at": ("created_at",),
    "fence": ("id", "version"),
}

_JSON = ("payload", "headers")


class Shape:
    """The columns that are read: all of :data:`SCHEMA`, or some of them in any order; payload and headers also as VARIANT.

    :raises ConfigurationError: for a column that a queue does not have, or one of another type.
    """

    def __init__(self, schema: StructType) -> None:
        known = {field.name: field.dataType for field in SCHEMA.fields}
        for field in schema.fields:
            if field.name not in known or not _is_kind(field, known[field.name]):
                raise ConfigurationError(
                    f"a queue has no column {field.name!r} of type {field.dataType.simpleString()}; leave .schema(…) out, or give "
                    f"some of its columns: {SCHEMA.simpleString()}; {' and '.join(_JSON)} may be variant"
                )
        self._fields = [(field.name, isinstance(field.dataType, VariantType)) for field in schema.fields]
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        #: Columns of the jobs table, the id first.
        self.stored = tuple(dict.fromkeys(["id", *(name for field, _ in self._fields for name in _MADE_OF[field])]))

    def batch(self, rows: ranges.Rows, queue: str, stored: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Any]:
        """Rows as Spark wants them, exactly these types, and their ids.

        :param stored: the columns that the rows have; default :attr:`stored`.
        """
        names = self.stored if stored is None else tuple(stored)
        values = _parsed(rows, names) if isinstance(rows, bytes) else _converted(rows, names)
        found = dict(zip(names, values, strict=True))
        arrays = [_column(name, found, queue, variant=variant) for name, variant in self._fields]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(found["id"]), pa.struct([]))), found["id"]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow), found["id"]


def _is_kind(field: StructField, kind: DataType) -> bool:
    return field.dataType == kind or (field.name in _JSON and isinstance(field.dataType, VariantType))


def _column(name: str, found: dict[str, Any], queue: str, *, variant: bool) -> Any:
    if name == "queue":
        return pa.repeat(pa.scalar(queue, pa.string()), len(found["id"]))
    if name == "enqueued_at":
        return found["created_at"].cast(pa.timestamp("us", "UTC"))
    if name == "fence":
        return pc.binary_join_element_wise(found["id"].cast(pa.string()), found["version"].cast(pa.string()), ":")
    return _variants(found[name]) if variant else found[name]


def _variants(texts: Any) -> Any:
    """JSON texts as Spark's VARIANT."""
    made = []
    for text in texts.to_pylist():
        value, metadata = (None, None) if text is None else VariantUtils.parse_json(text)
        made.append(None if value is None else {"value": value, "metadata": metadata})
    return pa.array(made, _VARIANT)


_VARIANT = to_arrow_schema(StructType([StructField("v", VariantType())])).field("v").type


class Part(InputPartition):
    """A range of ids, both ends included."""

    def __init__(self, part: ranges.Range) -> None:
        super().__init__(tuple(part))
        self.part = part


class BatchReader(DataSourceReader):
    """``spark.read``: looks, never claims."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._queue: str = settings["queue"]
        self._partitions: int = settings["partitions"]
        self._shape = Shape(schema)
        self._conditions: list[ranges.Condition] = settings["filter"]

    @masks_errors
    def partitions(self) -> list[InputPartition]:
        with self.target.open() as db:
            db.ready()
            work = partial(ranges.cut, store=db.store, queue=self._queue, parts=self._partitions, worth=_WORTH)
            found = db.database.run(work, name="id ranges", write=False)
        return [Part(part) for part in found or [ranges.Range(0, -1, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with masked_errors(self.target.url):
            yield from self._read(partition)

    def _read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        part: ranges.Range = partition.part
        if not part.jobs:
            return
        asked: dict[str, Any] = {"queue": self._queue, "columns": self._shape.stored, "conditions": self._conditions}
        with self.target.open(csv=True) as db:
            asked["store"] = db.store
            size = FIRST_ROWS
            if part.dense:
                after = part.low - 1
                while True:
                    work = partial(ranges.jobs, after=after, high=part.high, limit=size, **asked)
                    rows = db.database.run(work, name="read range", write=False)
                    if not rows:
                        return
                    batch, ids = self._shape.batch(rows, self._queue)
                    yield batch
                    after = pc.max(ids).as_py()
                    size = fitting(rows, batch.num_rows)
            look = partial(ranges.ids, store=db.store, queue=self._queue, part=part)
            wanted = db.database.run(look, name="read ids", write=False)
            start = 0
            while start < len(wanted):
                some = wanted[start : start + size]
                rows = db.database.run(partial(ranges.jobs_of, some=some, **asked), name="read jobs", write=False)
                start += len(some)
                if rows:
                    batch, _ = self._shape.batch(rows, self._queue)
                    yield batch
                    size = fitting(rows, batch.num_rows)


def fitting(rows: ranges.Rows, count: int) -> int:
    """How many rows like these ``count`` make a record batch that is not too large."""
    length = len(rows) if isinstance(rows, bytes) else sum(len(value) for row in rows for value in row if isinstance(value, str))
    return max(1, min(_ROWS, count * _GROWTH, _LENGTH * count // (1 + length)))


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


def _converted(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> list[Any]:
    return [pa.array(values, _TYPES[name]) for name, values in zip(names, zip(*rows, strict=True), strict=True)]


def _parsed(rows: bytes, names: Sequence[str]) -> list[Any]:
    table = csv.read_csv(
        pa.BufferReader(rows),
        # One block, since a row must fit into one.
        csv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(rows) + 1),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types={name: _TYPES[name] for name in names},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]
