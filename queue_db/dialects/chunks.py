"""Many jobs as one text: the form in which they are staged. One row to write and to delete for thousands of jobs.

A chunk is a JSON array of objects with one-letter names, so that a database can take it apart by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FromClause, Integer, Text
from sqlalchemy.types import TypeEngine

from queue_db.model import NewJob

#: Field of a new job → its letter in a chunk, and its type. The queue is the same for all and stands in no chunk.
FIELDS: Mapping[str, tuple[str, TypeEngine[Any]]] = {
    "payload": ("p", Text()),
    "kind": ("k", Text()),
    "headers": ("h", Text()),
    "priority": ("r", Integer()),
    "max_attempts": ("m", Integer()),
    "unique_key": ("u", Text()),
    "after": ("a", BigInteger()),
    "not_before": ("t", BigInteger()),
}

_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A chunk taken apart by the database: a row for each job, and the expression of each field."""

    rows: FromClause
    fields: Mapping[str, ColumnElement[Any]]


def pack(columns: Mapping[str, Sequence[Any]]) -> str:
    """Jobs as one text: field → its values, all of the same length."""
    letters = [FIELDS[name][0] for name in columns]
    if len(letters) == 1:
        (letter,) = letters
        return _write([{letter: value} for value in next(iter(columns.values()))])
    return _write([dict(zip(letters, row, strict=True)) for row in zip(*columns.values(), strict=True)])


def unpack(chunks: Iterable[str], queue: str, defaults: Mapping[str, Any]) -> Iterator[NewJob]:
    """The jobs of ``chunks``, each with what it has, and ``defaults`` for the rest."""
    names = {letter: name for name, (letter, _) in FIELDS.items()}
    for chunk in chunks:
        for row in json.loads(chunk):
            given = {names[letter]: value for letter, value in row.items() if value is not None}
            yield NewJob(queue=queue, **{**defaults, **given})
