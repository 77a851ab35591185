"""What depends on jobs that leave their queue: the next jobs of their groups, and the callbacks that count them.

All in the transaction in which the jobs leave. Most jobs have neither a group nor a callback; for them nothing is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

from sqlalchemy import select

from queue_db.dialects.statements import Pairs, tied
from queue_db.model import JobLinks, links_of
from queue_db.store import callbacks, groups, settle
from queue_db.store.base import Transaction
from queue_db.store.callbacks import Departure
from queue_db.store.schema import BLOCKED

Leave = Callable[[], Mapping[int, Departure]]
"""Lets jobs leave, and returns how each of them left, by id."""

# Ids in one statement.
_IDS = 1000


def finish(tx: Transaction, links: Mapping[int, JobLinks], leave: Leave, *, every: bool = False) -> None:
    """Run ``leave``, unblock the groups of the jobs that left, and count down their callbacks; wake who waits for what is due now.

    :param links: the groups and callbacks, by id, of all jobs that may leave.
    :param every: more jobs may leave later in this transaction.
    """
    tx.begin()
    # Stripes of groups are locked before rows of jobs: every transaction keeps this order.
    waiting = {one.group for one in links.values() if one.group is not None}
    limits = groups.lock(tx, waiting, every=every) if waiting else {}
    left = [(links[job_id], departure) for job_id, departure in leave().items() if job_id in links]
    if free := Counter([one.group for one, _ in left if one.group is not None and not one.blocked]):
        groups.admit(tx, free, limits)
    if counted := [(one.callback, departure) for one, departure in left if one.callback is not None]:
        due = callbacks.count_down(tx, counted)
        if due:
            tx.dialect.insert_new(tx, tx.tables.jobs, due, tx.time().get("now"))
            tx.wake(*(job.queue for job in due))


def delete(tx: Transaction, pairs: Pairs, departure: Callable[[int], Departure], *, every: bool = False) -> set[int]:
    """:func:`queue_db.store.settle.delete`, and :func:`finish`; return the ids that are gone."""
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
    """The links of these jobs. A change after this read raises the job's version, so the job does not leave."""
    jobs = tx.tables.jobs
    links: dict[int, JobLinks] = {}
    ids = iter([job_id for job_id, _ in pairs])
    while some := list(islice(ids, _IDS)):
        query = select(jobs.c.id, jobs.c.queue, jobs.c.group_key, jobs.c.callback_id, jobs.c.available_at).where(
            jobs.c.id.in_(some), tied(jobs)
        )
        for row in tx.connection.execute(tx.dialect.by_id(query, jobs)):
            found = links_of(row.queue, row)
            if found is not None:
                links[row.id] = found._replace(blocked=row.available_at == BLOCKED)
    return links
