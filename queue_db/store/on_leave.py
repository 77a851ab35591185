"""Remove jobs that other jobs may wait for: the next jobs of their groups, and the callback jobs of their batches.

The slice of groups and batches admits the waiting jobs, in the transaction in which the jobs leave. Most jobs have neither a group
nor a batch, so no job waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from sqlalchemy import select

from queue_db.dialects.statements import Pairs, has_dependents
from queue_db.model import JobLinks, links_of
from queue_db.slices import dependents
from queue_db.store import settle
from queue_db.store.base import Transaction
from queue_db.store.portions import portions
from queue_db.store.schema import BLOCKED


class Departure(StrEnum):
    """How a job left its queue."""

    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


Leave = Callable[[], Mapping[int, Departure]]
"""A function that removes jobs from their queue, and returns how each of them left, by id."""


def delete(tx: Transaction, pairs: Pairs, departure: Callable[[int], Departure], *, every: bool = False) -> set[int]:
    """Delete jobs, and let the slice of groups admit the jobs that waited for them; return the ids of the deleted jobs.

    :param departure: returns how the job with an id left.
    :param every: more jobs may leave later in this transaction.
    """
    links = read_links(tx, pairs)
    if not links:
        return settle.delete(tx, pairs)
    gone: set[int] = set()

    def leave() -> Mapping[int, Departure]:
        gone.update(settle.delete(tx, pairs))
        return {job_id: departure(job_id) for job_id in gone}

    dependents().leave(tx, links, leave, every=every)
    return gone


def read_links(tx: Transaction, pairs: Pairs) -> dict[int, JobLinks]:
    """The groups, batches and graphs of these jobs, by id; jobs without any are missing.

    A change after this read raises the job's version. Then the pair of the job no longer matches, so the job does not leave.
    """
    jobs = tx.tables.jobs
    links: dict[int, JobLinks] = {}
    for ids in portions([job_id for job_id, _ in pairs]):
        query = select(jobs.c.id, jobs.c.queue, jobs.c.group_key, jobs.c.callback_id, jobs.c.available_at).where(
            jobs.c.id.in_(ids), has_dependents(jobs)
        )
        for row in tx.connection.execute(tx.dialect.by_id(query, jobs)):
            if (found := links_of(row.queue, row, blocked=row.available_at == BLOCKED)) is not None:
                links[row.id] = found
    return links
