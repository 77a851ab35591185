"""What else happens when jobs leave their queue: the next of their groups are admitted, and callbacks that count them go down.

All in the transaction in which they leave. On most jobs nothing hangs, and nothing of this is done for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

from sqlalchemy import Connection, select

from queue_db.dialects.statements import Pairs, tied
from queue_db.model import Tie, tie_of
from queue_db.store import callbacks, groups, settle
from queue_db.store.base import Store
from queue_db.store.callbacks import Fate
from queue_db.store.groups import Group
from queue_db.store.schema import BLOCKED

Leave = Callable[[], Mapping[int, Fate]]
"""Lets jobs leave and tells how, by id."""

# Ids in one statement.
_IDS = 1000


def leave(connection: Connection, store: Store, ties: Mapping[int, Tie], change: Leave, *, every: bool = False) -> set[str]:
    """Run ``change``, and do what hangs on the jobs that it lets leave; return the queues that have got jobs to claim.

    :param ties: what hangs on which job, of all that ``change`` may let leave.
    :param every: others may leave in the same transaction after these.
    """
    store.dialect.begin(connection)
    # Before any job's row is locked: those who look at a group have its stripe first, and then its jobs.
    waiting = {Group(tie.queue, tie.group) for tie in ties.values() if tie.group is not None}
    limits = groups.lock(connection, store, waiting, every=every) if waiting else {}
    left = [(ties[job_id], fate) for job_id, fate in change().items() if job_id in ties]
    fed: set[str] = set()
    if free := Counter(Group(tie.queue, tie.group) for tie, _ in left if tie.group is not None and not tie.blocked):
        fed |= groups.admit(connection, store, free, limits)
    if called := [(tie.callback, fate) for tie, fate in left if tie.callback is not None]:
        due = callbacks.count_down(connection, store, called)
        if due:
            store.dialect.insert_new(connection, store.tables.jobs, due, store.time().get("now"))
            fed |= {job.queue for job in due}
    return fed


def delete(
    connection: Connection, store: Store, pairs: Pairs, fate: Callable[[int], Fate], *, every: bool = False
) -> tuple[set[int], set[str]]:
    """:func:`queue_db.store.settle.delete` of jobs of which only this is known; also the queues that have got jobs to claim."""
    ties = known(connection, store, pairs)
    if not ties:
        return settle.delete(connection, store, pairs), set()
    gone: set[int] = set()

    def change() -> Mapping[int, Fate]:
        gone.update(settle.delete(connection, store, pairs))
        return {job_id: fate(job_id) for job_id in gone}

    return gone, leave(connection, store, ties, change, every=every)


def known(connection: Connection, store: Store, pairs: Pairs) -> dict[int, Tie]:
    """What hangs on these jobs. What is read here and changes before they leave raises their versions, so they do not leave."""
    jobs = store.tables.jobs
    ties: dict[int, Tie] = {}
    ids = iter([job_id for job_id, _ in pairs])
    while some := list(islice(ids, _IDS)):
        query = select(jobs.c.id, jobs.c.queue, jobs.c.group_key, jobs.c.callback_id, jobs.c.available_at).where(
            jobs.c.id.in_(some), tied(jobs)
        )
        for row in connection.execute(store.dialect.by_id(query, jobs)):
            tie = tie_of(row.queue, row)
            if tie is not None:
                ties[row.id] = tie._replace(blocked=row.available_at == BLOCKED)
    return ties
