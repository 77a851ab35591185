"""Arguments and results of tasks as JSON and back, by their annotations. msgspec does it; pydantic makes its own models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import PurePath
from typing import Any

from queue_db.errors import ArgumentError, ConfigurationError, text_of

# What msgspec appends to its messages: the place of a value, such as $.user.name.
_AT = re.compile(r"(?P<what>.*) - at `\$\.?(?P<place>[^`]*)`", re.DOTALL)


@cache
def msgspec() -> Any:
    """The module msgspec.

    :raises ConfigurationError: it is not installed.
    """
    try:
        import msgspec as module
    except ImportError:
        raise ConfigurationError('typed tasks need msgspec: pip install "queue-db[tasks]"') from None
    return module


def written(value: Any) -> Any:
    """A value in the types of JSON.

    :raises TypeError: JSON cannot have it.
    """
    return msgspec().to_builtins(value, str_keys=True, enc_hook=_write)


def read(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """The value of type ``kind`` that a value of JSON stands for.

    :param strict: False: numbers also stand for durations, and texts for numbers.
    :raises ValueError: it does not fit; the message names the field.
    """
    module = msgspec()
    try:
        return module.convert(value, kind, strict=strict, str_keys=True, dec_hook=_read)
    except module.ValidationError as error:
        raise ValueError(_placed(str(error))) from error


def read_result(value: Any, kind: Any) -> Any:
    """:func:`read` for a result, which has durations in seconds.

    :raises ValueError: it does not fit; the message names the field.
    """
    try:
        return read(value, kind)
    except ValueError:
        with suppress(ValueError):
            return read(value, kind, strict=False)
        raise


def _placed(text: str) -> str:
    """The message with the place of the value in front: ``user: Expected `int`, got `str```."""
    found = _AT.fullmatch(text)
    return f"{found['place']}: {found['what']}" if found is not None and found["place"] else text


def _write(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is no type of JSON")


def _read(kind: Any, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if hasattr(kind, "model_validate"):
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise ValueError(_compact(error)) from error
    return kind(value)


def _compact(error: ValueError) -> str:
    """The message of pydantic in one line, without the values: they may be secret."""
    if not hasattr(error, "errors"):
        return text_of(error)
    found: list[Mapping[str, Any]] = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the model'}: {one['msg']}" for one in found)


def model(name: str, types: Mapping[str, Any], optional: frozenset[str]) -> Any:
    """A class with a field for each argument, for :func:`read`. Fields that are not given are left out by :func:`given`.

    :param name: the name of the task.
    :param types: the type of each argument.
    :param optional: the arguments that have defaults.
    :raises ArgumentError: a type cannot be read from JSON; the message names the argument.
    """
    module = msgspec()
    for argument, kind in types.items():
        check(f"task {name!r}: argument {argument}", kind)
    fields = [(one, kind, module.UNSET) if one in optional else (one, kind) for one, kind in types.items()]
    return module.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def given(made: Any) -> dict[str, Any]:
    """The fields of an instance of :func:`model` that were in what it was made of."""
    unset = msgspec().UNSET
    values = ((name, getattr(made, name)) for name in made.__struct_fields__)
    return {name: value for name, value in values if value is not unset}


def check(what: str, kind: Any) -> None:
    """Check that values of this type can be read from JSON.

    :raises ArgumentError: they cannot.
    """
    module = msgspec()
    try:
        module.json.Decoder(kind, dec_hook=_read)  # refuses unions whose members JSON cannot tell apart
        info = module.inspect.type_info(kind)
    except (TypeError, NameError) as error:
        raise ArgumentError(f"{what}: {error}") from error
    for node in _nodes(info, set()):
        cls: Any = getattr(node, "cls", None)
        name = cls.__name__ if isinstance(cls, type) else str(cls)
        if isinstance(node, module.inspect.DataclassType) and hasattr(cls, "__pydantic_validator__"):
            raise ArgumentError(f"{what}: {name} is a dataclass of pydantic: take a BaseModel, or a plain dataclass")
        if isinstance(node, module.inspect.CustomType) and not _ours(cls):
            raise ArgumentError(f"{what}: {name} is no type of JSON: take a dataclass, a model, or plain values")


def _ours(cls: Any) -> bool:
    """Whether :func:`_read` makes values of this class."""
    return hasattr(cls, "model_validate") or (isinstance(cls, type) and issubclass(cls, PurePath))


def _nodes(info: Any, seen: set[int]) -> Iterator[Any]:
    """The descriptions of a type and of all types inside of it. A type may contain itself."""
    if isinstance(info, list | tuple):
        for one in info:
            yield from _nodes(one, seen)
    elif hasattr(info, "__struct_fields__") and not isinstance(info, type) and id(info) not in seen:
        seen.add(id(info))
        yield info
        for name in info.__struct_fields__:
            yield from _nodes(getattr(info, name), seen)
