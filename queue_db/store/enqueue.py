"""New jobs: one or many, with what happens when a live job has the unique key already."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import Connection, update

from queue_db.clock import moment
from queue_db.dialects.base import due_time
from queue_db.errors import DuplicateJobError, TransientStorageError
from queue_db.model import NewJob
from queue_db.store.base import Store


class OnDuplicate(StrEnum):
    """What becomes of a new job whose unique key a live job has."""

    RAISE = "raise"
    SKIP = "skip"
    #: The new content takes the old job's place and id; a worker that holds the old one loses its lease.
    REPLACE = "replace"


# A lost race for one key; more in a row than this is not chance.
_RACES = 8


def insert_jobs(connection: Connection, store: Store, jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> list[int | None]:
    """Insert ``jobs`` and return their ids by position, None where one was skipped.

    Within ``jobs`` the first of a key wins under RAISE and SKIP, the last under REPLACE.

    :raises DuplicateJobError: under RAISE, with nothing said about the other rows: the caller undoes them.
    """
    places = _one_of_each_key(jobs, on_duplicate)
    rows: Sequence[NewJob] = jobs if len(places) == len(jobs) else [jobs[position] for position in places]
    now = store.time().get("now")
    table = store.tables.jobs
    ids: list[int | None] = [None] * len(jobs)
    for race in range(_RACES):
        inserted = store.dialect.insert_new(connection, table, rows, now)
        if len(inserted) == len(jobs) and None not in inserted:
            return inserted
        for position, job_id in zip(places, inserted, strict=True):
            ids[position] = job_id
        duplicates = [(position, row) for position, row, job_id in zip(places, rows, inserted, strict=True) if job_id is None]
        if not duplicates or on_duplicate is OnDuplicate.SKIP:
            return ids
        keys = [row.key for _, row in duplicates if row.key is not None]
        live = store.dialect.live_keys(connection, table, keys, current=race > 0)
        if on_duplicate is OnDuplicate.RAISE:
            existing = live.get(keys[0])
            raise DuplicateJobError(unique_key=keys[0][1], existing_id=existing[0] if existing else None)
        missed = []
        for position, row in duplicates:
            found = live.get(row.key)
            if found is not None and _replace(connection, store, found, row):
                ids[position] = found[0]
            else:
                missed.append((position, row))  # it was completed or changed meanwhile: try to insert again
        if not missed:
            return ids
        places, rows = [position for position, _ in missed], [row for _, row in missed]
    raise TransientStorageError("the jobs to replace changed again and again", statement_name="insert_jobs")


def _one_of_each_key(jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> Sequence[int]:
    """Positions of the jobs to insert."""
    chosen: dict[tuple[str, str], int] = {}
    for position, job in enumerate(jobs):
        if (key := job.key) is not None:
            if key in chosen and on_duplicate is OnDuplicate.RAISE:
                raise DuplicateJobError(unique_key=key[1], existing_id=None)
            if key not in chosen or on_duplicate is OnDuplicate.REPLACE:
                chosen[key] = position
    if not chosen:
        return range(len(jobs))
    return [position for position, job in enumerate(jobs) if job.key is None or chosen[job.key] == position]


def _replace(connection: Connection, store: Store, found: tuple[int, int], row: NewJob) -> bool:
    """Put ``row`` in the place of the live job ``found`` (id, version); False if it changed meanwhile."""
    jobs = store.tables.jobs
    now = moment(store.clock is not None)
    fresh = {name: getattr(row, name) for name in ("kind", "payload", "headers", "priority", "max_attempts")}
    statement = (
        update(jobs)
        .where(store.dialect.match(jobs, [found]))
        # A new content is a new job: its attempts start again, and whoever works on the old one has lost it.
        .values(
            version=jobs.c.version + 1,
            attempts=0,
            claim_token=None,
            worker=None,
            progress=None,
            progress_note=None,
            last_error=None,
            due_at=None,
            available_at=due_time(now, row.after, row.not_before),
            created_at=now,
            **fresh,
        )
    )
    return connection.execute(statement, store.time()).rowcount == 1
