"""Values of a DataFrame as JSON text: structs, maps, arrays, variants, and types that JSON lacks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType
from pyspark.sql.variant_utils import VariantUtils

from queue_db.codecs import JSONCodec
from queue_db.errors import PayloadError

_encode = JSONCodec().encode


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# The standard library reads NaN and infinities unless they are refused.
_decoder = json.JSONDecoder(parse_constant=_refuse)
_read = _decoder.raw_decode


def parsed(text: str) -> Any:
    """The value of a text that is JSON by itself.

    Many texts joined into one array would not prove it: ``1, [2`` and ``3]`` make an array of two elements.

    :raises ValueError: it is not JSON, or is nested too deeply.
    """
    try:
        value, end = _read(text)
        if end == len(text):
            return value
    except ValueError:
        pass  # there may be space before the value
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _decoder.decode(text)


def json_texts(name: str, column: Any, kind: DataType) -> list[str]:
    """The JSON text of each value of a column; ``null`` for nulls. Not for strings.

    :raises PayloadError: naming the field that JSON cannot hold.
    """
    values = _plain(column)
    if isinstance(kind, VariantType):
        return ["null" if value is None else _checked(name, _text_of(value)) for value in values]
    if (convert := _without_variants(kind)) is not None:
        values = [convert(value) for value in values]
    return [_encoded(name, value) for value in values]


def _encoded(column: str, value: Any) -> str:
    try:
        return _encode(_for_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(reason=f"column {_path_to_bad(column, value)!r}: {error}") from None


def _path_to_bad(path: str, value: Any) -> str:
    """The path to the first part of a value that JSON cannot hold."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        try:
            _encode(_for_json(item))
        except (TypeError, ValueError):
            return _path_to_bad(f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]", item)
        except RecursionError:
            return path
    return path


def _text_of(variant: Mapping[str, bytes]) -> str:
    """The JSON text of a VARIANT, which arrives as its two parts."""
    return VariantUtils.to_json(variant["value"], variant["metadata"])


def _checked(column: str, text: str) -> str:
    """The text of a variant, which may have NaN and infinities."""
    try:
        parsed(text)
    except ValueError as error:
        raise PayloadError(reason=f"column {column!r}: a variant that JSON cannot hold ({error})") from None
    return text


def _without_variants(kind: DataType) -> Callable[[Any], Any] | None:
    """A function that replaces the variants within values of this type by plain values; None: the type has none."""
    if isinstance(kind, VariantType):
        return lambda value: None if value is None else json.loads(_text_of(value))
    if isinstance(kind, StructType):
        parts = {field.name: convert for field in kind.fields if (convert := _without_variants(field.dataType)) is not None}
        if not parts:
            return None
        return lambda value: value and {key: parts[key](item) if key in parts else item for key, item in value.items()}
    if isinstance(kind, ArrayType):
        each = _without_variants(kind.elementType)
        return None if each is None else lambda value: value and [each(item) for item in value]
    if isinstance(kind, MapType):
        of_value = _without_variants(kind.valueType)
        return None if of_value is None else lambda value: value and {key: of_value(item) for key, item in value.items()}
    return None


def _for_json(value: Any) -> Any:
    """A value with only types of JSON, as Spark's ``to_json`` writes it; but decimals as strings, since numbers are not exact."""
    if isinstance(value, dict):
        return {key: _for_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    write = _WRITERS.get(type(value))
    return value if write is None else write(value)


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    datetime: lambda value: value.isoformat().replace("+00:00", "Z"),
    date: date.isoformat,
    Decimal: lambda value: format(value, "f"),
    bytes: lambda value: base64.b64encode(value).decode(),
}


def _plain(column: Any) -> list[Any]:
    """The column as Python values; maps as dicts."""
    return list(column.to_pylist(maps_as_pydicts="strict"))
