"""The tables of the limits of groups, and of what they have used up. Jobs under limits have permits (queue_db/limits/tables.py)."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, text

from queue_db.limits.tables import scoped_key
from queue_db.store.schema import MYSQL
from queue_db.store.schema.tables import Tables


@dataclass(frozen=True, slots=True)
class FairnessTables:
    """The tables of fair queues in one store."""

    limits: Table
    spent: Table


def described(name: str, metadata: MetaData) -> FairnessTables:
    """Make the tables beside the table ``name`` of the jobs."""
    return FairnessTables(_limits(name, metadata), _spent(name, metadata))


def fairness_tables(tables: Tables) -> FairnessTables:
    """The tables of fair queues beside those of the queue."""
    found: FairnessTables = tables.slices["fairness"]
    return found


def _limits(name: str, metadata: MetaData) -> Table:
    """The weights and limits that people have set. A claim reads them once a second."""
    return Table(
        f"{name}_group_limits",
        metadata,
        # each: of every group; group: of the group ``name``; prefix: of all groups together whose names begin with ``name``;
        # turn: no limit, ``name`` is the group at which the first claim of a process has ended.
        *scoped_key(),
        Column("weight", Integer),
        Column("concurrency", Integer),
        Column("rate", Integer),
        Column("per", BigInteger),  # microseconds
        **MYSQL,
    )


def _spent(name: str, metadata: MetaData) -> Table:
    """A row for each group or prefix under a limit. A claim locks the row, and counts its rate in it, as that of a queue."""
    return Table(
        f"{name}_group_spent",
        metadata,
        *scoped_key(),
        Column("spent_until", BigInteger, nullable=False, server_default=text("0")),
        **MYSQL,
    )
