"""New jobs: one or many, with what happens when a live job has the unique key already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, update

from queue_db.clock import moment
from queue_db.dialects.base import due_time
from queue_db.errors import DuplicateJobError, TransientStorageError
from queue_db.store.base import Store


class OnDuplicate(StrEnum):
    """What becomes of a new job whose unique key a live job has."""

    RAISE = "raise"
    SKIP = "skip"
    #: The new content takes the old job's place and id; a worker that holds the old one loses its lease.
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to insert, checked and encoded. Times in microseconds."""

    queue: str
    kind: str
    payload: str
    headers: str | None
    priority: int
    delay: int
    run_at: int | None
    unique_key: str | None
    max_attempts: int


# A lost race for one key; more in a row than this is not chance.
_RACES = 8


def insert_jobs(connection: Connection, store: Store, jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> list[int | None]:
    """Insert ``jobs`` and return their ids by position, None where one was skipped.

    Within ``jobs`` the first of a key wins under RAISE and SKIP, the last under REPLACE.

    :raises DuplicateJobError: under RAISE, with nothing said about the other rows: the caller undoes them.
    """
    places = _one_of_each_key(jobs, on_duplicate)
    rows = [_row(jobs[position]) for position in places]
    now = store.time().get("now")
    table = store.tables.jobs
    ids: list[int | None] = [None] * len(jobs)
    for race in range(_RACES):
        inserted = store.dialect.insert_new(connection, table, rows, now)
        for position, job_id in zip(places, inserted, strict=True):
            ids[position] = job_id
        duplicates = [(position, row) for position, row, job_id in zip(places, rows, inserted, strict=True) if job_id is None]
        if not duplicates or on_duplicate is OnDuplicate.SKIP:
            return ids
        live = store.dialect.live_keys(connection, table, [row for _, row in duplicates], current=race > 0)
        if on_duplicate is OnDuplicate.RAISE:
            first = duplicates[0][1]
            existing = live.get((first["queue"], first["unique_key"]))
            raise DuplicateJobError(unique_key=first["unique_key"], existing_id=existing[0] if existing else None)
        missed = []
        for position, row in duplicates:
            found = live.get((row["queue"], row["unique_key"]))
            if found is not None and _replace(connection, store, found, row):
                ids[position] = found[0]
            else:
                missed.append((position, row))  # it was completed or changed meanwhile: try to insert again
        if not missed:
            return ids
        places, rows = [position for position, _ in missed], [row for _, row in missed]
    raise TransientStorageError("the jobs to replace changed again and again", statement_name="insert_jobs")


def _one_of_each_key(jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> list[int]:
    """Positions of the jobs to insert."""
    chosen: dict[tuple[str, str], int] = {}
    for position, job in enumerate(jobs):
        if job.unique_key is not None:
            key = (job.queue, job.unique_key)
            if key in chosen and on_duplicate is OnDuplicate.RAISE:
                raise DuplicateJobError(unique_key=job.unique_key, existing_id=None)
            if key not in chosen or on_duplicate is OnDuplicate.REPLACE:
                chosen[key] = position
    return [
        position for position, job in enumerate(jobs) if job.unique_key is None or chosen[job.queue, job.unique_key] == position
    ]


def _row(job: NewJob) -> dict[str, Any]:
    return {
        "queue": job.queue,
        "kind": job.kind,
        "payload": job.payload,
        "headers": job.headers,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "unique_key": job.unique_key,
        "after": job.delay,
        "not_before": job.run_at or 0,
    }


def _replace(connection: Connection, store: Store, found: tuple[int, int], row: dict[str, Any]) -> bool:
    """Put ``row`` in the place of the live job ``found`` (id, version); False if it changed meanwhile."""
    jobs = store.tables.jobs
    now = moment(store.clock is not None)
    fresh = {name: row[name] for name in ("kind", "payload", "headers", "priority", "max_attempts")}
    statement = (
        update(jobs)
        .where(store.dialect.match(jobs, [found]))
        # A new content is a new job: its attempts start again, and whoever works on the old one has lost it.
        .values(
            version=jobs.c.version + 1,
            attempts=0,
            claim_token=None,
            worker=None,
            last_error=None,
            due_at=None,
            available_at=due_time(now, row["after"], row["not_before"]),
            created_at=now,
            **fresh,
        )
    )
    return connection.execute(statement, store.time()).rowcount == 1
