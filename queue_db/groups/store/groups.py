"""Groups: jobs with the same key run in the order of their ids. The queue limits how many run at a time, by default one.

Claims do not read groups, and neither do limits, prefetches and bulk loads. The first jobs of a group are *admitted*: they are due
like any other job. The jobs behind them are *blocked*: they are due in the far future, so no claim takes them. When an admitted job
leaves, the next one is admitted in the same transaction. So claims never take more jobs of a group than may run.

A transaction that adds a job to a group or removes one first updates the *stripe* that the group's name hashes to. Then it reads
the group. So changes of a group run one after the other, and the database refuses a change with an old snapshot. Stripes are locked
in the order of their numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Table, case, func, select, update

from queue_db.dialects import Dialect
from queue_db.dialects.clock import due_time
from queue_db.dialects.statements import NEXT_VERSION
from queue_db.dialects.transactions import own
from queue_db.groups.dialects import GroupDialect
from queue_db.groups.tables import STRIPES, group_tables
from queue_db.model import Capability, Group, NewJob
from queue_db.store import by_key, controls
from queue_db.store.base import Transaction, each
from queue_db.store.portions import portions
from queue_db.store.schema import BLOCKED, EVERY_MEMBER

#: The most groups that one transaction repairs, and the most due times that one statement stores.
AT_ONCE = 64


@lru_cache(maxsize=64)
def _on(dialect: Dialect) -> GroupDialect:
    """Kept, since the statements below are kept by it."""
    return GroupDialect.of(dialect)


def limits_if_fair(tx: Transaction, groups: Collection[Group]) -> dict[str, int] | None:
    """How many jobs of a group may run at a time, by queue, if all queues are fair. Then new jobs do not wait, and need no locks.

    If a queue ceases to be fair meanwhile, these jobs count as those that were added before. None: :func:`lock` the groups.
    """
    queues = {queue for queue, _ in groups}
    if not queues <= tx.store.beside.get("fairness", frozenset()):
        return None
    limits = dict[str, int](tx.fetch(_limits(_on(tx.dialect), tx.tables.queues), {"names": sorted(queues)}))  # type: ignore[arg-type]
    return limits if {*limits} == queues and {*limits.values()} == {EVERY_MEMBER} else None


class GroupMember(NamedTuple):
    """A job of a group."""

    id: int
    version: int
    available_at: int


def lock(tx: Transaction, groups: Collection[Group], *, every: bool = False) -> dict[str, int]:
    """Lock these groups until the transaction ends.

    :param every: lock all groups, for a transaction that changes more groups later.
    :return: how many jobs of a group may run at a time, by queue.
    """
    on, stripes = _on(tx.dialect), group_tables(tx.tables).stripes
    numbers = range(STRIPES) if every else sorted({zlib.crc32("\0".join(group).encode()) % STRIPES for group in groups})
    mine = {"numbers": list(numbers)}
    # Lock the stripes in the order of their ids, so that no two transactions wait for each other. Not every UPDATE does that.
    first = len(numbers) > 1 and Capability.ROW_LOCKS in tx.store.capabilities and not on.updates_in_order
    if first and not tx.dialect.changes_in_with:
        tx.fetch(_held(on, stripes), mine)
    tx.execute(_raised(on, stripes, held=first and tx.dialect.changes_in_with), mine)
    # Read the limits by a separate statement, whose snapshot is taken after the locks.
    limits = {queue: 1 for queue, _ in groups}
    controls = tx.fetch(_limits(on, tx.tables.queues), {"names": list(limits)})
    limits.update((queue, per_group) for queue, per_group in controls)
    return limits


@lru_cache(maxsize=64)
def _held(on: GroupDialect, stripes: Table) -> Any:
    """The query that locks the stripes with ids in the parameter ``numbers``, in the order of their ids."""
    in_order = select(stripes.c.id).where(on.one_of(stripes.c.id, "numbers")).order_by(stripes.c.id)
    return on.dialect.lock_rows(on.dialect.by_id(in_order, stripes), skip=False)


@lru_cache(maxsize=64)
def _raised(on: GroupDialect, stripes: Table, *, held: bool) -> Any:
    """The statement that raises the versions of the stripes with ids in the parameter ``numbers``.

    :param held: the statement first locks the stripes by :func:`_held`.
    """
    raised = on.dialect.by_id(update(stripes).values(version=stripes.c.version + 1), stripes)
    if not held:
        return raised.where(on.one_of(stripes.c.id, "numbers"))
    held_rows = _held(on, stripes).cte("held")
    return raised.where(stripes.c.id == held_rows.c.id)


@lru_cache(maxsize=64)
def _limits(on: GroupDialect, queues: Table) -> Any:
    """The query for ``name, per_group`` of the queues in the parameter ``names`` that have a limit for groups."""
    return select(queues.c.name, queues.c.per_group).where(on.one_of(queues.c.name, "names"), queues.c.per_group.is_not(None))


def remember_due(tx: Transaction, jobs: Mapping[int, NewJob]) -> None:
    """Store the due times of those ``jobs`` (id → job) that are blocked in their groups, for their admission.

    A job without a group may be blocked too, behind its parents in a graph: its due time is not stored here.
    """
    later = {job_id: job for job_id, job in jobs.items() if job.group_key is not None and (job.after or job.not_before)}
    table = tx.tables.jobs
    for ids in portions(list(later), AT_ONCE):
        after = each(table.c.id, {job_id: later[job_id].after for job_id in ids}, BigInteger())
        not_before = each(table.c.id, {job_id: later[job_id].not_before for job_id in ids}, BigInteger())
        due = due_time(tx.now, after, not_before)
        tx.connection.execute(
            update(table).where(table.c.id.in_(ids), table.c.available_at == BLOCKED).values(due_at=due), tx.time()
        )


def admit(tx: Transaction, left: Mapping[Group, int], limits: Mapping[str, int]) -> None:
    """Admit blocked jobs of each group, and wake the workers that wait for jobs.

    Call it after :func:`lock` and after the jobs have left.

    :param left: the most jobs to admit of each group, which is how many have left it.
    """
    chosen = []
    left = {group: most for group, most in left.items() if limits[group.queue] != EVERY_MEMBER}  # a fair queue blocks no job
    for group, rows in first_members(tx, left, limits).items():
        chosen += [(group, row) for row in rows if row.available_at == BLOCKED][: left[group]]
    _admit(tx, chosen)


def repair(tx: Transaction, groups: Collection[Group]) -> int:
    """Admit as many jobs of each group as may run; return the number of groups.

    This is for groups whose jobs were deleted without this library, and for a change of the limit.
    """
    limits = lock(tx, groups)
    for group in groups:
        if limits[group.queue] == EVERY_MEMBER:
            admit_all(tx, group)
    settled(tx, groups, limits)
    return len(groups)


def admit_all(tx: Transaction, group: Group) -> None:
    """Admit all blocked jobs of a group of a queue that has become fair. Reads all jobs of the group."""
    jobs = tx.tables.jobs
    blocked = select(jobs.c.id, jobs.c.version).where(
        jobs.c.queue == group.queue, jobs.c.group_key == group.key, jobs.c.available_at == BLOCKED
    )
    _admit(tx, [(group, GroupMember(row.id, row.version, BLOCKED)) for row in tx.connection.execute(blocked)])


def settled(tx: Transaction, groups: Collection[Group], limits: Mapping[str, int]) -> None:
    """As :func:`repair`, for groups that :func:`lock` has locked."""
    groups = [group for group in groups if limits[group.queue] != EVERY_MEMBER]
    admit(tx, _room(tx, groups, limits), limits)


def unordered(tx: Transaction, queue: str) -> bool:
    """Whether a queue is fair no more, but new jobs do not yet wait for others of their groups."""
    queues = tx.tables.queues
    row = tx.connection.execute(select(queues.c.fair, queues.c.per_group).where(queues.c.name == queue)).first()
    return row is not None and not row.fair and row.per_group == EVERY_MEMBER


def order(tx: Transaction, queue: str) -> None:
    """Let new jobs wait for others of their groups, unless the queue is fair again."""
    lock(tx, [Group(queue, "")], every=True)
    row = by_key.lock(tx, tx.tables.queues, {"name": queue}, "fair", "per_group")
    if row is not None and not row.fair and row.per_group == EVERY_MEMBER:
        controls.change(tx, queue, {"per_group": None})


def incomplete(tx: Transaction, queue: str) -> list[Group]:
    """The groups of a queue with blocked jobs and fewer admitted jobs than may run. Reads all jobs of the queue with a group."""
    jobs, queues = tx.tables.jobs, tx.tables.queues
    limit = func.coalesce(select(queues.c.per_group).where(queues.c.name == queue).scalar_subquery(), 1)
    admitted = func.sum(case((jobs.c.available_at == BLOCKED, 0), else_=1))
    query = (
        select(jobs.c.group_key)
        .where(jobs.c.queue == queue, jobs.c.group_key.is_not(None))
        .group_by(jobs.c.group_key)
        .having(admitted < limit, func.count() > admitted)
        .order_by(jobs.c.group_key)
    )
    return [Group(queue, key) for key in tx.connection.execute(query).scalars()]


def _room(tx: Transaction, groups: Collection[Group], limits: Mapping[str, int]) -> dict[Group, int]:
    """How many more jobs of each group may be admitted; groups with no room are missing. Reads all jobs of these groups."""
    jobs = tx.tables.jobs
    room = {group: limits[group.queue] for group in groups}
    for queue in limits:
        query = (
            select(jobs.c.group_key, func.count().label("admitted"))
            .where(
                jobs.c.queue == queue,
                jobs.c.group_key.in_([group.key for group in groups if group.queue == queue]),
                jobs.c.available_at != BLOCKED,
            )
            .group_by(jobs.c.group_key)
        )
        for row in tx.connection.execute(query):
            room[Group(queue, row.group_key)] -= int(row.admitted)
    return {group: free for group, free in room.items() if free > 0}


def first_members(tx: Transaction, groups: Collection[Group], limits: Mapping[str, int]) -> dict[Group, list[GroupMember]]:
    """The first jobs of each group, as many as may run; groups without jobs are missing."""
    # A caller's transaction may have an old snapshot, but a locking read returns the current rows. On InnoDB it also keeps other
    # transactions from inserting between them.
    locks = own(tx.connection) is None and tx.connection.get_isolation_level() != "READ COMMITTED"
    keys: dict[str, list[str]] = {}
    for queue, key in sorted(groups):
        keys.setdefault(queue, []).append(key)
    members_of: dict[Group, list[GroupMember]] = {}
    for queue, group_keys in keys.items():
        jobs, most = tx.tables.jobs, limits[queue]
        for place, *member in _on(tx.dialect).first_in_groups(tx, jobs, queue, group_keys, most, locks=locks):
            members_of.setdefault(Group(queue, group_keys[place]), []).append(GroupMember(*member))
    for members in members_of.values():
        members.sort()
    return members_of


# The due time is never in the past: claims start at low-water marks, and would miss jobs below them.
_ADMISSION = f"available_at = CASE WHEN due_at > {{now}} THEN due_at ELSE {{now}} END, version = {NEXT_VERSION}"


def _admit(tx: Transaction, chosen: Sequence[tuple[Group, GroupMember]]) -> None:
    jobs = tx.tables.jobs
    queue_of = {row.id: group.queue for group, row in chosen}
    admitted: set[int] = set()
    pairs = sorted((row.id, row.version) for _, row in chosen)
    for portion in portions(pairs):
        admitted |= tx.dialect.change(tx, jobs, portion, _ADMISSION, tx.time())
    tx.wake(*(queue_of[job_id] for job_id in admitted))
