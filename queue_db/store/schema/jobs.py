"""The tables of live and dead jobs, and of unique keys. The comment above each index has the statement that needs the index."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Computed, Double, Index, Integer, MetaData, String, Table, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import (
    BIG_ID,
    DEFAULT_KIND,
    DEFAULT_MAX_ATTEMPTS,
    KEY_LENGTH,
    KIND_LENGTH,
    LONG_TEXT,
    MYSQL,
    NOTE_LENGTH,
    PADDING,
    POSTGRESQL_CHURN,
    QUEUE_LENGTH,
    TOKEN_LENGTH,
    WORKER_LENGTH,
)


def jobs(name: str, metadata: MetaData, *, unique_queue: bool) -> Table:
    """The table of live jobs. It is short, since jobs leave it when they are done. ``unique_queue`` is as in ``Dialect``."""
    table = Table(
        name,
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False, server_default=DEFAULT_KIND),
        Column("payload", LONG_TEXT, nullable=False),
        Column("headers", LONG_TEXT),
        # Lower numbers are claimed first. Jobs with the same number are claimed by available_at, then by id.
        Column("priority", Integer, nullable=False, server_default=text("0")),
        # When the job is due. While the job is leased, this is the end of the lease.
        Column("available_at", BigInteger, nullable=False, server_default=now_us()),
        # For a claimed job: when it was due (its available_at before the claim). For a blocked job: when it is due after its
        # admission.
        Column("due_at", BigInteger),
        # Raised by every change of state, never lowered: (id, version) identifies one lease.
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("max_attempts", Integer, nullable=False, server_default=text(str(DEFAULT_MAX_ATTEMPTS))),
        Column("unique_key", String(KEY_LENGTH)),
        # Random for each claim; NULL while the job is not leased.
        Column("claim_token", String(TOKEN_LENGTH)),
        Column("worker", String(WORKER_LENGTH)),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        Column("last_error", LONG_TEXT),
        # 1: the job was completed with removal="delete_mark", and waits in the queue MARKED for the sweeper.
        Column("delete_mark", Integer, nullable=False, server_default=text("0")),
        # Jobs with the same key run in the order of their ids, as many at once as the queue allows (default 1).
        Column("group_key", String(KEY_LENGTH)),
        # The batch of the job, whose count of jobs goes down when the job leaves. Minus the id of the graph of which it is a node.
        Column("callback_id", BigInteger),
        # The progress that the handler has reported, from 0 to 1.
        Column("progress", Double),
        # The handler's note on the progress.
        Column("progress_note", String(NOTE_LENGTH)),
        # When a worker without a handler for the kind first claimed the job. NULL again after a worker with a handler has freed the
        # job.
        Column("unknown_since", BigInteger),
        # The claim empties this column. So on MySQL and MariaDB a claim does not make the row longer, and the row keeps its place
        # on a full page.
        Column("padding", PADDING, server_default=text("''")),
        sqlite_autoincrement=True,  # never reuse an id, or (id, version) could identify two leases
        postgresql_with=POSTGRESQL_CHURN,
        **MYSQL,
    )
    _index_jobs(name, table, unique_queue=unique_queue)
    return table


def _index_jobs(name: str, table: Table, *, unique_queue: bool) -> None:
    # The claim reads one range for each priority. The index has the order of the claim:
    #   SELECT id, version FROM jobs WHERE queue = ? AND priority = ? AND available_at BETWEEN ? AND now
    #   ORDER BY available_at, id LIMIT ?
    # The sweeper finds marked jobs by the same index:
    #   SELECT id FROM jobs WHERE queue = '' AND delete_mark = 1 LIMIT ?
    Index(f"{name}_claim", table.c.queue, table.c.priority, table.c.available_at, table.c.id)
    # A key is unique among live jobs, even if several transactions enqueue at the same time:
    #   INSERT … ON CONFLICT (queue, unique_key) …;  SELECT id FROM jobs WHERE queue = ? AND unique_key IN (…)
    key = table.c.queue, table.c.unique_key
    if unique_queue:
        # Stored: MariaDB makes wrong entries for a virtual column if an index is built while others write.
        keyed = Computed("CASE WHEN unique_key IS NOT NULL THEN queue END", persisted=True)
        table.append_column(Column("unique_queue", String(QUEUE_LENGTH), keyed))
        key = table.c.unique_key, table.c.unique_queue
    Index(
        f"{name}_unique_key",
        *key,
        unique=True,
        # Most jobs have no key. If the database has partial indexes, such jobs have no entry in this index. Otherwise their entries
        # are all NULL: a cluster of Galera takes any others that are equal for a conflict of two transactions.
        postgresql_where=table.c.unique_key.is_not(None),
        sqlite_where=table.c.unique_key.is_not(None),
    )
    # Find the next jobs of a group. No claim changes the columns of this index:
    #   SELECT id, version, available_at FROM jobs WHERE queue = ? AND group_key = ? ORDER BY id LIMIT ?
    Index(
        f"{name}_group",
        table.c.queue,
        table.c.group_key,
        table.c.id,
        postgresql_where=table.c.group_key.is_not(None),
        sqlite_where=table.c.group_key.is_not(None),
    )
    _index_groups_by_time(name, table, generated=unique_queue)


def _index_groups_by_time(name: str, table: Table, *, generated: bool) -> None:
    """The index by which the claims of a fair queue take turns among its groups.

    :param generated: the database has no partial indexes. Then the entries of jobs without a group are all NULL, so that no claim
        of such a job changes the index.
    """
    # Step to the next group, and read its first due jobs:
    #   SELECT group_key FROM jobs WHERE queue = ? AND priority = ? AND group_key > ? ORDER BY group_key LIMIT 1
    #   SELECT id FROM jobs WHERE queue = ? AND priority = ? AND group_key = ? AND available_at <= now ORDER BY available_at, id
    queue, at = table.c.queue, table.c.available_at
    if generated:
        # Stored, as the queue of a unique key is.
        for column, kind, of in (("grouped_queue", String(QUEUE_LENGTH), "queue"), ("grouped_at", BigInteger, "available_at")):
            grouped = Computed(f"CASE WHEN group_key IS NOT NULL THEN {of} END", persisted=True)
            table.append_column(Column(column, kind, grouped))
        queue, at = table.c.grouped_queue, table.c.grouped_at
    Index(
        f"{name}_fair",
        queue,
        table.c.priority,
        table.c.group_key,
        at,
        table.c.id,
        postgresql_where=table.c.group_key.is_not(None),
        sqlite_where=table.c.group_key.is_not(None),
        # Compares as Python does, in a database of any collation: by code points.
        postgresql_ops={"group_key": "varchar_pattern_ops"},
    )


def dead(name: str, metadata: MetaData) -> Table:
    """The table of dead jobs. A dead job has no attempts left or was rejected."""
    return Table(
        f"{name}_dead",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=False),  # the id that the job had
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", LONG_TEXT, nullable=False),
        Column("headers", LONG_TEXT),
        Column("priority", Integer, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("unique_key", String(KEY_LENGTH)),
        Column("worker", String(WORKER_LENGTH)),
        Column("created_at", BigInteger, nullable=False),
        Column("died_at", BigInteger, nullable=False, server_default=now_us()),
        Column("last_error", LONG_TEXT),
        Column("group_key", String(KEY_LENGTH)),
        # As in the table of jobs. A redriven job is still a node of its graph, but its batch has counted it.
        Column("callback_id", BigInteger),
        # List, count and purge the dead jobs of one queue, longest dead first:
        #   SELECT … FROM jobs_dead WHERE queue = ? ORDER BY died_at, id LIMIT ?
        Index(f"{name}_dead_queue", "queue", "died_at", "id"),
        **MYSQL,
    )


def windows(name: str, metadata: MetaData) -> Table:
    """Unique keys that stay taken for a given time after their job was enqueued, even if the job has left."""
    return Table(
        f"{name}_windows",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("unique_key", String(KEY_LENGTH), primary_key=True),
        Column("job_id", BIG_ID, nullable=False),
        Column("ends_at", BigInteger, nullable=False),
        # DELETE FROM jobs_windows WHERE ends_at < ?
        Index(f"{name}_windows_age", "ends_at"),
        **MYSQL,
    )
