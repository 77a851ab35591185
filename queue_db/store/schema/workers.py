"""The tables of controls, workers, failed attempts and finished jobs."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import (
    BIG_ID,
    CLASS_LENGTH,
    KIND_LENGTH,
    LONG_TEXT,
    MYSQL,
    QUEUE_LENGTH,
    WORKER_LENGTH,
)


def queues(name: str, metadata: MetaData) -> Table:
    """The controls of queues; most queues have no row. A worker locks the row to take a part of the concurrency or of the rate.

    The pause and the limits are in one row, so that a worker reads them with one statement. The slice ``limits`` changes and obeys
    the limits; the slice ``groups`` obeys ``per_group``.
    """
    return Table(
        f"{name}_queues",
        metadata,
        Column("name", String(QUEUE_LENGTH), primary_key=True),
        Column("paused", Integer, nullable=False, server_default=text("0")),
        # The most leased jobs at a time, over all workers.
        Column("concurrency", Integer),
        # At most ``rate`` jobs begin in ``per`` microseconds, over all workers. Each job that begins moves ``spent_until`` by
        # ``per / rate``.
        Column("rate", Integer),
        Column("per", BigInteger),
        Column("spent_until", BigInteger, nullable=False, server_default=text("0")),
        # The most jobs of each group that run at a time, over all workers; NULL: one.
        Column("per_group", Integer),
        # 1: claims take turns among the groups that have due jobs. Then ``per_group`` is EVERY_MEMBER.
        Column("fair", Integer, nullable=False, server_default=text("0")),
        **MYSQL,
    )


def workers(name: str, metadata: MetaData) -> Table:
    """The worker registry. Monitoring and the check for dead processes of a host read it. Nothing else depends on it."""
    return Table(
        f"{name}_workers",
        metadata,
        Column("name", String(WORKER_LENGTH), primary_key=True),
        Column("host", String(WORKER_LENGTH), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("queues", LONG_TEXT, nullable=False),  # JSON: {queue: slots}
        Column("state", String(20), nullable=False),
        Column("in_hand", Integer, nullable=False, server_default=text("0")),
        Column("counters", LONG_TEXT, nullable=False),  # JSON: {what: number}
        Column("started_at", BigInteger, nullable=False, server_default=now_us()),
        Column("seen_at", BigInteger, nullable=False, server_default=now_us()),
        # The number of slots whose handlers have not returned after a timeout or a lost lease.
        Column("stuck", Integer, nullable=False, server_default=text("0")),
        **MYSQL,
    )


def errors(name: str, metadata: MetaData) -> Table:
    """The latest failed attempts of each job."""
    return Table(
        f"{name}_errors",
        metadata,
        Column("job_id", BIG_ID, primary_key=True, autoincrement=False),
        # The version of the job when it failed. ``attempt`` is not unique, since attempts restart when a dead job is redriven.
        Column("version", BigInteger, primary_key=True, autoincrement=False),
        Column("attempt", Integer, nullable=False),
        Column("failed_at", BigInteger, nullable=False, server_default=now_us()),
        Column("worker", String(WORKER_LENGTH)),
        Column("error_class", String(CLASS_LENGTH), nullable=False),
        Column("message", LONG_TEXT, nullable=False),
        Column("trace", LONG_TEXT),
        # NULL: the row was written by a version of the library without these columns.
        Column("queue", String(QUEUE_LENGTH)),
        Column("kind", String(KIND_LENGTH)),
        # DELETE FROM jobs_errors WHERE failed_at < ?
        Index(f"{name}_errors_age", "failed_at"),
        **MYSQL,
    )


def finished(name: str, metadata: MetaData) -> Table:
    """The completed jobs that their queue or handler retains, with their results, until they expire."""
    return Table(
        f"{name}_finished",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=False),  # the id that the job had
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", LONG_TEXT),
        Column("attempts", Integer, nullable=False),
        Column("worker", String(WORKER_LENGTH)),
        Column("result", LONG_TEXT),
        Column("created_at", BigInteger, nullable=False),
        Column("finished_at", BigInteger, nullable=False, server_default=now_us()),
        Column("expires_at", BigInteger, nullable=False),
        # DELETE FROM jobs_finished WHERE expires_at < ?
        Index(f"{name}_finished_age", "expires_at"),
        # SELECT … FROM jobs_finished WHERE queue = ? AND id > ? ORDER BY id LIMIT ?
        Index(f"{name}_finished_queue", "queue", "id"),
        **MYSQL,
    )
