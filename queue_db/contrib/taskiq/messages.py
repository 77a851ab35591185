"""Between messages of Taskiq and jobs: labels, kinds and payloads, and the transaction of who sends."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from queue_db import ArgumentError, ConfigurationError, LeasedJob, PayloadError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

_T = TypeVar("_T")

#: Types of labels, in messages.
_WORDS: Mapping[object, str] = {str: "a text", int: "a whole number", float: "a number of seconds"}

#: The longest kind of a job.
_KIND = 100


class _Block:
    """A block of :func:`publishing_in`. Tasks and threads that begin in it have its context, and may outlive it."""

    def __init__(self, connection: AsyncConnection | AsyncSession) -> None:
        self.connection, self.ended = connection, False


_block: ContextVar[_Block | None] = ContextVar("queue_db_taskiq_transaction", default=None)


@contextmanager
def publishing_in(connection: AsyncConnection | AsyncSession) -> Iterator[None]:
    """Send in your transaction: what ``task.kiq()`` sends in this block is sent if it commits, and only then.

    If one raises ``SendTaskError``, roll back, and repeat the whole transaction: the database may have given it up.

    :param connection: a connection or session of the broker's database, with a transaction.
    """
    block = _Block(connection)
    before = _block.set(block)
    try:
        yield
    finally:
        block.ended = True
        _block.reset(before)


def transaction() -> AsyncConnection | AsyncSession | None:
    """The transaction of :func:`publishing_in`; None: outside its block.

    :raises ConfigurationError: the block has ended, in which this task or thread has begun.
    """
    block = _block.get()
    if block is None:
        return None
    if block.ended:
        raise ConfigurationError("the block of publishing_in() has ended, in which this task or thread was begun: begin it outside")
    return block.connection


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
