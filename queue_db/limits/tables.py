"""The tables of those who use up limits: the shares of workers, and the permits of jobs.

The limits of queues are columns of the kernel's table of queues, since a worker reads them and the pause with one statement.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

from queue_db.store.schema import KEY_LENGTH, MYSQL, QUEUE_LENGTH, TOKEN_LENGTH, WORKER_LENGTH
from queue_db.store.schema.tables import Tables

_SCOPE_LENGTH = 10

#: The scope of the permits under the limit of a whole queue. Those of its groups have other scopes.
WHOLE_QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class LimitsTables:
    """The tables of limits in one store."""

    shares: Table
    permits: Table


def described(name: str, metadata: MetaData) -> LimitsTables:
    """Make the tables beside the table ``name`` of the jobs."""
    return LimitsTables(_shares(name, metadata), _permits(name, metadata))


def limits_tables(tables: Tables) -> LimitsTables:
    """The tables of limits beside those of the queue."""
    found: LimitsTables = tables.slices["limits"]
    return found


def scoped_key() -> tuple[Column[str], Column[str], Column[str]]:
    """The columns that name a limit."""
    return (
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("scope", String(_SCOPE_LENGTH), primary_key=True),
        Column("name", String(KEY_LENGTH), primary_key=True),
    )


def _shares(name: str, metadata: MetaData) -> Table:
    """The table ``name_shares``: how much of a queue's concurrency each worker may use.

    The sum of the shares is at most the queue's concurrency.
    """
    return Table(
        f"{name}_shares",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("worker", String(WORKER_LENGTH), primary_key=True),
        Column("slots", Integer, nullable=False),
        Column("until", BigInteger, nullable=False),
        **MYSQL,
    )


def _permits(name: str, metadata: MetaData) -> Table:
    """The jobs that run under a limit of concurrency, and that no share of a worker counts.

    A permit is valid while its job has the token of its claim and an unfinished lease. So nothing has to end a permit.
    """
    return Table(
        f"{name}_permits",
        metadata,
        *scoped_key(),
        Column("job_id", BigInteger, primary_key=True, autoincrement=False),
        Column("claim_token", String(TOKEN_LENGTH), nullable=False),
        Column("until", BigInteger, nullable=False),  # the end of the lease at the claim
        **MYSQL,
    )
