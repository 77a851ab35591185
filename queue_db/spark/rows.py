"""Jobs as rows of a DataFrame: which columns, and how database rows become Arrow record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType, VariantType
from pyspark.sql.variant_utils import VariantUtils

from queue_db.errors import ConfigurationError
from queue_db.store import ranges

#: The columns of a DataFrame that is read.
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

#: Rows in one statement and one record batch; a LIMIT in Spark closes the reader between two batches. The first batch is small,
#: since the size of the payloads is not known yet, and each next one may have _GROWTH times as many rows.
FIRST_ROWS = 8
MOST_ROWS = 5000
_GROWTH = 16

# Characters of payloads in one record batch.
_LENGTH = 8 << 20

# Column of a DataFrame → columns of the jobs table that it is computed from. The queue is known.
_SOURCES = {
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

_VARIANT = to_arrow_schema(StructType([StructField("v", VariantType())])).field("v").type


class RowShape:
    """The columns that are read: all of :data:`SCHEMA`, or some of them in any order; payload and headers also as VARIANT.

    :raises ConfigurationError: for an unknown column, or one of another type.
    """

    def __init__(self, schema: StructType) -> None:
        known = {field.name: field.dataType for field in SCHEMA.fields}
        for field in schema.fields:
            if field.name not in known or not _has_type(field, known[field.name]):
                raise ConfigurationError(
                    f"a queue has no column {field.name!r} of type {field.dataType.simpleString()}; leave .schema(…) out, or give "
                    f"some of its columns: {SCHEMA.simpleString()}; {' and '.join(_JSON)} may be variant"
                )
        self._fields = [(field.name, isinstance(field.dataType, VariantType)) for field in schema.fields]
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        #: Columns of the jobs table to select, the id first.
        self.stored = tuple(dict.fromkeys(["id", *(name for field, _ in self._fields for name in _SOURCES[field])]))

    def batch(self, rows: ranges.Rows, queue: str, stored: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Any]:
        """Rows as a record batch with exactly these columns and types, and their ids.

        :param rows: tuples, or CSV.
        :param stored: the columns that the rows have; default :attr:`stored`.
        """
        names = self.stored if stored is None else tuple(stored)
        values = _from_csv(rows, names) if isinstance(rows, bytes) else _from_tuples(rows, names)
        found = dict(zip(names, values, strict=True))
        arrays = [_column(name, found, queue, variant=variant) for name, variant in self._fields]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(found["id"]), pa.struct([]))), found["id"]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow), found["id"]


def fitting(rows: ranges.Rows, count: int) -> int:
    """How many rows like these ``count`` fit into one record batch."""
    length = len(rows) if isinstance(rows, bytes) else sum(len(value) for row in rows for value in row if isinstance(value, str))
    return max(1, min(MOST_ROWS, count * _GROWTH, _LENGTH * count // (1 + length)))


def _has_type(field: StructField, kind: DataType) -> bool:
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
    parts = []
    for text in texts.to_pylist():
        value, metadata = (None, None) if text is None else VariantUtils.parse_json(text)
        parts.append(None if value is None else {"value": value, "metadata": metadata})
    return pa.array(parts, _VARIANT)


def _from_tuples(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> list[Any]:
    return [pa.array(values, _TYPES[name]) for name, values in zip(names, zip(*rows, strict=True), strict=True)]


def _from_csv(rows: bytes, names: Sequence[str]) -> list[Any]:
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
