"""Streams: claimed batches that are recorded, so that they can be read again, and held until they are completed.

The protocol. The batches of a stream are numbered from 1. All up to ``acked`` are completed; those up to ``allocated`` are claimed,
and their jobs are in the table of held jobs. An *offset* is a batch number and the random token of the batch's claim. Every change
is one transaction on the locked row of the stream, is idempotent, and is fenced by ``epoch``: opening the stream raises it, and an
earlier reader finds it higher and stops. A claim and its record commit together; a replay reads the record and never the queue;
``acked`` only increases.

A claimed job leaves the jobs table, so jobs held for days slow no claim down. A job with a unique key, a group or a batch keeps
its row there too, leased without end: its key stays taken, its group waits, its batch counts it.
"""

from queue_db.spark.streams.store.completion import complete, complete_claim, complete_committed, complete_held, mark_dead
from queue_db.spark.streams.store.overview import backlog, highest_due, listed, maybe_written
from queue_db.spark.streams.store.position import Offset, Part, Session
from queue_db.spark.streams.store.reading import allocate, initial, keep_alive, measured, open_stream, partition, read_part
from queue_db.spark.streams.store.releases import expired, release, release_expired

__all__ = [
    "Offset",
    "Part",
    "Session",
    "allocate",
    "backlog",
    "complete",
    "complete_claim",
    "complete_committed",
    "complete_held",
    "expired",
    "highest_due",
    "initial",
    "keep_alive",
    "listed",
    "mark_dead",
    "maybe_written",
    "measured",
    "open_stream",
    "partition",
    "read_part",
    "release",
    "release_expired",
]
