"""Rows of a DataFrame as new jobs: which columns, of which types, and what becomes of their values."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import accumulate, chain, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from queue_db import arguments
from queue_db.codecs import JSONCodec
from queue_db.db import MAX_PAYLOAD
from queue_db.errors import ArgumentError, ConfigurationError, PayloadError
from queue_db.spark.json_texts import texts_of
from queue_db.store.schema import KEY_LENGTH, KIND_LENGTH

#: Most jobs and characters of one chunk; a single job may be longer.
CHUNK_JOBS = 5000
CHUNK_LENGTH = 1 << 20

# Bytes that are turned into Python objects at a time, of the 64 MiB that Spark may hand over.
_SLICE = 8 << 20

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_WHOLE, FloatType, DoubleType, DecimalType)

_PLAIN = (StringType, BooleanType, VariantType, *_NUMBERS, TimestampType, DateType, NullType)

#: Column → the types that it may have, in words and as classes.
COLUMNS: Mapping[str, tuple[str, tuple[type[DataType], ...]]] = {
    "payload": (
        "a string, struct, map, array, variant, number or boolean",
        (StringType, StructType, MapType, ArrayType, VariantType, BooleanType, *_NUMBERS),
    ),
    "kind": ("a string", (StringType,)),
    "priority": ("a whole number", _WHOLE),
    "delay": ("a number of seconds or a day-time interval", (*_NUMBERS, DayTimeIntervalType)),
    "available_at": ("a timestamp", (TimestampType,)),
    "unique_key": ("a string", (StringType,)),
    "headers": ("a struct, a map with string keys, a variant, or JSON text", (StructType, MapType, VariantType, StringType)),
    "max_attempts": ("a whole number", _WHOLE),
}

_NO_PAYLOAD = "the column 'payload' is missing: to_json(struct(…)) or struct(…) AS payload makes it of other columns"

_encode = JSONCodec().encode


def check_columns(schema: StructType) -> None:
    """Refuse columns that are unknown, missing, or of a type that cannot be taken.

    :raises ConfigurationError: naming the column.
    """
    seen: set[str] = set()
    for field in schema.fields:
        name = field.name.lower()
        if name not in COLUMNS:
            if "payload" not in {other.name.lower() for other in schema.fields}:
                raise ConfigurationError(f"{_NO_PAYLOAD}; column {field.name!r} is none that a job has")
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else "put it into the payload: struct(…) AS payload;"
            raise ConfigurationError(f"unknown column {field.name!r}; {hint} known: {', '.join(COLUMNS)}")
        if name in seen:
            raise ConfigurationError(f"column {name!r} is there twice")
        seen.add(name)
        words, types = COLUMNS[name]
        if not isinstance(field.dataType, (*types, NullType)):
            raise ConfigurationError(f"column {field.name!r} is {field.dataType.simpleString()}; it must be {words}")
        if name in ("payload", "headers"):
            _check_nested(field.name, field.dataType)
    if "payload" not in seen:
        raise ConfigurationError(_NO_PAYLOAD)
    if {"delay", "available_at"} <= seen:
        raise ConfigurationError("there are both 'delay' and 'available_at': a job is due at one time")


def _check_nested(path: str, kind: DataType) -> None:
    """Refuse what has no form in JSON, wherever it stands."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_nested(f"{path}.{field.name}", field.dataType)
    elif isinstance(kind, ArrayType):
        _check_nested(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise ConfigurationError(
                f"column {path!r} has keys of type {kind.keyType.simpleString()}; JSON has strings for keys: cast them"
            )
        _check_nested(f"{path}[]", kind.valueType)
    elif not isinstance(kind, _PLAIN) and kind.typeName() not in ("binary", "timestamp_ntz"):
        raise ConfigurationError(f"column {path!r} is {kind.simpleString()}, which has no form in JSON: cast it")


class Encoder:
    """Turns record batches into the columns of new jobs.

    :param schema: of the DataFrame, checked by :func:`check_columns`.
    :param payload_format: what a string payload is: ``json``, ``text`` or ``raw``.
    """

    def __init__(self, schema: StructType, payload_format: str) -> None:
        self._schema = schema
        self._places = {field.name.lower(): (place, field) for place, field in enumerate(schema.fields)}
        self._payload_format = payload_format
        makers: Mapping[str, tuple[str, Callable[[Any, StructField], Sequence[Any]]]] = {
            "payload": ("payload", self._payloads),
            "kind": ("kind", _kinds),
            "headers": ("headers", _headers),
            "priority": ("priority", _wholes(-(2**31))),
            "max_attempts": ("max_attempts", _wholes(1)),
            "unique_key": ("unique_key", _keys),
            "delay": ("after", _delays),
            "available_at": ("not_before", _moments),
        }
        self._makers = {column: makers[column] for column in COLUMNS if column in self._places}

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a job that these rows give, of :data:`queue_db.dialects.chunks.FIELDS`."""
        return tuple(field for field, _ in self._makers.values())

    def chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Sequence[Any]]]:
        """Field → values, for as many jobs as make a chunk.

        :raises ArgumentError, PayloadError: naming the row, the column and what is wrong.
        """
        before = 0
        for batch in chain.from_iterable(map(_slices, batches)):
            columns: dict[str, Sequence[Any]] = {}
            for column, (field, make) in self._makers.items():
                place, described = self._places[column]
                try:
                    columns[field] = make(batch.column(place), described)
                except (ArgumentError, PayloadError):
                    self._blame(batch, place, make, before)
                    raise
            before += batch.num_rows
            yield from _cut(columns)

    def _blame(self, batch: pa.RecordBatch, place: int, make: Callable[[Any, StructField], object], before: int) -> None:
        """Raise what is wrong with the first bad row of a column again, with the number of the row, and its key if it has one.

        :param before: rows that the task has had before this batch.
        """
        column, field = batch.column(place), self._schema.fields[place]
        low, high = 0, len(column)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _fits(make, column.slice(low, middle - low), field) else (low, middle)
        context = TaskContext.get()
        where = f"row {before + low + 1}" + ("" if context is None else f" of partition {context.partitionId()}")
        if "unique_key" in self._places:
            where += f" (unique_key {batch.column(self._places['unique_key'][0])[low].as_py()!r:.80})"
        try:
            make(column.slice(low, 1), field)
        except PayloadError as error:
            raise PayloadError(reason=f"{where}: {error.reason}") from error
        except ArgumentError as error:
            raise ArgumentError(f"{where}: {error}") from error

    def _payloads(self, column: Any, field: StructField) -> Sequence[str]:
        if isinstance(field.dataType, (StringType, NullType)):
            texts: list[str] = (
                column.fill_null("null").to_pylist() if isinstance(field.dataType, StringType) else ["null"] * len(column)
            )
            if self._payload_format == "json":
                _check_json(texts)
            elif self._payload_format == "text":
                texts = [_encode(text) for text in column.to_pylist()]
        else:
            texts = texts_of("payload", column, field.dataType)
        _check_sizes(texts)
        return texts


def _fits(make: Callable[[Any, StructField], object], column: Any, field: StructField) -> bool:
    try:
        make(column, field)
    except (ArgumentError, PayloadError):
        return False
    return True


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of about as many bytes as a few chunks have: as Python objects they take several times as much."""
    rows = max(1, batch.num_rows * _SLICE // max(_SLICE, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _cut(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Sequence[Any]]]:
    """Pieces of at most so many jobs and characters."""
    lengths = [*map(len, columns["payload"])]
    start = 0
    while start < len(lengths):
        end = min(start + CHUNK_JOBS, len(lengths))
        if sum(lengths[start:end]) > CHUNK_LENGTH:
            sums = accumulate(lengths[start:end])
            end = start + max(1, sum(1 for _ in takewhile(CHUNK_LENGTH.__ge__, sums)))
        yield {name: values[start:end] for name, values in columns.items()}
        start = end


def _check_json(texts: Sequence[str]) -> None:
    """Refuse what no worker could read. All at once is several times as fast as one after the other."""
    for start in range(0, len(texts), CHUNK_JOBS):
        some = texts[start : start + CHUNK_JOBS]
        try:
            if len(json.loads(f"[{','.join(some)}]")) == len(some):
                continue
        except (ValueError, RecursionError):
            pass
        for text in some:
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                raise PayloadError(
                    reason=f"column 'payload' has a string that is no JSON ({error}): make it with to_json(…), or say "
                    'option("payloadFormat", "text") to store texts, "raw" for a codec of your own',
                ) from None


def _check_sizes(texts: Sequence[str]) -> None:
    if max(map(len, texts), default=0) * 4 <= MAX_PAYLOAD:
        return
    for text in texts:
        if len(text) * 4 > MAX_PAYLOAD and len(text.encode()) > MAX_PAYLOAD:
            raise PayloadError(reason=f"column 'payload' has {len(text.encode()):,} bytes; {MAX_PAYLOAD:,} is the limit")


def _kinds(column: Any, field: StructField) -> Sequence[str | None]:
    for kind in column.unique().to_pylist():
        if kind is not None:
            arguments.name("kind", kind, KIND_LENGTH)
    return list(column.to_pylist())


def _keys(column: Any, field: StructField) -> Sequence[str | None]:
    keys = list(column.to_pylist())
    for key in keys:
        if key is not None:
            arguments.name("unique_key", key, KEY_LENGTH)
    return keys


def _headers(column: Any, field: StructField) -> Sequence[str | None]:
    if isinstance(field.dataType, StringType):
        texts = list(column.to_pylist())
    else:
        made = texts_of("headers", column, field.dataType)
        texts = [text if there else None for text, there in zip(made, column.is_valid().to_pylist(), strict=True)]
        if isinstance(field.dataType, StructType | MapType):
            return texts
    for text in texts:
        if text is not None and not _is_object(text):
            raise ArgumentError(f"column 'headers' has {text!r:.80}, which is no JSON object")
    return texts


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _wholes(lowest: int) -> Callable[[Any, StructField], Sequence[int | None]]:
    def make(column: Any, field: StructField) -> Sequence[int | None]:
        if isinstance(field.dataType, NullType):
            return [None] * len(column)
        ends = pc.min_max(column).as_py()
        for value in ends.values():
            if value is not None:
                arguments.whole(field.name, value, lowest)
        return list(column.to_pylist())

    return make


def _delays(column: Any, field: StructField) -> Sequence[int | None]:
    return [None if value is None else arguments.seconds(field.name, _seconds(value)) for value in column.to_pylist()]


def _seconds(value: Any) -> float | timedelta:
    return float(value) if isinstance(value, Decimal | int) else value


def _moments(column: Any, field: StructField) -> Sequence[int | None]:
    if isinstance(field.dataType, NullType):
        return [None] * len(column)
    # Whatever zone the session shows them in, timestamps are microseconds since 1970, UTC.
    return list(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist())
