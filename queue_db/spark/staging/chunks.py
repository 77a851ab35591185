"""Many jobs as one text: the form in which they are staged. One row to write and to delete for thousands of jobs.

A chunk is a JSON array with an array for each job, its fields in an order that the reader knows, so that a database can take it
apart by itself.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FromClause, Integer, Text
from sqlalchemy.types import TypeEngine

from queue_db.model import NewJob

#: Field of a new job → its type. A chunk has the queues only if the jobs go into several.
FIELDS: Mapping[str, TypeEngine[Any]] = {
    "queue": Text(),
    "payload": Text(),
    "kind": Text(),
    "headers": Text(),
    "priority": Integer(),
    "max_attempts": Integer(),
    "unique_key": Text(),
    "unique_for": BigInteger(),
    "group_key": Text(),
    "after": BigInteger(),
    "not_before": BigInteger(),
}

# Most characters of a small chunk, and most bytes of it when it is packed: thousands of them come together in one process.
_LONGEST, _LARGEST = 1 << 16, 1 << 14

_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A chunk taken apart by the database: a row for each job, and the expression of each field."""

    rows: FromClause
    fields: Mapping[str, ColumnElement[Any]]


def pack(columns: Mapping[str, Sequence[Any]]) -> str:
    """Jobs as one text: field → its values, all of the same length, in the order in which they are to be read."""
    return _write(list(zip(*columns.values(), strict=True)))


def small(chunk: str) -> bytes | None:
    """A small chunk in a form that can travel along with other things; None if it is not small."""
    packed = zlib.compress(chunk.encode(), level=1) if len(chunk) <= _LONGEST else b""
    return packed if 0 < len(packed) <= _LARGEST else None


def whole(packed: bytes) -> str:
    """The chunk that :func:`small` has packed."""
    return zlib.decompress(packed).decode()


def unpack(chunk: str, fields: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Field → its values, of a chunk that was made of these."""
    return dict(zip(fields, zip(*json.loads(chunk), strict=True), strict=True))


def jobs_of(columns: Mapping[str, Sequence[Any]], queue: str | None, defaults: Mapping[str, Any]) -> Iterator[NewJob]:
    """The jobs of ``columns``, each with what it has, and ``defaults`` for the rest."""
    same = {"queue": queue, **defaults}
    for row in zip(*columns.values(), strict=True):
        given = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        job = NewJob(**{**same, **given})
        # The default of ``unique_for`` is for jobs with a key.
        yield job._replace(unique_for=0) if job.unique_for and job.unique_key is None else job
