"""The verbs of groups and batches, behind those of ``QueueDB`` and ``Queue``, which document them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError
from queue_db.groups.store import batches, groups
from queue_db.model import NewJob, from_micros
from queue_db.store import Transaction, enqueue
from queue_db.store.portions import portions
from queue_db.strategies import policies
from queue_db.verbs.enqueue import Enqueue
from queue_db.verbs.new_jobs import JobBuilder, policy, with_headers

_BATCH = Run("enqueue_batch")
_ORDER = Run("groups.order", upserts=True)
# Of an iterator with several chunks, which cannot be read again.
_BATCH_ONCE = Run("enqueue_batch", attempts=1)

#: The options of the callback job of a batch.
CALLBACK_OPTIONS = frozenset({"priority", "max_attempts", "headers"})

_SINGLE, _PAIR, _TRIPLE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Progress of a batch of jobs."""

    id: int
    queue: str  #: the queue of the callback job
    jobs: int
    pending: int  #: still in the queue
    dead: int  #: in the dead table
    cancelled: int
    created_at: datetime


class Groups:
    """The verbs of groups and batches."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def repair(self, queue: str) -> int:
        if self._core.read("groups.unordered", groups.unordered, queue):
            # The queue is fair no more. Until all processes know it, completions admit no next job of a group, so no job may wait
            # for others yet. A process that stops here leaves the rest to the next repair.
            self._core.database.pause(2 * policies.FRESH)
            self._core.run(_ORDER, groups.order, queue)
        incomplete = self._core.read("groups.incomplete", groups.incomplete, queue)
        # A few groups in one transaction: other transactions wait for the locked groups.
        for portion in portions(incomplete, groups.AT_ONCE):
            self._core.write("groups.repair", groups.repair, portion)
        return len(incomplete)

    def batch(self, batch_id: int) -> Batch | None:
        row = self._core.read("groups.find_batch", batches.find_batch, arguments.whole("batch_id", batch_id, 0, 2**63 - 1))
        return None if row is None else _batch(row)

    def batches(self, limit: int, after: Batch | int | None) -> list[Batch]:
        arguments.whole("limit", limit, 1)
        last = after.id if isinstance(after, Batch) else after
        below = None if last is None else arguments.whole("after", last, 0, 2**63 - 1)
        return [_batch(row) for row in self._core.read("groups.page_of_batches", batches.page_of_batches, below=below, limit=limit)]

    def enqueue_batch(
        self,
        into: Enqueue,
        builder: JobBuilder,
        jobs: Iterable[Any],
        then: Any,
        on_duplicate: str,
        using: Using | None,
    ) -> tuple[int, list[int | None]]:
        chosen = policy(on_duplicate)
        if chosen.last_wins:
            wrong = "a job that replaces another cannot be counted; use raise or skip"
            raise ArgumentError(f"on_duplicate={on_duplicate!r}: {wrong}")
        provided = self._core.headers()
        callback = _callback(builder, then, provided)
        chunks = builder.chunks(jobs, provided)
        self._core.ready()  # before the iterable is read: it may be readable only once
        first = next(chunks, [])
        second = next(chunks, None)
        several = second is not None

        def enqueue_batch(tx: Transaction) -> tuple[int, list[int | None]]:
            batch = batches.make(tx, callback)
            ids: list[int | None] = []
            for chunk in chain([first], () if second is None else chain([second], chunks)):
                counted = [job._replace(callback_id=batch) for job in chunk]
                with enqueue.after(len(ids)):
                    ids += enqueue.insert_jobs(tx, counted, chosen, more=several)
            due = batches.expect(tx, batch, len(ids) - ids.count(None))
            enqueue.insert_jobs(tx, due, chosen)
            tx.wake(into.queue)
            return batch, ids

        again = None if several else partial(iter, [first])
        return into.run(_BATCH_ONCE if several else _BATCH, enqueue_batch, using, read=again)


def _batch(row: Any) -> Batch:
    return Batch(row.id, row.queue, row.size, row.pending, row.dead, row.cancelled, from_micros(row.created_at))


def _callback(builder: JobBuilder, then: Any, provided: Mapping[str, Any] | None) -> NewJob:
    """The callback job of a batch.

    :param provided: headers to add; the job's own headers win.
    :raises ArgumentError, PayloadError: the message names the wrong argument.
    """
    if not isinstance(then, tuple | list) or len(then) not in (_SINGLE, _PAIR, _TRIPLE):
        raise arguments.wrong("then", then, ": must be (kind, payload) or (kind, payload, options)")
    options = then[2] if len(then) == _TRIPLE else {}
    if not isinstance(options, Mapping) or set(options) - CALLBACK_OPTIONS:
        raise arguments.wrong("then", then, f": its options may be {', '.join(sorted(CALLBACK_OPTIONS))}")
    kind, payload, *rest = with_headers(then, provided) if provided else (*then, None)[: max(len(then), _PAIR)]
    return builder.job(kind, payload, **(rest[0] if rest else {}))
