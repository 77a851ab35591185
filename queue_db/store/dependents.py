"""What depends on jobs that leave their queue: the next jobs of their groups, and the callbacks that count them.

All in the transaction in which the jobs leave. Most jobs have neither a group nor a callback; for them nothing is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

from sqlalchemy import Connection, select

from queue_db.dialects.statements import Pairs, tied
from queue_db.model import JobLinks, links_of
from queue_db.store import callbacks, groups, settle
from queue_db.store.base import Store
from queue_db.store.callbacks import Departure
from queue_db.store.schema import BLOCKED

Leave = Callable[[], Mapping[int, Departure]]
"""Lets jobs leave, and returns how each of them left, by id."""

# Ids in one statement.
_IDS = 1000


def finish(connection: Connection, store: Store, links: Mapping[int, JobLinks], leave: Leave, *, every: bool = False) -> set[str]:
    """Run ``leave``, unblock the groups of the jobs that left, and count down their callbacks; return the queues with new due jobs.

    :param links: the groups and callbacks, by id, of all jobs that may leave.
    :param every: more jobs may leave later in this transaction.
    """
    store.dialect.begin(connection)
    # Stripes of groups are locked before rows of jobs: every transaction keeps this order.
    waiting = {one.group for one in links.values() if one.group is not None}
    limits = groups.lock(connection, store, waiting, every=every) if waiting else {}
    left = [(links[job_id], departure) for job_id, departure in leave().items() if job_id in links]
    woken_queues: set[str] = set()
    if free := Counter([one.group for one, _ in left if one.group is not None and not one.blocked]):
        woken_queues |= groups.admit(connection, store, free, limits)
    if counted := [(one.callback, departure) for one, departure in left if one.callback is not None]:
        due = callbacks.count_down(connection, store, counted)
        if due:
            store.dialect.insert_new(connection, store.tables.jobs, due, store.time().get("now"))
            woken_queues |= {job.queue for job in due}
    return woken_queues


def delete(
    connection: Connection, store: Store, pairs: Pairs, departure: Callable[[int], Departure], *, every: bool = False
) -> tuple[set[int], set[str]]:
    """:func:`queue_db.store.settle.delete`, and :func:`finish`; return the ids that are gone and the queues with new due jobs."""
    links = read(connection, store, pairs)
    if not links:
        return settle.delete(connection, store, pairs), set()
    gone: set[int] = set()

    def leave() -> Mapping[int, Departure]:
        gone.update(settle.delete(connection, store, pairs))
        return {job_id: departure(job_id) for job_id in gone}

    return gone, finish(connection, store, links, leave, every=every)


def read(connection: Connection, store: Store, pairs: Pairs) -> dict[int, JobLinks]:
    """The links of these jobs. A change after this read raises the job's version, so the job does not leave."""
    jobs = store.tables.jobs
    links: dict[int, JobLinks] = {}
    ids = iter([job_id for job_id, _ in pairs])
    while some := list(islice(ids, _IDS)):
        query = select(jobs.c.id, jobs.c.queue, jobs.c.group_key, jobs.c.callback_id, jobs.c.available_at).where(
            jobs.c.id.in_(some), tied(jobs)
        )
        for row in connection.execute(store.dialect.by_id(query, jobs)):
            found = links_of(row.queue, row)
            if found is not None:
                links[row.id] = found._replace(blocked=row.available_at == BLOCKED)
    return links
