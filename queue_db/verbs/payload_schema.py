"""Schemas of payloads: what a kind's payload must look like, checked when a job is enqueued and when it is claimed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from queue_db.errors import ArgumentError, PayloadError, text_of


class Schema:
    """A model that payloads are read into and written from.

    :param model: a pydantic model, a msgspec Struct, a dataclass, or a function that returns what it made of the payload and
        raises when it does not fit.
    :raises ArgumentError: for anything else.
    """

    def __init__(self, model: Any) -> None:
        if not callable(model):
            raise ArgumentError(f"schema={model!r}: must be a pydantic model, a msgspec Struct, a dataclass, or a function")
        self.model = model
        self._struct = hasattr(model, "__struct_fields__")
        self._pydantic = hasattr(model, "model_validate")
        self._dataclass = dataclasses.is_dataclass(model) and isinstance(model, type)

    def read(self, kind: str, payload: Any) -> Any:
        """What the model makes of a payload.

        :raises PayloadError: it does not fit; with what the model says.
        """
        try:
            if self._pydantic:
                return self.model.model_validate(payload)
            if self._struct:
                import msgspec

                return msgspec.convert(payload, self.model)
            if self._dataclass:
                return self.model(**_fields(payload))
            return self.model(payload)
        except Exception as error:
            raise PayloadError(kind=kind, reason=f"does not fit {self.name}: {text_of(error)}") from error

    def write(self, kind: str, payload: Any) -> Any:
        """The payload to store, of plain data or of an object of the model.

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
            return {field.name: getattr(given, field.name) for field in dataclasses.fields(self.model)}
        return given

    def _is_model(self, payload: object) -> bool:
        return isinstance(self.model, type) and isinstance(payload, self.model)

    @property
    def name(self) -> str:
        """What people call the model."""
        return str(getattr(self.model, "__name__", self.model))


def _fields(payload: Any) -> Mapping[str, Any]:
    if not isinstance(payload, Mapping):
        raise TypeError(f"must be an object with the model's fields, not {type(payload).__name__}")
    return payload
