"""The tables of the limits of groups, of what they have used up, and of the jobs that run under them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, text

from queue_db.store.schema import KEY_LENGTH, MYSQL, QUEUE_LENGTH, TOKEN_LENGTH
from queue_db.store.schema.tables import Tables

_SCOPE_LENGTH = 10


@dataclass(frozen=True, slots=True)
class FairnessTables:
    """The tables of fair queues in one store."""

    limits: Table
    spent: Table
    permits: Table


def described(name: str, metadata: MetaData) -> FairnessTables:
    """Make the tables beside the table ``name`` of the jobs."""
    return FairnessTables(_limits(name, metadata), _spent(name, metadata), _permits(name, metadata))


def fairness_tables(tables: Tables) -> FairnessTables:
    """The tables of fair queues beside those of the queue."""
    found: FairnessTables = tables.slices["fairness"]
    return found


def _key() -> tuple[Column[str], Column[str], Column[str]]:
    return (
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        # each: of every group; group: of the group ``name``; prefix: of all groups together whose names begin with ``name``.
        # turn: no limit; ``name`` is the group at which the first claim of a process has ended.
        Column("scope", String(_SCOPE_LENGTH), primary_key=True),
        Column("name", String(KEY_LENGTH), primary_key=True),
    )


def _limits(name: str, metadata: MetaData) -> Table:
    """The weights and limits that people have set. A claim reads them once a second."""
    return Table(
        f"{name}_group_limits",
        metadata,
        *_key(),
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
        *_key(),
        Column("spent_until", BigInteger, nullable=False, server_default=text("0")),
        **MYSQL,
    )


def _permits(name: str, metadata: MetaData) -> Table:
    """The jobs that run under a limit of concurrency.

    A permit is valid while its job has the token of its claim and an unfinished lease. So nothing has to end a permit.
    """
    return Table(
        f"{name}_permits",
        metadata,
        *_key(),
        Column("job_id", BigInteger, primary_key=True, autoincrement=False),
        Column("claim_token", String(TOKEN_LENGTH), nullable=False),
        Column("until", BigInteger, nullable=False),  # the end of the lease at the claim
        **MYSQL,
    )
