"""Many rows in statements of a size that every database and driver takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")

#: Most rows in one statement. A CASE with a value for each is evaluated from its beginning for each row, so a longer one costs more
#: than several; and drivers limit the number of parameters (asyncpg: 32,767).
AT_ONCE = 500


def portions(items: Sequence[_T], most: int = AT_ONCE) -> Iterator[Sequence[_T]]:
    """``items`` in their order, up to ``most`` at a time."""
    return (items[start : start + most] for start in range(0, len(items), most))
