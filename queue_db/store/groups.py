"""Groups: jobs with the same key run in the order of their ids, as many at a time as their queue allows, by default one.

Claims do not read groups, nor do limits, prefetches and bulk loads. The first jobs of a group are *admitted*: due like any other
job. The jobs behind them are *blocked*: due in the far future, beyond every claim. When an admitted job leaves, the next one is
admitted in the same transaction. So never more jobs of a group can be claimed than may run.

A transaction that adds a job to a group or removes one first updates the *stripe* that the group's name hashes to, and only then
reads the group: so changes run one after the other, and the database refuses one with an old snapshot. Stripes are locked in the
order of their numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import BigInteger, Connection, Integer, Row, Table, bindparam, case, func, literal, select, union_all, update

from queue_db.dialects import Dialect
from queue_db.dialects.clock import due_time, moment
from queue_db.dialects.transactions import own
from queue_db.model import Capability, NewJob
from queue_db.store.base import Store, each, next_version
from queue_db.store.schema import BLOCKED, STRIPES

_T = TypeVar("_T")

# Numbers of groups in one query: there is a kept statement for each.
_ARMS = (1, 8, 64)


#: Groups in one statement, and in one transaction that repairs them.
AT_ONCE = max(_ARMS)


class GroupMember(NamedTuple):
    """A job of a group."""

    id: int
    version: int
    available_at: int


class Group(NamedTuple):
    """The jobs of a queue with one key."""

    queue: str
    key: str


def of(queue: str, key: str | None) -> Group | None:
    """The group of a job."""
    return None if key is None else Group(queue, key)


def lock(connection: Connection, store: Store, groups: Collection[Group], *, every: bool = False) -> dict[str, int]:
    """Lock these groups until the transaction ends; return how many jobs of a group may run at a time, by queue.

    ``every``: lock all groups, for transactions that add more jobs later.
    """
    stripes, queues = store.tables.stripes, store.tables.queues
    store.dialect.begin(connection)
    numbers = range(STRIPES) if every else sorted({zlib.crc32("\0".join(group).encode()) % STRIPES for group in groups})
    mine = stripes.c.id.in_(list(numbers))
    if len(numbers) > 1 and Capability.ROW_LOCKS in store.capabilities:
        # An UPDATE locks rows in any order, and a table scan waits for other rows: two transactions must not wait for each other
        # in a circle.
        found = store.dialect.by_id(select(stripes.c.id).where(mine).order_by(stripes.c.id), stripes)
        connection.execute(store.dialect.lock_rows(found, skip=False)).all()
    connection.execute(store.dialect.by_id(update(stripes).where(mine).values(version=stripes.c.version + 1), stripes))
    limits = {queue: 1 for queue, _ in groups}
    controls = select(queues.c.name, queues.c.per_group).where(queues.c.name.in_(list(limits)), queues.c.per_group.is_not(None))
    return limits | {row.name: row.per_group for row in connection.execute(controls)}


def waiting(connection: Connection, store: Store, groups: Sequence[Group | None], limits: Mapping[str, int]) -> list[bool]:
    """Whether each new job, given by its group, has to wait for others. Under :func:`lock`."""
    there = {group: len(rows) for group, rows in _first(connection, store, {group for group in groups if group}, limits).items()}
    found = []
    for group in groups:
        if group is None:
            found.append(False)
        else:
            there[group] += 1
            found.append(there[group] > limits[group.queue])
    return found


def block(connection: Connection, store: Store, jobs: Sequence[NewJob], limits: Mapping[str, int]) -> list[NewJob]:
    """``jobs`` as they are inserted: blocked if they have to wait. Under :func:`lock`."""
    waits = waiting(connection, store, [of(job.queue, job.group_key) for job in jobs], limits)
    return [job._replace(not_before=BLOCKED) if wait else job for job, wait in zip(jobs, waits, strict=True)]


def remember_due(connection: Connection, store: Store, jobs: Mapping[int, NewJob]) -> None:
    """Store the due times of blocked jobs (id → job) for their admission."""
    later = {job_id: job for job_id, job in jobs.items() if job.after or job.not_before}
    table = store.tables.jobs
    for some in _some(later):
        after = each(table.c.id, {job_id: later[job_id].after for job_id in some}, BigInteger())
        not_before = each(table.c.id, {job_id: later[job_id].not_before for job_id in some}, BigInteger())
        due = due_time(moment(store.clock is not None), after, not_before)
        connection.execute(
            update(table).where(table.c.id.in_(some), table.c.available_at == BLOCKED).values(due_at=due), store.time()
        )


def admit(connection: Connection, store: Store, left: Mapping[Group, int], limits: Mapping[str, int]) -> set[str]:
    """Admit as many jobs of each group as have left; return the queues with newly admitted jobs.

    Under :func:`lock`, after the change.
    """
    chosen = []
    for group, rows in _first(connection, store, left, limits).items():
        chosen += [(group, row) for row in rows if row.available_at == BLOCKED][: left[group]]
    return _admit(connection, store, chosen)


def repair(connection: Connection, store: Store, groups: Collection[Group]) -> set[str]:
    """Admit in each group as many as may run, whatever has happened to it; return the queues in which there is a new one.

    For groups with jobs deleted past the verbs, and after a change of the limit.
    """
    limits = lock(connection, store, groups)
    return settled(connection, store, groups, limits)


def settled(connection: Connection, store: Store, groups: Collection[Group], limits: Mapping[str, int]) -> set[str]:
    """:func:`repair` under a :func:`lock` that is held."""
    return admit(connection, store, _room(connection, store, groups, limits), limits)


def incomplete(connection: Connection, store: Store, queue: str) -> list[Group]:
    """The groups of a queue with blocked jobs and fewer admitted ones than may run. Reads all its jobs that have a group."""
    jobs, queues = store.tables.jobs, store.tables.queues
    limit = func.coalesce(select(queues.c.per_group).where(queues.c.name == queue).scalar_subquery(), 1)
    admitted = func.sum(case((jobs.c.available_at == BLOCKED, 0), else_=1))
    query = (
        select(jobs.c.group_key)
        .where(jobs.c.queue == queue, jobs.c.group_key.is_not(None))
        .group_by(jobs.c.group_key)
        .having(admitted < limit, func.count() > admitted)
        .order_by(jobs.c.group_key)
    )
    return [Group(queue, key) for key in connection.execute(query).scalars()]


def crowded(connection: Connection, store: Store, limit: int) -> Sequence[Row[Any]]:
    """``queue, group_key, admitted, allowed`` of groups that have more admitted jobs than may run. Reads all grouped jobs."""
    jobs, queues = store.tables.jobs, store.tables.queues
    allowed = func.coalesce(func.max(queues.c.per_group), 1)
    query = (
        select(jobs.c.queue, jobs.c.group_key, func.count().label("admitted"), allowed.label("allowed"))
        .select_from(jobs.outerjoin(queues, queues.c.name == jobs.c.queue))
        .where(jobs.c.group_key.is_not(None), jobs.c.available_at != BLOCKED)
        .group_by(jobs.c.queue, jobs.c.group_key)
        .having(func.count() > allowed)
        .order_by(jobs.c.queue, jobs.c.group_key)
        .limit(limit)
    )
    return connection.execute(query).all()


def _room(connection: Connection, store: Store, groups: Collection[Group], limits: Mapping[str, int]) -> dict[Group, int]:
    """How many more of each group may be admitted. Reads all jobs of these groups."""
    jobs = store.tables.jobs
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
        for row in connection.execute(query):
            room[Group(queue, row.group_key)] -= int(row.admitted)
    return {group: free for group, free in room.items() if free > 0}


def _first(
    connection: Connection, store: Store, groups: Collection[Group], limits: Mapping[str, int]
) -> dict[Group, list[GroupMember]]:
    """The first jobs of each group, as many as may run."""
    # A caller's transaction may see an old state; what it locks it sees as it is. InnoDB then keeps others out of the gaps too.
    locks = own(connection) is None and connection.get_isolation_level() != "READ COMMITTED"
    found: dict[Group, list[GroupMember]] = {group: [] for group in groups}
    for some in _some(sorted(groups)):
        arms = next(size for size in _ARMS if size >= len(some))
        values: dict[str, Any] = {}
        for number in range(arms):
            group = some[min(number, len(some) - 1)]  # those that are too many ask for the last one again
            values |= {f"queue_{number}": group.queue, f"group_{number}": group.key, f"limit_{number}": limits[group.queue]}
        for number, *member in store.dialect.fetch(
            connection, _first_members(store.dialect, store.tables.jobs, arms, locks=locks), values
        ):
            if number < len(some):
                found[some[number]].append(GroupMember(*member))
    for places in found.values():
        places.sort()
    return found


@lru_cache(maxsize=64)
def _first_members(dialect: Dialect, jobs: Table, arms: int, *, locks: bool) -> Any:
    """``number, id, version, available_at`` of the first jobs of so many groups."""
    queries = []
    for number in range(arms):
        query = (
            select(literal(number, Integer).label("number"), jobs.c.id, jobs.c.version, jobs.c.available_at)
            .where(
                jobs.c.queue == bindparam(f"queue_{number}", type_=jobs.c.queue.type),
                jobs.c.group_key == bindparam(f"group_{number}", type_=jobs.c.group_key.type),
            )
            .order_by(jobs.c.id)
            .limit(bindparam(f"limit_{number}", type_=Integer))
        )
        # In subqueries: not every database takes a LIMIT, or a lock, in an arm of a UNION.
        arm = dialect.lock_rows(query, skip=False) if locks else query
        queries.append(select(arm.subquery(f"group_{number}")))
    return queries[0] if arms == 1 else union_all(*queries)


def _admit(connection: Connection, store: Store, chosen: Sequence[tuple[Group, GroupMember]]) -> set[str]:
    jobs = store.tables.jobs
    now = moment(store.clock is not None)
    # Never before now, so that claims may remember where the due jobs begin.
    due = case((jobs.c.due_at > now, jobs.c.due_at), else_=now)
    queue_of = {row.id: group.queue for group, row in chosen}
    admitted: set[int] = set()
    for some in _some(sorted((row.id, row.version) for _, row in chosen)):
        values = {"available_at": due, "version": next_version(jobs)}
        admitted |= store.dialect.change(connection, jobs, some, values, store.time())
    return {queue_of[job_id] for job_id in admitted}


def _some(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while some := list(islice(rest, AT_ONCE)):
        yield some
