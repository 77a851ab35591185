"""Jobs and messages as rows of a DataFrame: which columns, and how database rows become Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType, VariantType
from pyspark.sql.variant_utils import VariantUtils

from queue_db.errors import ConfigurationError
from queue_db.spark.ranges import store as ranges

#: The columns of a DataFrame of jobs.
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

#: The same with the option ``states``. A completed job has no headers, priority and fence, and may have no payload.
STATES = StructType(
    [
        *(StructField(field.name, field.dataType, field.name not in ("id", "queue", "kind")) for field in SCHEMA),
        StructField("state", StringType(), nullable=False),
        StructField("ended_at", TimestampType()),
        StructField("last_error", StringType()),
        StructField("result", StringType()),
    ]
)

#: Columns of jobs that are read only where a schema names them, such as that of a table into which SQL inserts.
ASKED = StructType(
    [StructField("unique_key", StringType()), StructField("group_key", StringType()), StructField("max_attempts", IntegerType())]
)

#: The columns of a DataFrame of messages.
MESSAGES = StructType(
    [
        StructField("position", StringType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("feed", StringType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("payload", StringType(), nullable=False),
        StructField("headers", StringType()),
        StructField("key", StringType()),
        StructField("client", StringType()),
        StructField("published_at", TimestampType(), nullable=False),
    ]
)

#: Rows in one statement and one record batch; a LIMIT in Spark closes the reader between two batches. The first batch is small,
#: since the size of the payloads is not known yet, and each next one may have _GROWTH times as many rows.
FIRST_ROWS = 8
MOST_ROWS = 5000
_GROWTH = 16

# Characters of payloads in one record batch.
_LENGTH = 8 << 20

_JSON = ("payload", "headers", "result")

_VARIANTS = "payload and headers"

_TYPES = {
    "id": pa.int64(),
    "kind": pa.string(),
    "payload": pa.string(),
    "headers": pa.string(),
    "priority": pa.int32(),
    "attempts": pa.int32(),
    "created_at": pa.int64(),
    "version": pa.int64(),
    "seq": pa.int64(),
    "message_key": pa.string(),
    "client": pa.string(),
    "state": pa.string(),
    "ended_at": pa.int64(),
    "last_error": pa.string(),
    "result": pa.string(),
    "unique_key": pa.string(),
    "group_key": pa.string(),
    "max_attempts": pa.int32(),
}

_Found = Mapping[str, Any]
"""Columns of a table that were read → their values."""


@dataclass(frozen=True)
class Layout:
    """How the columns of a DataFrame come from those of a table.

    :param owner: what has these columns, for errors.
    :param number: the column by which rows are read.
    :param sources: column of the DataFrame → columns of the table that it is computed from.
    :param computed: columns that are more than a column of the table: what was read, and what is the same in all rows → values.
    :param asked: columns that a schema may name besides.
    """

    owner: str
    schema: StructType
    number: str
    sources: Mapping[str, tuple[str, ...]]
    computed: Mapping[str, Callable[[_Found, Mapping[str, str]], Any]]
    asked: StructType = field(default_factory=StructType)


def _same(name: str, number: str) -> Callable[[_Found, Mapping[str, str]], Any]:
    """A column with the same value in all rows."""
    return lambda found, same: pa.repeat(pa.scalar(same[name], pa.string()), len(found[number]))


def _time(found: _Found, same: Mapping[str, str]) -> Any:
    return found["created_at"].cast(pa.timestamp("us", "UTC"))


def _ended(found: _Found, same: Mapping[str, str]) -> Any:
    return found["ended_at"].cast(pa.timestamp("us", "UTC"))


def _fence(found: _Found, same: Mapping[str, str]) -> Any:
    return pc.binary_join_element_wise(found["id"].cast(pa.string()), found["version"].cast(pa.string()), ":")


def _position(found: _Found, same: Mapping[str, str]) -> Any:
    return pc.binary_join_element_wise(pa.scalar(same["epoch"]), found["seq"].cast(pa.string()), ".")


#: Jobs of a queue; the same in all rows is ``queue``.
OF_JOBS = Layout(
    "a queue",
    SCHEMA,
    "id",
    {
        "id": ("id",),
        "queue": (),
        "kind": ("kind",),
        "payload": ("payload",),
        "headers": ("headers",),
        "priority": ("priority",),
        "attempts": ("attempts",),
        "enqueued_at": ("created_at",),
        "fence": ("id", "version"),
    },
    {"queue": _same("queue", "id"), "enqueued_at": _time, "fence": _fence},
)

#: Jobs of a queue in any state.
OF_STATES = Layout(
    "a queue",
    STATES,
    "id",
    {
        **OF_JOBS.sources,
        "state": ("state",),
        "ended_at": ("ended_at",),
        "last_error": ("last_error",),
        "result": ("result",),
        **{name: (name,) for name in ASKED.names},
    },
    {**OF_JOBS.computed, "ended_at": _ended},
    ASKED,
)

#: Messages of a feed; the same in all rows are ``feed``, and ``epoch``, the beginning of their positions.
OF_MESSAGES = Layout(
    "a feed",
    MESSAGES,
    "seq",
    {
        "position": ("seq",),
        "seq": ("seq",),
        "feed": (),
        "kind": ("kind",),
        "payload": ("payload",),
        "headers": ("headers",),
        "key": ("message_key",),
        "client": ("client",),
        "published_at": ("created_at",),
    },
    {
        "position": _position,
        "feed": _same("feed", "seq"),
        "key": lambda found, same: found["message_key"],
        "published_at": _time,
    },
)

_VARIANT = to_arrow_schema(StructType([StructField("v", VariantType())])).field("v").type


class RowShape:
    """The columns of jobs that are read: all, or some of them in any order; payload and headers also as VARIANT.

    :raises ConfigurationError: for an unknown column, or one of another type.
    """

    #: Of the class, and not of an object: that one is pickled into tasks, and the layout's functions are not.
    layout: ClassVar[Layout] = OF_JOBS

    def __init__(self, schema: StructType) -> None:
        layout = self.layout
        readable = StructType([*layout.schema.fields, *layout.asked.fields])
        known = {column.name: column.dataType for column in readable.fields}
        for column in schema.fields:
            if column.name not in known or not _has_type(column, known[column.name]):
                raise ConfigurationError(
                    f"{layout.owner} has no column {column.name!r} of type {column.dataType.simpleString()} to be read; leave "
                    f".schema(…) out, or give some of its columns: {readable.simpleString()}; {_VARIANTS} may be variant"
                )
        self._fields = [(column.name, isinstance(column.dataType, VariantType)) for column in schema.fields]
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        #: Columns of the table to select, the number first.
        self.stored = tuple(dict.fromkeys([layout.number, *(name for shown, _ in self._fields for name in layout.sources[shown])]))

    def batch(self, rows: ranges.Rows, same: Mapping[str, str], stored: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Any]:
        """Rows as a record batch with exactly these columns and types, and their numbers.

        :param rows: tuples, or CSV.
        :param same: what the layout says is the same in all rows.
        :param stored: the columns that the rows have; default :attr:`stored`.
        """
        names = self.stored if stored is None else tuple(stored)
        values = _from_csv(rows, names) if isinstance(rows, bytes) else _from_tuples(rows, names)
        found = dict(zip(names, values, strict=True))
        numbers = found[self.layout.number]
        arrays = []
        for name, variant in self._fields:
            compute = self.layout.computed.get(name)
            values = found[name] if compute is None else compute(found, same)
            arrays.append(_variants(values) if variant else values)
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(numbers), pa.struct([]))), numbers
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow), numbers


class StateShape(RowShape):
    """The columns of jobs in any state."""

    layout = OF_STATES


class MessageShape(RowShape):
    """The columns of messages that are read."""

    layout = OF_MESSAGES


def fitting(rows: ranges.Rows, count: int) -> int:
    """How many rows like these ``count`` fit into one record batch."""
    length = len(rows) if isinstance(rows, bytes) else sum(len(value) for row in rows for value in row if isinstance(value, str))
    return max(1, min(MOST_ROWS, count * _GROWTH, _LENGTH * count // (1 + length)))


def _has_type(field: StructField, kind: DataType) -> bool:
    return field.dataType == kind or (field.name in _JSON and isinstance(field.dataType, VariantType))


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
