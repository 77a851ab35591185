"""The tables, for any name and schema prefix. Above each index stands the statement that needs it.

Two hold the jobs and their dead. The others belong to bulk loads that publish all or nothing (``_staged``, ``_published``), to
streams that hold what they have claimed until it is written elsewhere (``_streams``, ``_batches``, ``_held``), and to workers: what
may be said about a queue (``_queues``, ``_shares``), who works (``_workers``), what is to be done when (``_schedules``), what went
wrong (``_errors``) and what came of it (``_finished``). Around the jobs themselves are the locks of their groups (``_stripes``),
what is to be enqueued when all of some jobs are done (``_callbacks``), and keys that outlive their jobs (``_windows``).
Metrics of all processes share one look at the queues (``_samples``).

The migrations also make a view for people, ``jobs_state``; nothing here reads it.

Plain column types and server-side defaults: ``INSERT INTO jobs (queue, payload) VALUES (…)`` from any client makes a valid job.
All times are BIGINT microseconds since 1970, UTC, by the database's clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table, Text, text
from sqlalchemy.dialects.mysql import LONGTEXT

from queue_db.dialects.clock import now_us
from queue_db.errors import ArgumentError

#: The migration that this version of the package works with.
HEAD = "0008"

#: Longest texts, in characters, of the columns that are compared or indexed.
QUEUE_LENGTH = 100
KIND_LENGTH = 100
KEY_LENGTH = 200
WORKER_LENGTH = 100
TOKEN_LENGTH = 36
APP_LENGTH = 200
STREAM_LENGTH = 100
SCHEDULE_LENGTH = 100
RULE_LENGTH = 200
ZONE_LENGTH = 64
CLASS_LENGTH = 200
NOTE_LENGTH = 200
SAMPLE_LENGTH = 40

DEFAULT_KIND = "default"
DEFAULT_MAX_ATTEMPTS = 25

#: The due time of a job that keeps its row while a stream holds it: in the year 9998 it never comes, it can be shown, and nobody
#: else puts a job off to just this microsecond.
NEVER = 253_355_317_443_020_109

#: The due time of a job that waits for those before it in its group; ``due_at`` has its own.
BLOCKED = NEVER + 1

#: The queue of jobs that are marked as done, a name that no queue has: no claim meets them, and the sweeper finds them together.
MARKED = ""

#: Rows of the table of stripes.
STRIPES = 64

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,39}\Z")

# Binary collation: MySQL's default ones take "Mail" and "mail" for the same queue, and MariaDB 10.11 still creates latin1 tables.
_MYSQL: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
}

#: A job's row is rewritten two or three times and then deleted: leave room on its page for the new versions, and
#: clean up by a fixed number of dead rows, since a share of a table that is empty most of the time says nothing.
POSTGRESQL_CHURN: dict[str, Any] = {
    "fillfactor": 50,
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 5000,
    "autovacuum_vacuum_insert_scale_factor": 0.2,
    "autovacuum_analyze_scale_factor": 0.1,
    "autovacuum_analyze_threshold": 5000,
    "autovacuum_vacuum_cost_delay": 0,
}


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one queue store."""

    metadata: MetaData
    jobs: Table
    dead: Table
    staged: Table
    published: Table
    streams: Table
    batches: Table
    held: Table
    queues: Table
    shares: Table
    workers: Table
    schedules: Table
    errors: Table
    finished: Table
    stripes: Table
    callbacks: Table
    windows: Table
    samples: Table
    #: Alembic's table, one for each pair of tables, so that two stores live side by side.
    version: str

    @property
    def name(self) -> str:
        return self.jobs.name

    @property
    def schema(self) -> str | None:
        return self.jobs.schema


def tables(name: str = "jobs", schema: str | None = None) -> Tables:
    """Describe the tables called ``name``, ``name_dead`` …, in ``schema`` when given.

    :raises ArgumentError: for a name that is not lower-case letters, digits and underscores (at most 40).
    """
    for what, identifier in (("table", name), ("schema", schema)):
        if what == "schema" and identifier is None:
            continue
        if not isinstance(identifier, str) or not _IDENTIFIER.match(identifier):
            raise ArgumentError(
                f"{what}={identifier!r:.60}: use 1 to 40 lower-case letters, digits and underscores, not starting with a digit"
            )
    return _tables(name, schema)


@lru_cache(maxsize=64)
def _tables(name: str, schema: str | None) -> Tables:
    metadata = MetaData(schema=schema)
    big_id = BigInteger().with_variant(Integer, "sqlite")
    long_text = Text().with_variant(LONGTEXT, "mysql", "mariadb")
    jobs = Table(
        name,
        metadata,
        Column("id", big_id, primary_key=True, autoincrement=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False, server_default=DEFAULT_KIND),
        Column("payload", long_text, nullable=False),
        Column("headers", long_text),
        # Lower number first; ties by available_at, then id.
        Column("priority", Integer, nullable=False, server_default=text("0")),
        # The visibility time: when the job is due; a claim pushes it forward to the end of the lease.
        Column("available_at", BigInteger, nullable=False, server_default=now_us()),
        # When the claimed job was due: available_at as the claim found it.
        Column("due_at", BigInteger),
        # Up with every change of state, never back: (id, version) names one lease for ever.
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("max_attempts", Integer, nullable=False, server_default=text(str(DEFAULT_MAX_ATTEMPTS))),
        Column("unique_key", String(KEY_LENGTH)),
        # Random for each claim; NULL while nobody holds the job.
        Column("claim_token", String(TOKEN_LENGTH)),
        Column("worker", String(WORKER_LENGTH)),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        Column("last_error", long_text),
        # 1: completed under removal="delete_mark", waiting for the sweeper in the queue MARKED.
        Column("delete_mark", Integer, nullable=False, server_default=text("0")),
        # Of those with the same one so many run at once as the queue says, by default one, in the order of their ids.
        Column("group_key", String(KEY_LENGTH)),
        # Whose count goes down when the job leaves.
        Column("callback_id", BigInteger),
        # How far the handler is, 0 to 1, and what it says about that.
        Column("progress", Double),
        Column("progress_note", String(NOTE_LENGTH)),
        # When a worker first found that it has no handler for the kind; NULL as soon as a handler has had the job.
        Column("unknown_since", BigInteger),
        sqlite_autoincrement=True,  # an id must never be used again: (id, version) would name two leases
        postgresql_with=POSTGRESQL_CHURN,
        **_MYSQL,
    )
    # The claim, one range for each priority, already in its order:
    #   SELECT id, version FROM jobs WHERE queue = ? AND priority = ? AND available_at BETWEEN ? AND now
    #   ORDER BY available_at, id LIMIT ?
    # And what is marked as done: SELECT id FROM jobs WHERE queue = '' AND delete_mark = 1 LIMIT ?
    Index(f"{name}_claim", jobs.c.queue, jobs.c.priority, jobs.c.available_at, jobs.c.id)
    # Uniqueness while a job lives, also among concurrent enqueues:
    #   INSERT … ON CONFLICT (queue, unique_key) …;  SELECT id FROM jobs WHERE queue = ? AND unique_key IN (…)
    Index(
        f"{name}_unique_key",
        jobs.c.queue,
        jobs.c.unique_key,
        unique=True,
        # Most jobs have no key: where the database can, they cost this index nothing.
        postgresql_where=jobs.c.unique_key.is_not(None),
        sqlite_where=jobs.c.unique_key.is_not(None),
    )
    # Who is next in a group; no claim changes what stands in it:
    #   SELECT id, version, available_at FROM jobs WHERE queue = ? AND group_key = ? ORDER BY id LIMIT ?
    Index(
        f"{name}_group",
        jobs.c.queue,
        jobs.c.group_key,
        jobs.c.id,
        postgresql_where=jobs.c.group_key.is_not(None),
        sqlite_where=jobs.c.group_key.is_not(None),
    )
    dead = Table(
        f"{name}_dead",
        metadata,
        Column("id", big_id, primary_key=True, autoincrement=False),  # the id that the job had
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", long_text, nullable=False),
        Column("headers", long_text),
        Column("priority", Integer, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("unique_key", String(KEY_LENGTH)),
        Column("worker", String(WORKER_LENGTH)),
        Column("created_at", BigInteger, nullable=False),
        Column("died_at", BigInteger, nullable=False, server_default=now_us()),
        Column("last_error", long_text),
        Column("group_key", String(KEY_LENGTH)),
        **_MYSQL,
    )
    # Listing, counting and purging the dead of one queue, oldest first:
    #   SELECT … FROM jobs_dead WHERE queue = ? ORDER BY died_at, id LIMIT ?
    Index(f"{name}_dead_queue", dead.c.queue, dead.c.died_at, dead.c.id)
    bulk = _bulk_tables(name, metadata, big_id, long_text)
    service = _worker_tables(name, metadata, big_id, long_text)
    around = _tables_around(name, metadata, big_id, long_text)
    return Tables(metadata, jobs, dead, *bulk, *service, *around, f"{name}_schema_version")


def _bulk_tables(name: str, metadata: MetaData, big_id: Any, long_text: Any) -> tuple[Table, Table, Table, Table, Table]:
    # What a task has staged and nobody has published yet: chunks of jobs as JSON, so that a million jobs are a thousand rows to
    # write and to delete. Found by the attempt, whose high bits are the time it began (store/staging.py), so also by age:
    #   INSERT INTO jobs SELECT … FROM jobs_staged … WHERE attempt IN (…);  DELETE FROM jobs_staged WHERE attempt < ?
    # PostgreSQL does not log it: after a crash it is empty, and a publication that misses rows is refused.
    staged = Table(
        f"{name}_staged",
        metadata,
        Column("attempt", big_id, primary_key=True, autoincrement=False),
        Column("place", Integer, primary_key=True, autoincrement=False),
        Column("size", Integer, nullable=False),
        Column("chunk", long_text, nullable=False),
        **_MYSQL,
    )
    # What has been published: the same (app, version) a second time into the same queue is nothing.
    published = Table(
        f"{name}_published",
        metadata,
        Column("app", String(APP_LENGTH), primary_key=True),
        Column("version", BigInteger, primary_key=True, autoincrement=False),
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("size", BigInteger, nullable=False),
        Column("skipped", BigInteger, nullable=False, server_default=text("0")),
        # 0: nobody will come again with this app; forgotten after a while.
        Column("kept", Integer, nullable=False, server_default=text("1")),
        Column("published_at", BigInteger, nullable=False, server_default=now_us()),
        **_MYSQL,
    )
    # DELETE FROM jobs_published WHERE kept = 0 AND published_at < ?
    Index(f"{name}_published_age", published.c.kept, published.c.published_at)
    streams = Table(
        f"{name}_streams",
        metadata,
        Column("id", big_id, primary_key=True, autoincrement=True),
        Column("name", String(STREAM_LENGTH), nullable=False, unique=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        # Up with every takeover and release: a reader with an older one is refused.
        Column("epoch", BigInteger, nullable=False, server_default=text("0")),
        # Batches are numbered from 1; all up to ``acked`` are completed, those up to ``allocated`` are claimed.
        Column("allocated", BigInteger, nullable=False, server_default=text("0")),
        Column("acked", BigInteger, nullable=False, server_default=text("0")),
        # The claim token of batch ``acked``: a checkpoint that knows another one comes from another history.
        Column("acked_claim", String(TOKEN_LENGTH), nullable=False),
        Column("holder", String(WORKER_LENGTH)),
        Column("retention", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        # When a reader last came by; ``retention`` counts from here.
        Column("seen_at", BigInteger, nullable=False, server_default=now_us()),
        sqlite_autoincrement=True,
        **_MYSQL,
    )
    batches = Table(
        f"{name}_batches",
        metadata,
        Column("stream", big_id, primary_key=True, autoincrement=False),
        Column("batch", BigInteger, primary_key=True, autoincrement=False),
        Column("claim", String(TOKEN_LENGTH), nullable=False),
        Column("size", Integer, nullable=False),
        # Of these have a unique key, and so a row in ``jobs`` too, which keeps the key taken.
        Column("keyed", Integer, nullable=False),
        # JSON: [[lowest id, highest id, jobs], …], one for each partition.
        Column("parts", long_text, nullable=False),
        Column("oldest_at", BigInteger, nullable=False),
        Column("claimed_at", BigInteger, nullable=False, server_default=now_us()),
        # How often a query got it: once for each epoch of the stream, however often its tasks read it. Rows of which nothing is
        # known count as delivered: they may have been written.
        Column("deliveries", Integer, nullable=False, server_default=text("1")),
        Column("delivered_epoch", BigInteger, nullable=False, server_default=text("0")),
        **_MYSQL,
    )
    # Jobs that a stream has claimed, out of the way of all other claims; read by ranges of ids:
    #   SELECT … FROM jobs_held WHERE stream = ? AND batch = ? AND id BETWEEN ? AND ?
    held = Table(
        f"{name}_held",
        metadata,
        Column("stream", big_id, primary_key=True, autoincrement=False),
        Column("batch", BigInteger, primary_key=True, autoincrement=False),
        Column("id", big_id, primary_key=True, autoincrement=False),  # the id that the job had
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", long_text, nullable=False),
        Column("headers", long_text),
        Column("priority", Integer, nullable=False),
        Column("available_at", BigInteger, nullable=False),  # when it was due
        Column("version", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("unique_key", String(KEY_LENGTH)),
        Column("created_at", BigInteger, nullable=False),
        Column("last_error", long_text),
        # Why the job goes to the dead when its batch is completed.
        Column("dead_reason", long_text),
        Column("group_key", String(KEY_LENGTH)),
        Column("callback_id", BigInteger),
        **_MYSQL,
    )
    return staged, published, streams, batches, held


def _worker_tables(name: str, metadata: MetaData, big_id: Any, long_text: Any) -> tuple[Table, Table, Table, Table, Table, Table]:
    # What was said about a queue; most queues have no row. Locked by whoever takes a share of its concurrency, or of its rate.
    queues = Table(
        f"{name}_queues",
        metadata,
        Column("name", String(QUEUE_LENGTH), primary_key=True),
        Column("paused", Integer, nullable=False, server_default=text("0")),
        # Jobs in hand at once, over all workers.
        Column("concurrency", Integer),
        # Jobs begun in ``per`` microseconds, over all workers. By ``spent_until`` those begun so far would be paid for one by one.
        Column("rate", Integer),
        Column("per", BigInteger),
        Column("spent_until", BigInteger, nullable=False, server_default=text("0")),
        # Jobs of each group in hand at once, over all workers; NULL: one.
        Column("per_group", Integer),
        **_MYSQL,
    )
    # How much of a queue's concurrency each worker may use: their sum is at most what the queue allows.
    shares = Table(
        f"{name}_shares",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("worker", String(WORKER_LENGTH), primary_key=True),
        Column("slots", Integer, nullable=False),
        Column("until", BigInteger, nullable=False),
        **_MYSQL,
    )
    # For people, and for those who find that a process of their machine is dead. Nothing depends on it.
    workers = Table(
        f"{name}_workers",
        metadata,
        Column("name", String(WORKER_LENGTH), primary_key=True),
        Column("host", String(WORKER_LENGTH), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("queues", long_text, nullable=False),  # JSON: {queue: slots}
        Column("state", String(20), nullable=False),
        Column("in_hand", Integer, nullable=False, server_default=text("0")),
        # Slots of handlers that have not returned although their jobs were taken from them: after a timeout, or a lost lease.
        Column("stuck", Integer, nullable=False, server_default=text("0")),
        Column("counters", long_text, nullable=False),  # JSON: {what: number}
        Column("started_at", BigInteger, nullable=False, server_default=now_us()),
        Column("seen_at", BigInteger, nullable=False, server_default=now_us()),
        **_MYSQL,
    )
    # Each slot is enqueued by whoever raises ``version``, in the same transaction: once, over any number of schedulers.
    schedules = Table(
        f"{name}_schedules",
        metadata,
        Column("name", String(SCHEDULE_LENGTH), primary_key=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", long_text, nullable=False),
        Column("headers", long_text),
        Column("priority", Integer, nullable=False, server_default=text("0")),
        Column("max_attempts", Integer, nullable=False, server_default=text(str(DEFAULT_MAX_ATTEMPTS))),
        Column("rule", String(RULE_LENGTH), nullable=False),
        Column("zone", String(ZONE_LENGTH), nullable=False),
        Column("catch_up", String(10), nullable=False),
        Column("paused", Integer, nullable=False, server_default=text("0")),
        Column("next_at", BigInteger, nullable=False),
        Column("last_at", BigInteger),
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        **_MYSQL,
    )
    # The latest failed attempts of each job.
    errors = Table(
        f"{name}_errors",
        metadata,
        Column("job_id", big_id, primary_key=True, autoincrement=False),
        # Of the job when it failed: attempts are counted anew when a dead job is redriven.
        Column("version", BigInteger, primary_key=True, autoincrement=False),
        Column("attempt", Integer, nullable=False),
        Column("failed_at", BigInteger, nullable=False, server_default=now_us()),
        Column("worker", String(WORKER_LENGTH)),
        Column("error_class", String(CLASS_LENGTH), nullable=False),
        Column("message", long_text, nullable=False),
        Column("trace", long_text),
        **_MYSQL,
    )
    # DELETE FROM jobs_errors WHERE failed_at < ?
    Index(f"{name}_errors_age", errors.c.failed_at)
    # What came of jobs whose queue or handler wants it kept, until it expires.
    finished = Table(
        f"{name}_finished",
        metadata,
        Column("id", big_id, primary_key=True, autoincrement=False),  # the id that the job had
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", long_text),
        Column("attempts", Integer, nullable=False),
        Column("worker", String(WORKER_LENGTH)),
        Column("result", long_text),
        Column("created_at", BigInteger, nullable=False),
        Column("finished_at", BigInteger, nullable=False, server_default=now_us()),
        Column("expires_at", BigInteger, nullable=False),
        **_MYSQL,
    )
    # DELETE FROM jobs_finished WHERE expires_at < ?
    Index(f"{name}_finished_age", finished.c.expires_at)
    # SELECT … FROM jobs_finished WHERE queue = ? AND id > ? ORDER BY id LIMIT ?
    Index(f"{name}_finished_queue", finished.c.queue, finished.c.id)
    return queues, shares, workers, schedules, errors, finished


def _tables_around(name: str, metadata: MetaData, big_id: Any, long_text: Any) -> tuple[Table, Table, Table, Table]:
    # Whoever adds a job to a group, or takes one out, changes the row that the group's name falls on, and then looks at the group:
    # so one after the other, and one who looks with an old snapshot is refused.
    stripes = Table(
        f"{name}_stripes",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        **_MYSQL,
    )
    # The job to enqueue when the last of some others has left.
    callbacks = Table(
        f"{name}_callbacks",
        metadata,
        Column("id", big_id, primary_key=True, autoincrement=True),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        Column("payload", long_text, nullable=False),
        Column("headers", long_text),
        Column("priority", Integer, nullable=False, server_default=text("0")),
        Column("max_attempts", Integer, nullable=False, server_default=text(str(DEFAULT_MAX_ATTEMPTS))),
        Column("size", Integer, nullable=False),
        Column("pending", Integer, nullable=False),
        Column("dead", Integer, nullable=False, server_default=text("0")),
        Column("cancelled", Integer, nullable=False, server_default=text("0")),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        sqlite_autoincrement=True,
        **_MYSQL,
    )
    # Keys that stay taken for a while, whatever becomes of their jobs.
    windows = Table(
        f"{name}_windows",
        metadata,
        Column("queue", String(QUEUE_LENGTH), primary_key=True),
        Column("unique_key", String(KEY_LENGTH), primary_key=True),
        Column("job_id", big_id, nullable=False),
        Column("ends_at", BigInteger, nullable=False),
        **_MYSQL,
    )
    # DELETE FROM jobs_windows WHERE ends_at < ?
    Index(f"{name}_windows_age", windows.c.ends_at)
    # What a look at all queues found, for those who would else look themselves; one process at a time takes the next sample.
    samples = Table(
        f"{name}_samples",
        metadata,
        Column("name", String(SAMPLE_LENGTH), primary_key=True),
        # Raised by the process that takes the next sample, so that only one does.
        Column("version", BigInteger, nullable=False, server_default=text("0")),
        Column("taken_at", BigInteger),
        # Not before then is the next one taken.
        Column("next_at", BigInteger, nullable=False, server_default=text("0")),
        Column("data", long_text),  # JSON
        **_MYSQL,
    )
    return stripes, callbacks, windows, samples
