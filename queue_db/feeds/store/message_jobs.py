"""Messages that become jobs: what their consumer could not do once is tried again, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Text, select, update

from queue_db.model import NewJob
from queue_db.slices import dependents
from queue_db.store import history, on_leave, settle
from queue_db.store.base import Transaction, each
from queue_db.store.enqueue import OnDuplicate, insert_jobs
from queue_db.store.on_leave import Departure
from queue_db.store.portions import portions


class MessageJob(NamedTuple):
    """A message and the job that it becomes."""

    seq: int
    job: NewJob
    error: str | None = None  #: why
    #: The failed attempt as the history shows it, without the job's id; it counts as the job's first. None: there was none.
    failure: Mapping[str, Any] | None = None
    dead: bool = False  #: it goes to the dead table
    attempts: int = 0  #: that the job has had


def add(tx: Transaction, messages: Sequence[MessageJob], *, more: bool = False) -> list[int]:
    """Insert the jobs; return their ids by position. ``more``: the transaction inserts others later."""
    inserted = insert_jobs(tx, [one.job for one in messages], OnDuplicate.RAISE, more=more)
    ids = [job_id for job_id in inserted if job_id is not None]
    by_id = dict(zip(ids, messages, strict=True))
    _set_errors(tx, {job_id: one for job_id, one in by_id.items() if one.error is not None})
    if failures := [{**one.failure, "job_id": job_id} for job_id, one in by_id.items() if one.failure is not None]:
        history.record_errors(tx, failures)
    if dead := {job_id: one.error or "" for job_id, one in by_id.items() if one.dead}:
        _bury(tx, dead)
    return ids


def _set_errors(tx: Transaction, failed: Mapping[int, MessageJob]) -> None:
    jobs = tx.tables.jobs
    had = {job_id: 1 if one.failure is not None else one.attempts for job_id, one in failed.items()}
    for attempts in sorted(set(had.values())):
        ids = [job_id for job_id in failed if had[job_id] == attempts]
        for some in portions(ids):
            texts = each(jobs.c.id, {job_id: failed[job_id].error for job_id in some}, Text())
            tx.connection.execute(update(jobs).where(jobs.c.id.in_(some)).values(attempts=attempts, last_error=texts))


def _bury(tx: Transaction, errors: Mapping[int, str]) -> None:
    jobs = tx.tables.jobs
    query = select(jobs.c.id, jobs.c.version).where(jobs.c.id.in_(list(errors))).order_by(jobs.c.id)
    pairs = [(row.id, row.version) for row in tx.connection.execute(query)]
    links = on_leave.read_links(tx, pairs)

    def leave() -> dict[int, Departure]:
        return dict.fromkeys(settle.bury(tx, pairs, errors), Departure.DEAD)

    dependents().leave(tx, links, leave)
