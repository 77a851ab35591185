"""What the queue calls when jobs with a group enter it, and when jobs with a group or a batch leave it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from queue_db.groups.store import batches, groups
from queue_db.model import Group, JobLinks, NewJob, group_of
from queue_db.slices import Left, nodes
from queue_db.store.base import Transaction
from queue_db.store.on_leave import Departure, Leave
from queue_db.store.schema import BLOCKED, EVERY_MEMBER


class Entry:
    """Jobs of ``groups`` that a transaction adds. The groups are locked until it ends."""

    def __init__(self, tx: Transaction, groups_of: Collection[Group], limits: Mapping[str, int]) -> None:
        self._tx = tx
        self._groups = groups_of
        self._limits = limits

    def waiting(self, of: Sequence[Group | None]) -> list[bool]:
        """Whether each new job has to wait for others of its group. None: the job has no group."""
        limited = {group for group in of if group and self._limits[group.queue] != EVERY_MEMBER}
        first = groups.first_members(self._tx, limited, self._limits)
        there = Counter({group: len(members) for group, members in first.items()})
        waits = []
        for group in of:
            if group is not None:
                there[group] += 1
            waits.append(group is not None and there[group] > self._limits[group.queue])
        return waits

    def block(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """The ``jobs`` to insert; those that have to wait in their groups are blocked."""
        waits = self.waiting([group_of(job.queue, job.group_key) for job in jobs])
        return [job._replace(not_before=BLOCKED) if wait else job for job, wait in zip(jobs, waits, strict=True)]

    def inserted(self, jobs: Mapping[int, NewJob], *, all_new: bool) -> None:
        """Finish the insert of ``jobs`` (id → job).

        :param all_new: False: a job was skipped, or replaced another. It takes no place in its group: admit others.
        """
        groups.remember_due(self._tx, jobs)
        if not all_new:
            groups.settled(self._tx, self._groups, self._limits)


def enter(tx: Transaction, groups_of: Collection[Group], *, every: bool = False) -> Entry:
    """Lock the groups of jobs that the transaction adds.

    :param every: lock all groups, for a transaction that adds more jobs later.
    """
    limits = None if every else groups.limits_if_fair(tx, groups_of)
    return Entry(tx, groups_of, groups.lock(tx, groups_of, every=every) if limits is None else limits)


def leave(tx: Transaction, links: Mapping[int, JobLinks], remove: Leave, *, every: bool = False) -> None:
    """Run ``remove``, admit the next jobs of the groups, count down the batches, and let the graphs go on.

    :param links: the group, batch and graph of each job that may leave, by id.
    :param every: more jobs may leave later in this transaction.
    """
    # Every transaction locks the stripes of groups before the rows of jobs.
    waiting = {link.group for link in links.values() if link.group is not None}
    limits = groups.lock(tx, waiting, every=every) if waiting else {}
    freed: list[Group] = []
    counted: list[tuple[int, Departure]] = []
    of_graphs: dict[int, Left] = {}
    for job_id, departure in remove().items():
        link = links.get(job_id)
        if link is None:
            continue
        if link.group is not None and not link.blocked:
            freed.append(link.group)
        if link.batch is not None:
            counted.append((link.batch, departure))
        if link.graph is not None:
            of_graphs[job_id] = Left(departure, link.result)
    if freed:
        groups.admit(tx, Counter(freed), limits)
    if counted and (due := batches.count_down(tx, counted)):
        tx.dialect.inserts.insert_new(tx, tx.tables.jobs, due, tx.time().get("now"))
        tx.wake(*(job.queue for job in due))
    if of_graphs:
        nodes().left(tx, of_graphs)
