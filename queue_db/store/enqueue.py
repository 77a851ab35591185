"""Insert new jobs, and decide what happens if a live job already has the unique key of a new job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import case, or_, select, update

from queue_db import arguments
from queue_db.dialects.clock import due_time
from queue_db.dialects.inserts import live_keys
from queue_db.dialects.statements import match
from queue_db.errors import ArgumentError, DuplicateJobError, TransientStorageError
from queue_db.model import NewJob, group_of
from queue_db.slices import Entry, dependents
from queue_db.store import unique_key_ttl
from queue_db.store.base import Transaction, next_version
from queue_db.store.schema import BLOCKED


class OnDuplicate(StrEnum):
    """What happens to a new job if a live job already has its unique key."""

    RAISE = "raise"
    SKIP = "skip"
    #: The old job gets the content of the new job and keeps its id. A worker that runs the old job loses its lease.
    REPLACE = "replace"
    #: As REPLACE, unless a worker runs the old job. In this case the worker keeps its lease, and the new job is inserted as another
    #: row.
    DEBOUNCE = "debounce"

    @property
    def last_wins(self) -> bool:
        """Whether the last of several new jobs with the same key is inserted."""
        return self in (OnDuplicate.REPLACE, OnDuplicate.DEBOUNCE)


class Added(NamedTuple):
    """The result of inserting jobs."""

    number: int  #: the number of jobs that were not skipped
    ids: Sequence[int | None]  #: the id of each job by position, None for a skipped job; empty if the caller needs no ids


@contextmanager
def after(number: int) -> Iterator[None]:
    """Add ``number`` to the position in an error of the block, which inserts the jobs of a list after the first ``number``."""
    try:
        yield
    except DuplicateJobError as error:
        if error.position is not None:
            error.position += number
        raise


def holder(tx: Transaction, queue: str, key: str, *, current: bool = False) -> int | None:
    """The id of the job that has the unique key: a live job, or a job whose ``unique_for`` is not over.

    :param current: if no live job is found, look again for a job that is newer than the transaction's snapshot.
    """
    find = partial(live_keys, tx, tx.tables.jobs, [(queue, key)])
    live = find() or (find(current=True) if current else {})
    return live[queue, key][0] if live else unique_key_ttl.holders(tx, queue, [key]).get(key)


# Fewer jobs than this are inserted by INSERT, since a bulk load takes one more round trip.
_LOADED = 100

# The most attempts to insert jobs. An attempt fails if another transaction completes or changes a job with the same key meanwhile.
_RACES = 8


def insert_jobs(
    tx: Transaction,
    jobs: Sequence[NewJob],
    on_duplicate: OnDuplicate,
    queue: str | None = None,
    *,
    more: bool = False,
) -> list[int | None]:
    """Insert ``jobs`` and return their ids by position, None for a skipped job.

    Of several ``jobs`` with the same key, SKIP inserts the first; REPLACE and DEBOUNCE insert the last; RAISE raises.

    :param queue: the queue of all ``jobs``, if the transaction adds nothing else. The transaction then begins here, unless one
        statement is enough. Its commit wakes the workers that wait for the queue. None: the caller begins the transaction and wakes
        the workers.
    :param more: the transaction inserts more jobs after these.
    :raises DuplicateJobError: a key is taken and ``on_duplicate`` is RAISE. The caller must roll the transaction back.
    :raises ArgumentError: a job would replace a job of another group, or REPLACE or DEBOUNCE is combined with ``unique_for``.
    """
    plain, due = bool(jobs), False
    for job in jobs:
        if job.unique_key is not None or job.group_key is not None:
            plain = False
        if not (job.after or job.not_before):
            due = True
    # If the connection breaks before the COMMIT, a transaction can be repeated, but a single statement cannot. So one plain job is
    # inserted without a transaction only if its connection is known to be alive.
    if queue is not None and not (plain and len(jobs) == 1 and tx.dialect.server.known_alive(tx)):
        tx.begin()  # here and not by the verb, which does not know the connection
    if plain:
        # No job can be skipped, so the INSERT statement itself sends the notification.
        notice = tx.notice(queue) if queue is not None and due else None
        clock = tx.store.clock
        return tx.dialect.inserts.insert_new(tx, tx.tables.jobs, jobs, None if clock is None else clock(), notice)
    places = _one_of_each_key(jobs, on_duplicate)
    windowed = any(job.unique_for for job in jobs)
    ids = (_insert_windowed if windowed else _insert_grouped)(tx, jobs, places, on_duplicate, more=more)
    if queue is not None and due:
        tx.wake(queue)
    return ids


def load_jobs(
    tx: Transaction,
    chunks: Iterable[Sequence[NewJob]],
    number: int,
    on_duplicate: OnDuplicate,
    *,
    ids: bool = True,
    more: bool = False,
    tied: bool = False,
) -> Added:
    """Insert chunks of jobs as :func:`insert_jobs` does. Many jobs without keys are inserted by the database's bulk load.

    :param chunks: the jobs. They may be read while the database loads earlier chunks.
    :param number: how many jobs are in ``chunks``.
    :param ids: whether the caller needs the ids of the jobs.
    :param more: there are several chunks, or the transaction inserts more jobs after them.
    :param tied: whether jobs have a callback.
    """
    parts: list[Added] = []
    for plain, alike in groupby(chunks, _plain):
        with after(sum(part.number for part in parts)):
            if plain:
                parts.append(_load_plain(tx, alike, None if parts else number, on_duplicate, ids=ids, more=more, tied=tied))
            else:
                parts.append(insert_chunks(tx, alike, on_duplicate, ids=ids, more=more))
    return Added(sum(part.number for part in parts), [job_id for part in parts for job_id in part.ids])


def _plain(jobs: Sequence[NewJob]) -> bool:
    return not any(job.unique_key is not None or job.group_key is not None for job in jobs)


def _load_plain(
    tx: Transaction,
    chunks: Iterable[Sequence[NewJob]],
    most: int | None,
    on_duplicate: OnDuplicate,
    *,
    ids: bool,
    more: bool,
    tied: bool,
) -> Added:
    """Insert jobs without keys by the bulk load, or by INSERT if they are few.

    :param most: the most jobs that ``chunks`` may have, and the number of ids to reserve. None: count the jobs first.
    """
    if most is None:
        chunks = list(chunks)
        most = sum(map(len, chunks))
    if most < _LOADED:
        return insert_chunks(tx, chunks, on_duplicate, ids=ids, more=more)
    loaded = tx.dialect.inserts.load_new(tx, tx.tables.jobs, chunks, most, tx.time().get("now"), ids=ids, tied=tied)
    return insert_chunks(tx, chunks, on_duplicate, ids=ids, more=more) if loaded is None else Added(*loaded)


def insert_chunks(
    tx: Transaction, chunks: Iterable[Sequence[NewJob]], on_duplicate: OnDuplicate, *, ids: bool, more: bool
) -> Added:
    """Call :func:`insert_jobs` for each chunk of jobs."""
    inserted: list[int | None] = []
    for chunk in chunks:
        with after(len(inserted)):
            inserted += insert_jobs(tx, chunk, on_duplicate, more=more)
    return Added(len(inserted) - inserted.count(None), inserted if ids else ())


def _insert_windowed(
    tx: Transaction, jobs: Sequence[NewJob], places: Sequence[int], on_duplicate: OnDuplicate, *, more: bool
) -> list[int | None]:
    """Insert the jobs at ``places`` whose keys are not taken by the ``unique_for`` of an earlier job."""
    if on_duplicate.last_wins:
        raise ArgumentError(
            f"unique_for and on_duplicate {on_duplicate.value!r} contradict each other: a job that is done cannot be replaced"
        )
    asked = [jobs[position] for position in places if jobs[position].unique_for]
    taken = unique_key_ttl.take(tx, asked)
    if taken and on_duplicate is OnDuplicate.RAISE:
        key, there = next(iter(taken.items()))
        place = [job.key for job in jobs].index(key)
        raise DuplicateJobError(unique_key=key[1], existing_id=there, position=place, unique_for=True, queue=key[0])
    free = [position for position in places if not (jobs[position].unique_for and jobs[position].key in taken)]
    ids = _insert_grouped(tx, jobs, free, on_duplicate, more=more)
    added: dict[str, dict[str, int]] = {}
    refused: dict[str, list[str]] = {}
    for position in free:
        job, job_id = jobs[position], ids[position]
        if job.unique_for and job.unique_key is not None:
            if job_id is None:  # skipped, because a live job has the key: free the key
                refused.setdefault(job.queue, []).append(job.unique_key)
            else:
                added.setdefault(job.queue, {})[job.unique_key] = job_id
    for queue, ids_by_key in added.items():
        unique_key_ttl.assign(tx, ids_by_key, queue)
    for queue, keys in refused.items():
        unique_key_ttl.release(tx, keys, queue)
    return ids


def _insert_grouped(
    tx: Transaction, jobs: Sequence[NewJob], places: Sequence[int], on_duplicate: OnDuplicate, *, more: bool
) -> list[int | None]:
    """Insert the jobs at ``places``, and block those that have to wait in their group."""
    if not places:
        return [None] * len(jobs)
    grouped = {group for position in places if (group := group_of(jobs[position].queue, jobs[position].group_key)) is not None}
    if not grouped:
        return _insert(tx, jobs, places, on_duplicate)[0]
    entry = dependents().enter(tx, grouped, every=more)
    ids, all_new = _insert(tx, jobs, places, on_duplicate, entry)
    entry.inserted({job_id: job for job_id, job in zip(ids, jobs, strict=True) if job_id is not None}, all_new=all_new)
    return ids


def _insert(
    tx: Transaction, jobs: Sequence[NewJob], places: Sequence[int], on_duplicate: OnDuplicate, entry: Entry | None = None
) -> tuple[list[int | None], bool]:
    """Insert the jobs at ``places``.

    :param entry: decides which jobs have to wait in their groups; None: no job has a group.
    :return: the ids by position in ``jobs``, and whether all these jobs were inserted as new jobs.
    """
    rows = jobs if len(places) == len(jobs) else [jobs[position] for position in places]
    now = tx.time().get("now")
    table = tx.tables.jobs
    ids: list[int | None] = [None] * len(jobs)
    for race in range(_RACES):
        placed = rows if entry is None else entry.block(rows)
        inserted = tx.dialect.inserts.insert_new(tx, table, placed, now)
        if len(inserted) == len(jobs) and None not in inserted:
            return inserted, True
        for position, job_id in zip(places, inserted, strict=True):
            ids[position] = job_id
        duplicates = [(position, row) for position, row, job_id in zip(places, rows, inserted, strict=True) if job_id is None]
        if not duplicates or on_duplicate is OnDuplicate.SKIP:
            return ids, not (duplicates or race)
        keys = [row.key for _, row in duplicates if row.key is not None]
        live = live_keys(tx, table, keys, current=race > 0)
        if on_duplicate is OnDuplicate.RAISE:
            # The live job may be newer than the transaction's snapshot.
            existing = live.get(keys[0]) or live_keys(tx, table, keys[:1], current=True).get(keys[0])
            refused = duplicates[0][0]
            there, lasting = existing[0] if existing else None, jobs[refused].unique_for > 0
            key = keys[0]
            raise DuplicateJobError(unique_key=key[1], existing_id=there, position=refused, unique_for=lasting, queue=key[0])
        missed = []
        for position, row in duplicates:
            holder = live.get(row.key)
            if holder is not None and _replace(tx, holder, row, on_duplicate):
                ids[position] = holder[0]
            else:
                missed.append((position, row))  # the live job was completed or changed, or gave up its key: insert again
        if not missed:
            return ids, False
        places, rows = [position for position, _ in missed], [row for _, row in missed]
    raise TransientStorageError("the jobs to replace changed repeatedly", statement_name="enqueue.insert_jobs")


def _one_of_each_key(jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> Sequence[int]:
    """The positions of the jobs to insert: one job for each key, and all jobs without a key."""
    chosen: dict[tuple[str, str], int] = {}
    for position, job in enumerate(jobs):
        if (key := job.key) is not None:
            if key in chosen and on_duplicate is OnDuplicate.RAISE:
                lasting = job.unique_for > 0
                raise DuplicateJobError(unique_key=key[1], existing_id=None, position=position, unique_for=lasting, queue=job.queue)
            if key not in chosen or on_duplicate.last_wins:
                chosen[key] = position
    if not chosen:
        return range(len(jobs))
    return [position for position, job in enumerate(jobs) if job.key is None or chosen[job.key] == position]


def _replace(tx: Transaction, live: tuple[int, int], row: NewJob, on_duplicate: OnDuplicate) -> bool:
    """Replace the content of the job ``live`` (id, version).

    :return: whether the content was replaced; False: the job has changed, or this call has taken the key from a running job.
    """
    jobs = tx.tables.jobs
    now = tx.now
    # The job keeps its id and so its position in the group: a blocked job stays blocked.
    blocked, due = jobs.c.available_at == BLOCKED, due_time(now, row.after, row.not_before)
    same_group = jobs.c.group_key.is_(None) if row.group_key is None else jobs.c.group_key == row.group_key
    unheld = []
    if on_duplicate is OnDuplicate.DEBOUNCE:
        unheld.append(or_(jobs.c.claim_token.is_(None), jobs.c.available_at <= now))
    fresh = {name: getattr(row, name) for name in ("kind", "payload", "headers", "priority", "max_attempts")}
    statement = (
        update(jobs)
        .where(match(tx.dialect, [live]), same_group, *unheld)
        # The new content is a new job: its attempts start at 0, and a worker that runs the old job loses the lease.
        .values(
            version=next_version(jobs),
            attempts=0,
            claim_token=None,
            worker=None,
            progress=None,
            progress_note=None,
            unknown_since=None,
            last_error=None,
            due_at=case((blocked, due), else_=None),
            available_at=case((blocked, BLOCKED), else_=due),
            created_at=now,
            **fresh,
        )
    )
    if tx.connection.execute(statement, tx.time()).rowcount == 1:
        return True
    if unheld:
        # A running job continues without its key. Only a change of state raises the version, so the version stays.
        keyless = update(jobs).where(match(tx.dialect, [live]), same_group, ~unheld[0]).values(unique_key=None)
        if tx.connection.execute(keyless, tx.time()).rowcount == 1:
            return False
    there = tx.connection.execute(select(jobs.c.group_key).where(match(tx.dialect, [live]))).first()
    if there is not None and there.group_key != row.group_key:
        there_is = f"the live job {live[0]} with unique_key {row.unique_key!r} is of group {there.group_key!r}"
        raise arguments.wrong("group", row.group_key, f": {there_is}, and a job that replaces it must be too")
    return False
