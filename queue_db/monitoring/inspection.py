"""What a queue, its jobs and its workers look like now: behind the verbs of ``QueueDB`` and ``Queue`` that change nothing."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Any

from queue_db import arguments
from queue_db.codecs import decoded_or_text
from queue_db.core import Core, observe, read_within
from queue_db.dialects.borrowed import Using
from queue_db.errors import JobDeadError, JobNotFinishedError, JobNotFoundError
from queue_db.model import Job, State, from_micros
from queue_db.monitoring.failures import FailureGroup, grouped
from queue_db.monitoring.listing import list_jobs
from queue_db.monitoring.model import Finished, JobError, JobPage, QueueStats, WorkerInfo
from queue_db.monitoring.store import counts, jobs
from queue_db.store import worker_registry
from queue_db.store.schema import KIND_LENGTH, QUEUE_LENGTH
from queue_db.verbs.claim import MAX_CLAIM
from queue_db.verbs.job_rows import job_from_row

# Seconds between two reads while waiting for a result: the first pause and the longest.
_FIRST_WAIT = 0.005
_LONGEST_WAIT = 0.25


class Inspection:
    """The verbs that only read, with the arguments, results and errors that ``QueueDB`` and ``Queue`` document."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # --- a queue ----------------------------------------------------------------------------------------------------

    def queues(self) -> list[str]:
        return self._core.read("monitoring.queues", counts.queues)

    def peek(self, queue: str, limit: int) -> list[Job]:
        arguments.whole("limit", limit, 1, MAX_CLAIM)
        return [
            job_from_row(row, State.AVAILABLE, self._core.codec)
            for row in self._core.read("monitoring.due_jobs", jobs.due_jobs, queue, limit)
        ]

    def page(self, queue: str, state: str, **wanted: Any) -> JobPage:
        return list_jobs(self._core, queue, state, **wanted)

    def stats(self, queue: str, most: int | None = None) -> QueueStats:
        most = None if most is None else arguments.whole("most", most, 1)
        return observe(self._core, "monitoring.stats", counts.stats, queue, most)

    def counted(self, queue: str, most: int | None = None) -> QueueStats:
        """:meth:`stats` of this moment, to decide by."""
        return self._core.read("monitoring.stats", counts.stats, queue, most)

    def workers(self) -> list[WorkerInfo]:
        return [
            WorkerInfo(
                name=row.name,
                host=row.host.partition("/")[0],
                pid=row.pid,
                queues=json.loads(row.queues),
                state=row.state,
                in_hand=row.in_hand,
                stuck=row.stuck,
                counters=json.loads(row.counters),
                started_at=from_micros(row.started_at),
                seen_at=from_micros(row.seen_at),
                silent=max(0.0, (row.now - row.seen_at) / 1_000_000),
            )
            for row in self._core.read("worker_registry.all_workers", worker_registry.all_workers)
        ]

    # --- a job ------------------------------------------------------------------------------------------------------

    def state(self, job_id: int, using: Using | None = None) -> State:
        return read_within(self._core, using, "monitoring.state", jobs.state, _checked(job_id))

    def live(self, ids: Sequence[int]) -> set[int]:
        return self._core.read("monitoring.live", jobs.live, ids)

    def errors(self, job_id: int) -> list[JobError]:
        return [
            JobError(row.attempt, from_micros(row.failed_at), row.worker, row.error_class, row.message, row.trace, row.version)
            for row in self._core.read("monitoring.errors_of", jobs.errors_of, _checked(job_id))
        ]

    def failures(self, queue: str | None, kind: str | None, error_class: str | None, limit: int) -> list[FailureGroup]:
        return grouped(self._core, queue, kind, error_class, limit)

    # --- results ----------------------------------------------------------------------------------------------------

    def finished(self, job_id: int, using: Using | None = None) -> Finished:
        row = read_within(self._core, using, "monitoring.finished", jobs.finished, _checked(job_id))
        if row is None:
            state = self.state(job_id, using)
            if state is State.COMPLETED:  # completed after the first read
                row = read_within(self._core, using, "monitoring.finished", jobs.finished, job_id)
            if row is None:
                raise _not_finished(job_id, state)
        return self._finished(row)

    def finished_jobs(self, queue: str | None, kind: str | None, limit: int, after: Finished | None) -> list[Finished]:
        if queue is not None:
            arguments.name("queue", queue, QUEUE_LENGTH)
        if kind is not None:
            arguments.name("kind", kind, KIND_LENGTH)
        arguments.whole("limit", limit, 1)
        if after is not None and not isinstance(after, Finished):
            raise arguments.wrong("after", after, ": must be the last one of the previous page")
        above = -1 if after is None else after.id
        page = observe(self._core, "monitoring.finished_page", jobs.finished_page, queue=queue, kind=kind, above=above, limit=limit)
        return [self._finished(row) for row in page]

    def wait(self, job_id: int, timeout: float) -> Finished:
        until = time.monotonic() + arguments.seconds("timeout", timeout) / 1_000_000
        pause = _FIRST_WAIT
        while True:
            state = self.state(job_id)
            if state is State.COMPLETED:
                return self.finished(job_id)
            if state in (State.DEAD, State.UNKNOWN):
                raise _not_finished(job_id, state)
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job_id} is still {state.value} after {timeout:g} s")
            self._core.database.pause(min(left, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, _LONGEST_WAIT)

    def _finished(self, row: Any) -> Finished:
        codec = self._core.codec
        return Finished(
            id=row.id,
            queue=row.queue,
            kind=row.kind,
            payload=None if row.payload is None else decoded_or_text(codec, row.payload),
            result=None if row.result is None else decoded_or_text(codec, row.result),
            attempts=row.attempts,
            worker=row.worker,
            created_at=from_micros(row.created_at),
            finished_at=from_micros(row.finished_at),
            expires_at=from_micros(row.expires_at),
        )


def _checked(job_id: int) -> int:
    return arguments.whole("job_id", job_id, 0, 2**63 - 1)


def _not_finished(job_id: int, state: State) -> JobNotFoundError:
    """Why a job in this state has no result."""
    if state is State.DEAD:
        return JobDeadError(job_id)
    if state not in (State.COMPLETED, State.UNKNOWN):
        return JobNotFinishedError(job_id, state.value)
    kept = "it was completed, and its result was not retained (handles(…, result_ttl=seconds)) or has expired"
    gone = f"nothing is left of job {job_id}: {kept}; or it was cancelled or purged, or never existed"
    return JobNotFoundError(job_id, "the finished jobs", message=gone)
