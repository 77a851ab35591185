"""Payload ↔ text, JSON by default, and the schemas that payloads of a kind must fit."""

from __future__ import annotations

import dataclasses
import json
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
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
        """Return the text, without NUL characters; raise ``TypeError`` or ``ValueError`` for what cannot be written."""
        ...

    def decode(self, text: str) -> Any:
        """Return the payload; raise ``ValueError`` for text that is not of this codec."""
        ...


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class _Fast(NamedTuple):
    """The functions of msgspec: several times faster than those of the standard library."""

    encode: Callable[[Any], bytes]
    #: Each followed by a line feed.
    encode_lines: Callable[[Sequence[Any]], bytes]
    decode: Callable[[str], Any]
    #: What they raise for what they do not take.
    refusals: tuple[type[Exception], ...]


class JSONCodec:
    """Strict JSON: no NaN, no infinity, no lone surrogates; compact, UTF-8 characters as they are.

    With msgspec installed (the extra ``fast``) the same texts, payloads and errors take less time.
    """

    def encode(self, payload: Any) -> str:
        fast = _fast()
        if fast is not None and (type(payload) in _SAME or _same_text(payload)):
            try:
                return str(fast.encode(payload), "utf-8")
            except fast.refusals:
                pass  # a whole number of more than 64 bits, or a lone surrogate
        text = _encode(payload)
        if not text.isascii():
            text.encode("utf-8")  # a lone surrogate passes the encoder and would fail only in the driver
        return text

    def encode_all(self, payloads: Sequence[Any]) -> list[str]:
        """:meth:`encode` for each; simple payloads take a third of the time or less."""
        fast = _fast()
        if fast is not None and (_SAME.issuperset(map(type, payloads)) or all(map(_same_text, payloads))):
            try:
                # JSON has no line feed in its texts, only in between.
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
                pass  # the standard library takes more, for example NaN and lone surrogates; its errors count
        try:
            return json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


@lru_cache(maxsize=1)
def _fast() -> _Fast | None:
    """The functions of msgspec; None: it is not installed. Imported when the first payload comes."""
    try:
        import msgspec
    except ImportError:
        return None
    refusals = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
    return _Fast(msgspec.json.encode, msgspec.json.Encoder().encode_lines, msgspec.json.decode, refusals)


# Of exactly these types msgspec writes the texts of the standard library. Not of float (1e16 and 1e+16), of subclasses, and of what
# only msgspec takes, such as dates and bytes.
_SAME = frozenset((str, int, bool, type(None)))
_TEXT = frozenset((str,))

# Most levels of lists and objects that are checked. It also ends the check of a payload that contains itself.
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
    """``codec``, if it can be one.

    :raises ArgumentError: it has not the two methods, or is a class.
    """
    if isinstance(codec, type):
        raise ArgumentError(f"codec={codec.__name__} is a class: pass an object, {codec.__name__}()")
    if not callable(getattr(codec, "encode", None)) or not callable(getattr(codec, "decode", None)):
        raise ArgumentError(f"codec={shown(codec)}: must be an object with encode and decode")
    return cast("Codec", codec)


def plain(value: Any) -> Any:
    """A result in the types that JSON has; a value of another type than below is returned as it is."""
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
    """The fields of a model."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    names = getattr(value, "__struct_fields__", None)
    if names is None and dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    return value if names is None else plain({name: getattr(value, name) for name in names})


def decoded_or_text(codec: Codec, text: str) -> Any:
    """The decoded payload, or the stored text itself if the codec cannot decode it: for reads, which must not fail."""
    try:
        return codec.decode(text)
    except Exception:  # noqa: BLE001 - a codec of the caller's may raise anything
        return text


def described(error: BaseException) -> str:
    """An exception of a codec in words."""
    text = text_of(error)
    if text.startswith("Out of range float values"):
        text = "NaN and Infinity are no numbers of JSON"
    return text if isinstance(error, TypeError | ValueError | RecursionError) else f"{type(error).__name__}: {text}"


class Schema:
    """The model that payloads of a kind must fit, checked at enqueue and before the handler runs.

    :param model: a pydantic model, a msgspec Struct, a dataclass, or a function that takes a payload and returns the value for the
        handler, or raises. The fields of a dataclass are checked by name, and by type as far as JSON has it: str, int (not of a
        bool), float, bool, None, list and dict with their elements, unions, Literal. Other types are not checked.
    :raises ArgumentError: for anything else.
    """

    def __init__(self, model: Any) -> None:
        if not callable(model):
            raise ArgumentError(f"schema={model!r}: must be a pydantic model, a msgspec Struct, a dataclass, or a function")
        arguments.plain("schema", model)
        self.model = model
        self._struct = hasattr(model, "__struct_fields__")
        self._pydantic = hasattr(model, "model_validate")
        self._dataclass = dataclasses.is_dataclass(model) and isinstance(model, type)

    def read(self, kind: str, payload: Any) -> Any:
        """The payload as the model reads it.

        :raises PayloadError: it does not fit; with the model's reason.
        """
        try:
            if self._pydantic:
                return self.model.model_validate(payload)
            if self._struct:
                import msgspec

                return msgspec.convert(payload, self.model)
            if self._dataclass:
                made = self.model(**_fields(payload))
                self._check_types(payload)
                return made
            return self.model(payload)
        except Exception as error:
            raise PayloadError(kind=kind, reason=f"does not fit {self.name}: {text_of(error)}") from error

    def write(self, kind: str, payload: Any) -> Any:
        """The payload to store, from plain data or from an instance of the model.

        :raises PayloadError: it does not fit.
        """
        given: Any = payload
        if not self._is_model(given):
            self.read(kind, given)
            return given
        if self._pydantic:
            return given.model_dump(mode="json")
        if self._struct:
            import msgspec

            return msgspec.to_builtins(given)
        if self._dataclass:
            values = {field.name: getattr(given, field.name) for field in dataclasses.fields(self.model)}
            try:
                self._check_types(values)
            except TypeError as error:
                raise PayloadError(kind=kind, reason=f"does not fit {self.name}: {text_of(error)}") from error
            return values
        return given

    def _check_types(self, fields: Mapping[str, Any]) -> None:
        """Check the values of a dataclass.

        :raises TypeError: one does not have the type of its field.
        """
        for name, hint in self._hints.items():
            if name in fields and not _fits(fields[name], hint):
                wanted = hint.__name__ if type(hint) is type else str(hint)
                raise TypeError(f"{name} must be {wanted}, not {type(fields[name]).__name__}")

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        # When the first payload comes: the annotations may name what is defined later.
        try:
            return get_type_hints(self.model)
        except Exception:  # noqa: BLE001 - names that only type checkers know
            return {}

    def _is_model(self, payload: object) -> bool:
        return isinstance(self.model, type) and isinstance(payload, self.model)

    @property
    def name(self) -> str:
        """The name of the model, for errors."""
        return str(getattr(self.model, "__name__", self.model))


# Types of fields, and of the values that they take.
_PLAIN: Mapping[Any, tuple[type, ...]] = {
    **{kind: (kind,) for kind in (str, bool, int, type(None))},
    float: (int, float),
}


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


def _fields(payload: Any) -> Mapping[str, Any]:
    if not isinstance(payload, Mapping):
        raise TypeError(f"must be an object with the model's fields, not {type(payload).__name__}")
    return payload


def schemas_of(models: Mapping[str, Any] | None) -> dict[str, Schema]:
    """The payload schemas of a database object, by kind.

    :raises ArgumentError: it is no mapping, or a model is none.
    """
    if models is not None and not isinstance(models, Mapping):
        raise ArgumentError(f"schemas={shown(models)}: must be a mapping from kinds to models")
    return {kind: model if isinstance(model, Schema) else Schema(model) for kind, model in (models or {}).items()}
