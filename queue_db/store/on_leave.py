"""When jobs leave their queue, admit the next jobs of their groups and count down their batches.

This is done in the transaction in which the jobs leave. Most jobs have neither a group nor a batch, and need nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from sqlalchemy import select

from queue_db.dialects.statements import Pairs, has_dependents
from queue_db.model import JobLinks, links_of
from queue_db.store import batches, groups, settle
from queue_db.store.base import Transaction
from queue_db.store.batches import Departure
from queue_db.store.portions import portions
from queue_db.store.schema import BLOCKED

Leave = Callable[[], Mapping[int, Departure]]
"""A function that removes jobs from their queue, and returns how each of them left, by id."""


def finish(tx: Transaction, links: Mapping[int, JobLinks], leave: Leave, *, every: bool = False) -> None:
    """Run ``leave``, admit the next jobs of the groups, count down the batches, and wake the workers that wait for jobs.

    :param links: the group and batch of each job that may leave, by id.
    :param every: more jobs may leave later in this transaction.
    """
    tx.begin()
    # Every transaction locks the stripes of groups before the rows of jobs.
    waiting = {link.group for link in links.values() if link.group is not None}
    limits = groups.lock(tx, waiting, every=every) if waiting else {}
    left = [(links[job_id], departure) for job_id, departure in leave().items() if job_id in links]
    if freed := Counter([link.group for link, _ in left if link.group is not None and not link.blocked]):
        groups.admit(tx, freed, limits)
    if counted := [(link.batch, departure) for link, departure in left if link.batch is not None]:
        due = batches.count_down(tx, counted)
        if due:
            tx.dialect.inserts.insert_new(tx, tx.tables.jobs, due, tx.time().get("now"))
            tx.wake(*(job.queue for job in due))


def delete(tx: Transaction, pairs: Pairs, departure: Callable[[int], Departure], *, every: bool = False) -> set[int]:
    """Delete jobs by :func:`queue_db.store.settle.delete`, with :func:`finish`; return the ids of the deleted jobs."""
    links = read(tx, pairs)
    if not links:
        return settle.delete(tx, pairs)
    gone: set[int] = set()

    def leave() -> Mapping[int, Departure]:
        gone.update(settle.delete(tx, pairs))
        return {job_id: departure(job_id) for job_id in gone}

    finish(tx, links, leave, every=every)
    return gone


def read(tx: Transaction, pairs: Pairs) -> dict[int, JobLinks]:
    """The groups and batches of these jobs, by id; jobs without either are missing.

    A change after this read raises the job's version. Then the job's pair no longer matches, so the job does not leave.
    """
    jobs = tx.tables.jobs
    links: dict[int, JobLinks] = {}
    for ids in portions([job_id for job_id, _ in pairs]):
        query = select(jobs.c.id, jobs.c.queue, jobs.c.group_key, jobs.c.callback_id, jobs.c.available_at).where(
            jobs.c.id.in_(ids), has_dependents(jobs)
        )
        for row in tx.connection.execute(tx.dialect.by_id(query, jobs)):
            link = links_of(row.queue, row)
            if link is not None:
                links[row.id] = link._replace(blocked=row.available_at == BLOCKED)
    return links
