"""Payload ↔ text. JSON by default; any object with these two methods will do."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Codec(Protocol):
    """Turns payloads into text for the ``payload`` column and back."""

    def encode(self, payload: Any) -> str:
        """Return the text; raise ``TypeError`` or ``ValueError`` for what cannot be written."""
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
