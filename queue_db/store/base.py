"""What the store's functions need to know: the tables, the dialect, what the server can do, and whose clock counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from queue_db.dialects import Dialect
from queue_db.dialects.taking import Taking
from queue_db.model import Capability
from queue_db.schema import Tables


@dataclass(frozen=True, eq=False)
class Store:
    """The tables of one queue store in one database."""

    tables: Tables
    dialect: Dialect
    capabilities: frozenset[Capability]
    #: Microseconds since 1970, for tests that set the time; None: the database's clock.
    clock: Callable[[], int] | None = None

    @cached_property
    def takings(self) -> dict[Any, Taking]:
        """The claims that have been put together so far, by their shape; all stores of these tables share them."""
        kind: object = type(self.dialect)
        return _takings(self.tables, kind)

    def time(self) -> dict[str, int]:
        """The parameter ``now`` of a statement, if time is set and not the database's."""
        return {} if self.clock is None else {"now": self.clock()}


@lru_cache(maxsize=64)
def _takings(tables: Tables, dialect: object) -> dict[Any, Taking]:
    return {}
