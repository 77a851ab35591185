"""Payload ↔ text. JSON by default; any object with these two methods will do."""

from __future__ import annotations

import json
from typing import Any, Protocol, cast

from queue_db.arguments import shown
from queue_db.errors import ArgumentError, text_of


class Codec(Protocol):
    """Turns payloads into text for the ``payload`` column and back."""

    def encode(self, payload: Any) -> str:
        """Return the text, without NUL characters; raise ``TypeError`` or ``ValueError`` for what cannot be written."""
        ...

    def decode(self, text: str) -> Any:
        """Return the payload; raise ``ValueError`` for text that is not of this codec."""
        ...


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class JSONCodec:
    """Strict JSON: no NaN, no infinity, no lone surrogates; compact, UTF-8 characters as they are."""

    def encode(self, payload: Any) -> str:
        text = _encode(payload)
        if not text.isascii():
            text.encode("utf-8")  # a lone surrogate passes the encoder and would fail only in the driver
        return text

    def decode(self, text: str) -> Any:
        try:
            return json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def checked(codec: object) -> Codec:
    """``codec``, if it can be one.

    :raises ArgumentError: it has not the two methods, or is a class.
    """
    if isinstance(codec, type):
        raise ArgumentError(f"codec={codec.__name__} is a class: pass an object, {codec.__name__}()")
    if not callable(getattr(codec, "encode", None)) or not callable(getattr(codec, "decode", None)):
        raise ArgumentError(f"codec={shown(codec)}: must be an object with encode and decode")
    return cast("Codec", codec)


def decoded_or_text(codec: Codec, text: str) -> Any:
    """What the codec makes of stored text, and the text itself where it makes nothing of it: for looks, which must not fail."""
    try:
        return codec.decode(text)
    except Exception:  # noqa: BLE001 - a codec of the caller's may raise anything
        return text


def described(error: BaseException) -> str:
    """An exception of a codec in words."""
    text = text_of(error)
    return text if isinstance(error, TypeError | ValueError | RecursionError) else f"{type(error).__name__}: {text}"
