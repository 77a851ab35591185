"""Rows of a DataFrame as new jobs or messages: Arrow record batches in, columns of their fields out, in chunks.

A value that a job or message cannot have is an error that names its row (found by bisection), the column and the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import accumulate, chain, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.types import MapType, NullType, StringType, StructField, StructType

from queue_db import arguments
from queue_db.codecs import JSONCodec
from queue_db.db import MAX_PAYLOAD
from queue_db.errors import ArgumentError, PayloadError
from queue_db.feeds.tables import CLIENT_LENGTH
from queue_db.spark.columns import COLUMNS, Columns
from queue_db.spark.json_texts import json_texts, parsed
from queue_db.store.schema import KEY_LENGTH, KIND_LENGTH, QUEUE_LENGTH

#: Jobs and characters of one chunk at most; a single job may be longer.
CHUNK_JOBS = 5000
CHUNK_LENGTH = 1 << 20

# Bytes of Arrow data that become Python objects at a time; Spark may hand over 64 MiB.
_SLICE = 8 << 20

_encode = JSONCodec().encode

_Converter = Callable[[Any, StructField], Sequence[Any]]
"""An Arrow column and its field in the schema → the values of a job field."""


class Encoder:
    """Converts record batches into columns of job fields, or of message fields.

    :param schema: of the DataFrame, checked by :func:`queue_db.spark.columns.check_columns`.
    :param payload_format: of string payloads: ``json``, ``text`` or ``raw``.
    :param columns: which the schema was checked against.
    :param queue: of rows whose column ``queue`` is null; None: such a row is refused.
    """

    def __init__(self, schema: StructType, payload_format: str, columns: Columns = COLUMNS, *, queue: str | None = None) -> None:
        self._schema = schema
        self._queue = queue
        self._positions = {field.name.lower(): (position, field) for position, field in enumerate(schema.fields)}
        self._payload_format = payload_format
        converters: Mapping[str, tuple[str, _Converter]] = {
            "payload": ("payload", self._payloads),
            "queue": ("queue", self._queues),
            "kind": ("kind", _kinds),
            "headers": ("headers", _headers),
            "priority": ("priority", _whole_numbers(-(2**31))),
            "max_attempts": ("max_attempts", _whole_numbers(1)),
            "unique_key": ("unique_key", _names(KEY_LENGTH)),
            "unique_for": ("unique_for", _spans),
            "group_key": ("group_key", _names(KEY_LENGTH)),
            "key": ("message_key", _names(KEY_LENGTH)),
            "client": ("client", _names(CLIENT_LENGTH)),
            "delay": ("after", _delays),
            "available_at": ("not_before", _times),
        }
        self._converters = {column: converters[column] for column in columns if column in self._positions}
        #: The column that names a row in errors.
        self._key = next((name for name in ("unique_key", "key") if name in self._converters), None)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that these rows have: of jobs those of :data:`queue_db.spark.staging.chunks.FIELDS`."""
        return tuple(field for field, _ in self._converters.values())

    def chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Sequence[Any]]]:
        """Field → values, for one chunk of jobs at a time.

        :raises ArgumentError, PayloadError: naming the row, the column and the problem.
        """
        before = 0
        for batch in chain.from_iterable(map(_slices, batches)):
            columns: dict[str, Sequence[Any]] = {}
            for column, (field, convert) in self._converters.items():
                position, described = self._positions[column]
                try:
                    columns[field] = convert(batch.column(position), described)
                except (ArgumentError, PayloadError):
                    self._raise_with_row(batch, position, convert, before)
                    raise
            if "unique_for" in columns:
                self._check_keys(columns, before)
            before += batch.num_rows
            yield from _cut(columns)

    def _raise_with_row(self, batch: pa.RecordBatch, position: int, convert: _Converter, before: int) -> None:
        """Find the first bad row of a column and raise its error, with the row's number and unique key.

        :param before: rows of the task before this batch.
        """
        column, field = batch.column(position), self._schema.fields[position]
        low, high = 0, len(column)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _converts(convert, column.slice(low, middle - low), field) else (low, middle)
        row = here(before + low)
        if self._key is not None:
            row += f" ({self._key} {batch.column(self._positions[self._key][0])[low].as_py()!r:.80})"
        try:
            convert(column.slice(low, 1), field)
        except PayloadError as error:
            raise PayloadError(reason=f"{row}: {error.reason}") from error
        except ArgumentError as error:
            raise ArgumentError(f"{row}: {error}") from error

    @staticmethod
    def _check_keys(columns: Mapping[str, Sequence[Any]], before: int) -> None:
        """Refuse a row that keeps a unique key taken and has none."""
        for place, (key, span) in enumerate(zip(columns["unique_key"], columns["unique_for"], strict=True)):
            if span is not None and key is None:
                problem = " is the time for which a unique key stays taken, and unique_key is null: give both or neither"
                raise ArgumentError(f"{here(before + place)}: {ArgumentError(argument='unique_for', problem=problem)}")

    def _queues(self, column: Any, field: StructField) -> Sequence[str]:
        if self._queue is not None:
            column = column.cast(pa.string()).fill_null(self._queue)
        elif column.null_count:
            raise ArgumentError('queue is null: give the row a queue, or set option("queue", …) for such rows')
        for queue in column.unique().to_pylist():
            arguments.name("queue", queue, QUEUE_LENGTH)
        return list(column.to_pylist())

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
                _check_storable(texts)
        else:
            texts = json_texts("payload", column, field.dataType)
        _check_sizes(texts)
        return texts


def here(position: int) -> str:
    """A row of this task, in words."""
    context = TaskContext.get()
    return f"row {position + 1}" + ("" if context is None else f" of partition {context.partitionId()}")


def _converts(convert: _Converter, column: Any, field: StructField) -> bool:
    """Whether the column has no bad value."""
    try:
        convert(column, field)
    except (ArgumentError, PayloadError):
        return False
    return True


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch with about the bytes of a few chunks: as Python objects they take several times as much."""
    rows = max(1, batch.num_rows * _SLICE // max(_SLICE, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _cut(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Sequence[Any]]]:
    """``columns`` in chunks of at most :data:`CHUNK_JOBS` jobs and :data:`CHUNK_LENGTH` characters of payload."""
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
    for text in texts:
        try:
            parsed(text)
        except ValueError as error:
            raise PayloadError(
                reason=f"column 'payload' has a string that is not JSON ({error}): make it with to_json(…), or set "
                'option("payloadFormat", "text") to store texts, "raw" for a codec of your own',
            ) from None


def _check_storable(texts: Sequence[str]) -> None:
    if any("\0" in text for text in texts):
        raise PayloadError(reason="column 'payload' has a NUL character, which PostgreSQL cannot store")


def _check_sizes(texts: Sequence[str]) -> None:
    # A character has at most four bytes.
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


def _names(longest: int) -> _Converter:
    def convert(column: Any, field: StructField) -> Sequence[str | None]:
        names = list(column.to_pylist())
        for name in names:
            if name is not None:
                arguments.name(field.name.lower(), name, longest)
        return names

    return convert


def _headers(column: Any, field: StructField) -> Sequence[str | None]:
    if isinstance(field.dataType, StringType):
        texts = list(column.to_pylist())
    else:
        encoded = json_texts("headers", column, field.dataType)
        texts = [text if there else None for text, there in zip(encoded, column.is_valid().to_pylist(), strict=True)]
        if isinstance(field.dataType, StructType | MapType):
            return texts
    for text in texts:
        if text is not None and not _is_object(text):
            raise ArgumentError(f"column 'headers' has {text!r:.80}, which is not a JSON object")
    return texts


def _is_object(text: str) -> bool:
    try:
        return isinstance(parsed(text), dict)
    except ValueError:
        return False


def _whole_numbers(lowest: int) -> _Converter:
    def convert(column: Any, field: StructField) -> Sequence[int | None]:
        if isinstance(field.dataType, NullType):
            return [None] * len(column)
        for value in pc.min_max(column).as_py().values():
            if value is not None:
                arguments.whole(field.name, value, lowest)
        return list(column.to_pylist())

    return convert


def _delays(column: Any, field: StructField) -> Sequence[int | None]:
    return [None if value is None else arguments.seconds(field.name, _seconds(value)) for value in column.to_pylist()]


def _spans(column: Any, field: StructField) -> Sequence[int | None]:
    return [None if value is None else arguments.seconds(field.name, _seconds(value), zero=False) for value in column.to_pylist()]


def _seconds(value: Any) -> float | timedelta:
    return float(value) if isinstance(value, Decimal | int) else value


def _times(column: Any, field: StructField) -> Sequence[int | None]:
    if isinstance(field.dataType, NullType):
        return [None] * len(column)
    # Timestamps are microseconds since 1970, UTC, in whatever time zone the session shows them.
    return list(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist())
