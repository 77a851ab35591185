"""Codecs, which turn payloads into text (JSON by default) and back, and the schemas that payloads of a kind must fit."""

from __future__ import annotations

import dataclasses
import json
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, partial
from operator import methodcaller
from pathlib import PurePath
from types import UnionType
from typing import Any, Literal, NamedTuple, Protocol, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from queue_db import arguments
from queue_db.arguments import shown
from queue_db.errors import ArgumentError, PayloadError, text_of


class Codec(Protocol):
    """Turns payloads into text for the ``payload`` column and back."""

    def encode(self, payload: Any) -> str:
        """Return the text, without NUL characters; raise ``TypeError`` or ``ValueError`` for a payload that cannot be encoded."""

    def decode(self, text: str) -> Any:
        """Return the payload; raise ``ValueError`` for a text that this codec cannot decode."""


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class _Fast(NamedTuple):
    """The functions of msgspec, which are several times faster than those of the standard library."""

    encode: Callable[[Any], bytes]
    #: Encodes several payloads, each followed by a line feed.
    encode_lines: Callable[[Sequence[Any]], bytes]
    decode: Callable[[str], Any]
    #: The exceptions that these functions raise for values that they cannot encode or decode.
    refusals: tuple[type[Exception], ...]


class JSONCodec:
    """Strict JSON: no NaN, no infinity, no lone surrogates. The text is compact, and characters beyond ASCII are not escaped.

    If msgspec is installed (the extra ``fast``), it makes the same texts, payloads and errors in less time.
    """

    def encode(self, payload: Any) -> str:
        fast = _fast()
        if fast is not None and (type(payload) in _SAME or _same_text(payload)):
            try:
                return str(fast.encode(payload), "utf-8")
            except fast.refusals:
                pass  # for example a whole number of more than 64 bits, or a lone surrogate
        text = _encode(payload)
        if not text.isascii():
            text.encode("utf-8")  # refuse a lone surrogate here: the JSON encoder accepts it, and the driver would fail
        return text

    def encode_all(self, payloads: Sequence[Any]) -> list[str]:
        """:meth:`encode` for several payloads. With msgspec, simple payloads are encoded together, which takes less time."""
        fast = _fast()
        if fast is not None and (_SAME.issuperset(map(type, payloads)) or all(map(_same_text, payloads))):
            try:
                # Line feeds separate the texts; none occurs within a JSON text of msgspec.
                return str(fast.encode_lines(payloads), "utf-8").split("\n")[:-1]
            except fast.refusals:
                pass
        return [self.encode(payload) for payload in payloads]

    def decode(self, text: str) -> Any:
        fast = _fast()
        if fast is not None:
            try:
                return fast.decode(text)
            except fast.refusals:
                pass  # the standard library decodes more, such as NaN and lone surrogates, and raises the errors
        try:
            return json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


@cache
def _fast() -> _Fast | None:
    """The functions of msgspec; None if it is not installed. It is imported for the first payload."""
    try:
        import msgspec
    except ImportError:
        return None
    refusals = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
    return _Fast(msgspec.json.encode, msgspec.json.Encoder().encode_lines, msgspec.json.decode, refusals)


# For values of exactly these types msgspec writes the same text as the standard library. It writes floats (1e16, 1e+16) and
# subclasses differently, and it accepts dates and bytes, which the standard library refuses.
_SAME = frozenset((str, int, bool, type(None)))
_TEXT = frozenset((str,))

# The most levels of lists and objects that are checked. The limit also ends the check of a payload that contains itself.
_DEEPEST = 16


def _same_text(payload: Any, deep: int = 0) -> bool:
    """Whether msgspec writes ``payload`` as the standard library does."""
    kind = type(payload)
    inside: Iterable[Any] = payload
    if kind is dict:
        if not _TEXT.issuperset(map(type, payload)):
            return False
        inside = payload.values()
    elif kind is not list and kind is not tuple:
        return kind in _SAME
    for item in inside:
        if type(item) in _SAME:
            continue
        if deep == _DEEPEST or not _same_text(item, deep + 1):
            return False
    return True


def checked(codec: object) -> Codec:
    """Return ``codec``, if it has the methods of a codec.

    :raises ArgumentError: ``codec`` lacks ``encode`` or ``decode``, or is a class.
    """
    if isinstance(codec, type):
        raise ArgumentError(f"codec={codec.__name__} is a class: pass an object, {codec.__name__}()")
    if not callable(getattr(codec, "encode", None)) or not callable(getattr(codec, "decode", None)):
        raise ArgumentError(f"codec={shown(codec)}: must be an object with encode and decode")
    return cast("Codec", codec)


def plain(value: Any) -> Any:
    """Convert a result to the types of JSON. Values that are neither listed in ``_WRITTEN`` nor models are unchanged."""
    for kind, write in _WRITTEN:
        if isinstance(value, kind):
            return write(value)
    return value if isinstance(value, type) else _plain_fields(value)


_WRITTEN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: plain(value.value)),
    (Mapping, lambda value: {plain(key): plain(one) for key, one in value.items()}),
    (list | tuple | AbstractSet, lambda value: [plain(one) for one in value]),
    (date | time, lambda value: value.isoformat()),  # a datetime is a date
    (timedelta, timedelta.total_seconds),
    (Decimal | UUID | PurePath, str),
)


def _plain_fields(value: Any) -> Any:
    """The fields of an instance of a model; any other value unchanged."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    names = getattr(value, "__struct_fields__", None)
    if names is None and dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    return value if names is None else plain({name: getattr(value, name) for name in names})


def decoded_or_text(codec: Codec, text: str) -> Any:
    """The decoded payload, or the stored text itself if the codec cannot decode it. For reads, which must not fail."""
    try:
        return codec.decode(text)
    except Exception:  # noqa: BLE001 - an application's codec may raise anything
        return text


def described(error: BaseException) -> str:
    """The text of a codec's exception for messages."""
    text = text_of(error)
    if text.startswith("Out of range float values"):
        text = "NaN and Infinity are no numbers of JSON"
    return text if isinstance(error, TypeError | ValueError | RecursionError) else f"{type(error).__name__}: {text}"


def _same(instance: Any) -> Any:
    return instance


class Schema:
    """The model that payloads of a kind must fit, checked at enqueue and before the handler runs.

    :param model: a pydantic model, a msgspec Struct, a dataclass, or a function. The function takes a payload and returns the value
        for the handler, or raises. The fields of a dataclass are checked by name, and by type if JSON has the type: str, int (a
        bool does not fit), float, bool, None, list and dict with their elements, unions, Literal. Other types are not checked.
    :raises ArgumentError: ``model`` is something else.
    """

    def __init__(self, model: Any) -> None:
        if not callable(model):
            raise ArgumentError(f"schema={model!r}: must be a pydantic model, a msgspec Struct, a dataclass, or a function")
        arguments.plain("schema", model)
        self.model = model
        self._read, self._write = self._ways()

    def _ways(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """What makes the handler's value of a payload, and the payload of an instance of the model."""
        model = self.model
        if hasattr(model, "model_validate"):
            return model.model_validate, methodcaller("model_dump", mode="json")
        if hasattr(model, "__struct_fields__"):
            import msgspec

            return partial(msgspec.convert, type=model), msgspec.to_builtins
        if dataclasses.is_dataclass(model) and isinstance(model, type):
            return self._dataclass_of, self._fields_of
        return model, _same

    def read(self, kind: str, payload: Any) -> Any:
        """The value that the model makes of the payload.

        :raises PayloadError: the payload does not fit; the message has the model's reason.
        """
        return self._fitting(kind, self._read, payload)

    def write(self, kind: str, payload: Any) -> Any:
        """The payload to store, from plain data or from an instance of the model.

        :raises PayloadError: the payload does not fit.
        """
        if isinstance(self.model, type) and isinstance(payload, self.model):
            return self._fitting(kind, self._write, payload)
        self.read(kind, payload)
        return payload

    def _fitting(self, kind: str, way: Callable[[Any], Any], value: Any) -> Any:
        try:
            return way(value)
        except Exception as error:
            raise PayloadError(kind=kind, reason=f"does not fit {self.name}: {text_of(error)}") from error

    def _dataclass_of(self, payload: Any) -> Any:
        if not isinstance(payload, Mapping):
            raise TypeError(f"must be an object with the model's fields, not {type(payload).__name__}")
        made = self.model(**payload)
        self._check_types(payload)
        return made

    def _fields_of(self, instance: Any) -> Mapping[str, Any]:
        values = {field.name: getattr(instance, field.name) for field in dataclasses.fields(self.model)}
        self._check_types(values)
        return values

    def _check_types(self, fields: Mapping[str, Any]) -> None:
        """Check the values of a dataclass.

        :raises TypeError: a value does not have the type of its field.
        """
        for name, hint in self._hints.items():
            if name in fields and not _fits(fields[name], hint):
                wanted = hint.__name__ if type(hint) is type else str(hint)
                raise TypeError(f"{name} must be {wanted}, not {type(fields[name]).__name__}")

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        # Resolved at the first payload: the annotations may name classes that are defined after the model.
        try:
            return get_type_hints(self.model)
        except Exception:  # noqa: BLE001 - some names exist for type checkers only
            return {}

    @property
    def name(self) -> str:
        """The name of the model, for errors."""
        return str(getattr(self.model, "__name__", self.model))


# Types of JSON without elements, each with the type of the values that fit it.
_PLAIN: Mapping[Any, Any] = {str: str, bool: bool, int: int, type(None): type(None), float: int | float}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of JSON has this type; True for types that JSON does not have."""
    origin, inside = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, inner) for inner in inside)
    if origin is Literal:
        return any(value == inner and type(value) is type(inner) for inner in inside)
    if origin in _PLAIN:
        return isinstance(value, _PLAIN[origin]) and (origin is bool or not isinstance(value, bool))
    if origin in (list, abc.Sequence):
        return isinstance(value, list | tuple) and (not inside or all(_fits(inner, inside[0]) for inner in value))
    if origin in (dict, abc.Mapping):
        return isinstance(value, Mapping) and (not inside or all(_fits(inner, inside[1]) for inner in value.values()))
    return True


def schemas_of(models: Mapping[str, Any] | None) -> dict[str, Schema]:
    """The payload schemas of a database object, by kind.

    :raises ArgumentError: ``models`` is not a mapping, or one of its models is not valid.
    """
    if models is not None and not isinstance(models, Mapping):
        raise ArgumentError(f"schemas={shown(models)}: must be a mapping from kinds to models")
    return {kind: model if isinstance(model, Schema) else Schema(model) for kind, model in (models or {}).items()}
