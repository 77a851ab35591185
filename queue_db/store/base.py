"""The context of the store's functions: tables, dialect, capabilities of the server, clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, case, literal
from sqlalchemy.util import LRUCache

from queue_db.dialects import Dialect
from queue_db.dialects.claim_plan import ClaimPlan
from queue_db.model import MOST_ATTEMPTS, MOST_VERSION, Capability
from queue_db.store.schema import Tables


@dataclass(frozen=True, eq=False)
class Store:
    """The tables of one queue store in one database."""

    tables: Tables
    dialect: Dialect
    capabilities: frozenset[Capability]
    #: Microseconds since 1970, for tests that set the time; None: the database's clock.
    clock: Callable[[], int] | None = None
    #: Whether many rows are wanted as CSV, where the database writes it.
    csv: bool = False
    #: Gets the rows of jobs that a stream's batch sends to the dead table, by id: for a report after the commit. None: no report.
    buried: dict[int, Row[Any]] | None = None
    #: The parts of the claims in use, by shape: each takes some hundred kilobytes with all that is made of it.
    plans: LRUCache[Any, ClaimPlan] = field(default_factory=lambda: LRUCache(32), repr=False)

    def time(self) -> dict[str, int]:
        """The parameter ``now`` of a statement, if time is set and not the database's."""
        return {} if self.clock is None else {"now": self.clock()}

    def read_clock(self, connection: Connection) -> int:
        """Microseconds since 1970 by the clock that counts."""
        return self.clock() if self.clock else int(connection.execute(self.dialect.clock_query()).scalar_one())


def next_version(table: Table) -> ColumnElement[int]:
    """What a change makes of ``version``: one more, as far as the column goes. No lease gets there."""
    return case((table.c.version < MOST_VERSION, table.c.version + 1), else_=table.c.version)


def next_attempt(table: Table) -> ColumnElement[int]:
    """What a claim makes of ``attempts``: one more, as far as the column goes."""
    return case((table.c.attempts < MOST_ATTEMPTS, table.c.attempts + 1), else_=MOST_ATTEMPTS)


def each(column: ColumnElement[Any], values: Mapping[Any, Any], kind: Any) -> ColumnElement[Any]:
    """A value for each of the column's; plain when they are all the same."""
    different = set(values.values())
    if len(different) == 1:
        return literal(different.pop(), kind)
    return case({known: literal(value, kind) for known, value in values.items()}, value=column)
