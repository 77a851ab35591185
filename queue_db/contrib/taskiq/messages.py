"""Between messages of Taskiq and jobs: labels, kinds and payloads."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from queue_db import ArgumentError, LeasedJob, PayloadError

_T = TypeVar("_T")

#: Types of labels, in messages.
_WORDS: Mapping[object, str] = {str: "a text", int: "a whole number", float: "a number of seconds"}

#: The longest kind of a job.
_KIND = 100


def label(labels: Mapping[str, Any], name: str, of: Callable[[Any], _T], default: _T) -> _T:
    """The value of a label, which Taskiq hands over as text or as it was given.

    :raises ArgumentError: it is not of this type.
    """
    if (value := labels.get(name)) is None:
        return default
    try:
        return of(value)
    except (TypeError, ValueError):
        raise ArgumentError(argument=f"label {name}", problem=f" must be {_WORDS[of]}, and is {value!r}") from None


def kind_of(task_name: str) -> str:
    """The kind of a task's jobs: its name, of a long one the end."""
    text = "".join(letter for letter in task_name.strip() if letter.isprintable()) or "message"
    return text if len(text) <= _KIND else f"…{text[1 - _KIND :]}"


def payload_of(task_id: str, message: bytes) -> dict[str, str]:
    """The payload of a message's job. Text stays readable in the database; other bytes become Base64."""
    try:
        return {"task_id": task_id, "message": message.decode()}
    except UnicodeDecodeError:
        return {"task_id": task_id, "base64": b64encode(message).decode()}


def message_of(job: LeasedJob) -> bytes:
    """The message in a job.

    :raises ValueError: it has none: a program enqueued it without Taskiq.
    """
    try:
        payload = job.payload
    except PayloadError as error:
        raise ValueError(str(error)) from error
    if isinstance(payload, dict):
        if isinstance(text := payload.get("message"), str):
            return text.encode()
        if isinstance(text := payload.get("base64"), str):
            return b64decode(text, validate=True)
    raise ValueError("its payload has neither message nor base64")
