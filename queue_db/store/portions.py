"""Divide many rows into statements of a size that every database and driver accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")

#: The most rows in one statement. A statement may have a CASE with a value for each row. The database searches this CASE for each
#: row, so the time grows with the square of the number of rows. Drivers also limit the number of parameters (asyncpg: 32,767).
AT_ONCE = 500


def portions(items: Sequence[_T], most: int = AT_ONCE) -> Iterator[Sequence[_T]]:
    """Divide ``items``, in their order, into parts of up to ``most`` items."""
    return (items[start : start + most] for start in range(0, len(items), most))
