"""The option ``filter``: comparisons joined by AND, as in ``kind = 'mail' AND attempts > 3``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.model import to_micros
from queue_db.spark.ranges.store import Condition
from queue_db.store.schema import KIND_LENGTH

# Column of a DataFrame that is read → column of the jobs table, and the type of its values.
_COLUMNS: Mapping[str, tuple[str, type]] = {
    "id": ("id", int),
    "kind": ("kind", str),
    "priority": ("priority", int),
    "attempts": ("attempts", int),
    "enqueued_at": ("created_at", datetime),
}

# Column, operator, number or quoted text, and AND or the end.
_TERM = re.compile(r"\s*(\w+)\s*(<=|>=|=|<|>)\s*(-?\d{1,18}|'(?:[^']|'')*')\s*(AND\b|\Z)", re.IGNORECASE)


def conditions(name: str, value: str) -> list[Condition]:
    """The comparisons of a filter.

    :raises ArgumentError: for other text.
    """
    found: list[Condition] = []
    at = 0
    while at < len(value):
        term = _TERM.match(value, at)
        if term is None or (term[4] and term.end() == len(value)) or term[1].lower() not in _COLUMNS:
            raise ArgumentError(
                f"{name}={value!r}: must be comparisons with =, <, <=, > or >=, joined by AND, of {', '.join(_COLUMNS)}, as in "
                "kind = 'mail' AND attempts > 3 AND enqueued_at >= '2026-03-01T00:00:00Z'"
            )
        column, kind = _COLUMNS[term[1].lower()]
        found.append(Condition(column, term[2], _literal(name, term[1], term[2], term[3], kind)))
        at = term.end()
    return found


def _literal(name: str, column: str, comparison: str, text: str, kind: type) -> int | str:
    """The value on the right of a comparison, as the database stores it."""
    quoted = text.startswith("'")
    if quoted is (kind is int):
        raise ArgumentError(f"{name}: {column} is compared with {'a number' if kind is int else 'a text in single quotes'}")
    if kind is int:
        return int(text)
    plain = text[1:-1].replace("''", "'")
    if kind is datetime:
        try:
            return to_micros(datetime.fromisoformat(plain).astimezone(UTC))
        except (ValueError, OverflowError):
            raise ArgumentError(f"{name}: {column} is compared with a time such as '2026-03-01T00:00:00Z'") from None
    if comparison != "=":
        raise ArgumentError(f"{name}: {column} is compared with = only, since databases and Spark sort texts differently")
    return arguments.name(f"{name}: {column}", plain, KIND_LENGTH)
