"""The tables of monitoring: metrics over time, the action log, and samples of all queues."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import BIG_ID, LONG_TEXT, MYSQL, QUEUE_LENGTH
from queue_db.store.schema.tables import Tables

#: The columns of ``metrics`` with the jobs by state, and ``oldest``: microseconds since the oldest due job became due. NULL: not
#: counted in this time.
DEPTHS = ("available", "scheduled", "blocked", "running", "dead", "held", "oldest")

#: The columns of ``metrics`` with what happened in this time.
COUNTS = ("completed", "failed", "died", "lost", "missed")


#: Longest texts of columns, in characters.
WHO_LENGTH = 100
ACTION_LENGTH = 40
TARGET_LENGTH = 250
_SAMPLE_LENGTH = 40


@dataclass(frozen=True, slots=True)
class MonitoringTables:
    """The tables of monitoring in one store."""

    metrics: Table
    actions: Table
    samples: Table


def monitoring_tables(tables: Tables) -> MonitoringTables:
    """The tables of monitoring in the same store as ``tables``."""
    found: MonitoringTables = tables.slices["monitoring"]
    return found


def described(name: str, metadata: MetaData) -> MonitoringTables:
    """The tables ``name_metrics``, ``name_actions`` and ``name_samples``."""
    return MonitoringTables(_metrics(name, metadata), _actions(name, metadata), _samples(name, metadata))


def _metrics(name: str, metadata: MetaData) -> Table:
    """Numbers of each queue over time. Each row covers ``width`` seconds from ``at``."""
    table = Table(
        f"{name}_metrics",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("width", Integer, primary_key=True, autoincrement=False),
        Column("at", BigInteger, primary_key=True, autoincrement=False),
        *(Column(column, BigInteger) for column in DEPTHS),
        *(Column(column, BigInteger, nullable=False, server_default=text("0")) for column in COUNTS),
        **MYSQL,
    )
    # DELETE FROM jobs_metrics WHERE width = ? AND at < ?
    Index(f"{name}_metrics_age", table.c.width, table.c.at)
    return table


def _actions(name: str, metadata: MetaData) -> Table:
    """The action log: what people and programs with tokens changed, how much and when."""
    table = Table(
        f"{name}_actions",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("at", BigInteger, nullable=False, server_default=now_us()),
        Column("who", String(WHO_LENGTH), nullable=False),
        Column("action", String(ACTION_LENGTH), nullable=False),
        Column("target", String(TARGET_LENGTH), nullable=False),
        Column("number", BigInteger),
        Column("detail", LONG_TEXT),  # JSON
        sqlite_autoincrement=True,
        **MYSQL,
    )
    # DELETE FROM jobs_actions WHERE at < ?
    Index(f"{name}_actions_age", table.c.at)
    return table


def _samples(name: str, metadata: MetaData) -> Table:
    """Counts of all queues, shared by the processes that export metrics: one process at a time takes the next sample."""
    return Table(
        f"{name}_samples",
        metadata,
        Column("name", String(_SAMPLE_LENGTH), primary_key=True),
        # The process that takes the next sample increments it, so that no other process takes the same sample.
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("taken_at", BigInteger),
        # The earliest time of the next sample.
        Column("next_at", BigInteger, nullable=False, server_default=text("0")),
        Column("data", LONG_TEXT),  # JSON
        **MYSQL,
    )
