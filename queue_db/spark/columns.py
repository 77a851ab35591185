"""The columns of a DataFrame that is written: names, types, and what is refused before a task runs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

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
    StructType,
    TimestampType,
    VariantType,
)

from queue_db.errors import ConfigurationError

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_WHOLE, FloatType, DoubleType, DecimalType)

# Types of single values that JSON can hold.
_PLAIN = (StringType, BooleanType, VariantType, *_NUMBERS, TimestampType, DateType, NullType)

_SPAN = ("a number of seconds or a day-time interval", (*_NUMBERS, DayTimeIntervalType))

Columns = Mapping[str, tuple[str, tuple[type[DataType], ...]]]
"""Column → its allowed types, in words and as classes."""

#: The columns of jobs.
COLUMNS: Columns = {
    "payload": (
        "a string, struct, map, array, variant, number or boolean",
        (StringType, StructType, MapType, ArrayType, VariantType, BooleanType, *_NUMBERS),
    ),
    "queue": ("a string", (StringType,)),
    "kind": ("a string", (StringType,)),
    "priority": ("a whole number", _WHOLE),
    "delay": _SPAN,
    "available_at": ("a timestamp", (TimestampType,)),
    "unique_key": ("a string", (StringType,)),
    "unique_for": _SPAN,
    "group_key": ("a string", (StringType,)),
    "headers": ("a struct, a map with string keys, a variant, or JSON text", (StructType, MapType, VariantType, StringType)),
    "max_attempts": ("a whole number", _WHOLE),
}

#: The columns of messages.
MESSAGE_COLUMNS: Columns = {
    "payload": COLUMNS["payload"],
    "kind": COLUMNS["kind"],
    "headers": COLUMNS["headers"],
    "key": ("a string", (StringType,)),
    "client": ("a string", (StringType,)),
}

_NO_PAYLOAD = "the column 'payload' is missing: to_json(struct(…)) or struct(…) AS payload makes it of other columns"


def check_columns(schema: StructType, columns: Columns = COLUMNS) -> None:
    """Refuse columns that are unknown, missing, or of an unsupported type.

    :raises ConfigurationError: naming the column.
    """
    seen: set[str] = set()
    for field in schema.fields:
        name = field.name.lower()
        if name not in columns:
            raise _unknown(field.name, schema, columns)
        if name in seen:
            raise ConfigurationError(f"column {name!r} is there twice")
        seen.add(name)
        words, types = columns[name]
        if not isinstance(field.dataType, (*types, NullType)):
            raise ConfigurationError(f"column {field.name!r} is {field.dataType.simpleString()}; it must be {words}")
        if name in ("payload", "headers"):
            _check_nested(field.name, field.dataType)
    if "payload" not in seen:
        raise ConfigurationError(_NO_PAYLOAD)
    if {"delay", "available_at"} <= seen:
        raise ConfigurationError("there are both 'delay' and 'available_at': a job is due at one time")
    if "unique_for" in seen and "unique_key" not in seen:
        raise ConfigurationError("column 'unique_for' is the time for which a unique key stays taken: add a column 'unique_key'")


def _unknown(column: str, schema: StructType, columns: Columns) -> ConfigurationError:
    if "payload" not in {field.name.lower() for field in schema.fields}:
        return ConfigurationError(
            f"{_NO_PAYLOAD}; column {column!r} is not a column of {'jobs' if columns is COLUMNS else 'messages'}"
        )
    near = difflib.get_close_matches(column.lower(), columns, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "put it into the payload: struct(…) AS payload;"
    return ConfigurationError(f"unknown column {column!r}; {hint} known: {', '.join(columns)}")


def _check_nested(path: str, kind: DataType) -> None:
    """Refuse types that JSON cannot hold, at any depth."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_nested(f"{path}.{field.name}", field.dataType)
    elif isinstance(kind, ArrayType):
        _check_nested(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise ConfigurationError(
                f"column {path!r} has keys of type {kind.keyType.simpleString()}; keys in JSON are strings: cast them"
            )
        _check_nested(f"{path}[]", kind.valueType)
    elif not isinstance(kind, _PLAIN) and kind.typeName() not in ("binary", "timestamp_ntz"):
        raise ConfigurationError(f"column {path!r} is {kind.simpleString()}, which JSON cannot hold: cast it")
