"""Claims under limits of groups.

The claim locks a row for each limit that it meets, counts what runs under it, and takes the rest. A job runs under a limit while
its row has the token of its claim and an unfinished lease. So the end of a job, however it comes, has nothing to do here. Claims
that meet the same limit wait for each other's commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Table, and_, bindparam, delete, insert, select

from queue_db.fairness.dialects import FairDialect, Search
from queue_db.fairness.rules import GROUP, PREFIX, Limit, Rules
from queue_db.fairness.tables import fairness_tables
from queue_db.limits.tables import limits_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction

#: Seconds for which a process does not look again at a group that is at its limit.
REFUSED = 0.01
#: The same for a rate that allows no job: at most this long.
LONGEST_REFUSED = 0.25

#: How many more candidates a claim reads than it wants, since some may be of groups that are at their limits.
MORE = 32

Key = tuple[str, str]
"""The scope and the name of a limit."""


class Taken(NamedTuple):
    """What a claim under limits has taken."""

    rows: Sequence[Sequence[Any]]
    tried: int
    #: Groups that were at their limits → the seconds after which to look again.
    refused: dict[str, float]
    #: Priority and group of the last candidate in the order of the turns.
    last: tuple[int, str] | None = None


def claim(tx: Transaction, fair: FairDialect, rules: Rules, search: Search, wanted: int, *, by_time: bool) -> Taken:
    """Take up to ``wanted`` jobs that no limit forbids. Call it in a transaction that has begun.

    :param search: it reads a few more candidates than wanted.
    :param by_time: try the jobs that have been due longest, also those without a group.
    """
    found = fair.candidates_by_time(tx, search) if by_time else in_rounds(fair.candidates(tx, search), search.weights)
    if not found:
        return Taken((), 0, {})
    limits_of = {group: rules.of(group) for group in {row[3] for row in found if row[3]}}
    keys = {key: limit for limits in limits_of.values() for key, limit in limits}
    rooms = _rooms(tx, search.parameters["in_queue"], keys)
    chosen: list[Sequence[Any]] = []
    refused: dict[str, float] = {}
    for row in found:
        met = [rooms[key] for key, _ in limits_of.get(row[3], ())]
        if len(chosen) == wanted:
            break
        if full := [room for room in met if min(room.left, room.allowed) < 1]:
            refused[row[3]] = max(room.wait for room in full)
            continue
        for room in met:
            room.left -= 1
            room.allowed -= 1
        chosen.append(row)
    rows = fair.take(tx, search, chosen)
    _note(tx, search, rows, {row[0]: row[3] for row in chosen}, limits_of, rooms)
    return Taken(rows, len(chosen), refused, (found[-1][2], found[-1][3]))


def in_rounds(found: Sequence[Sequence[Any]], weights: Mapping[str, int]) -> list[Sequence[Any]]:
    """The candidates of each priority in rounds, in each of which a group has as many jobs as its weight."""
    numbers: Counter[tuple[int, str]] = Counter()
    rounds = []
    for row in found:
        priority, group = row[2], row[3]
        rounds.append((priority, numbers[priority, group] // weights.get(group, 1)))
        numbers[priority, group] += 1
    return [row for _, row in sorted(zip(rounds, found, strict=True), key=lambda one: one[0])]


class _Room:
    """How many more jobs a limit allows, and what its rate has used up."""

    __slots__ = ("allowed", "cost", "left", "now", "over", "spent", "wait")

    def __init__(self, limit: Limit, spent_until: int, now: int) -> None:
        self.now = now
        self.left = 2**31 if limit.concurrency is None else limit.concurrency
        #: The jobs whose permits are no longer valid.
        self.over: list[int] = []
        #: How many jobs the rate allows.
        self.allowed = 2**31
        self.wait = REFUSED
        self.spent, self.cost = max(spent_until, now), 0.0
        if limit.rate is not None:
            per = limit.per or 1_000_000
            self.cost = per / limit.rate
            allowed = int((now + per - self.spent) / self.cost + 1e-9)
            if allowed < 1:
                self.wait = min(LONGEST_REFUSED, max(REFUSED, (self.spent + self.cost - per - now) / 1_000_000))
            self.allowed = allowed


def _rooms(tx: Transaction, queue: str, keys: dict[Key, Limit]) -> dict[Key, _Room]:
    """Lock the rows of the limits, and see how many jobs each allows."""
    if not keys:
        return {}
    spent, permits, jobs = fairness_tables(tx.tables).spent, limits_tables(tx.tables).permits, tx.tables.jobs
    spent_until: dict[Key, int] = {}
    for scope in (GROUP, PREFIX):
        names = sorted(name for of, name in keys if of == scope)
        if not names:
            continue
        spent_until |= _locked(tx, spent, queue, scope, names)
    now = tx.read_clock()
    rooms = {key: _Room(limit, spent_until[key], now) for key, limit in keys.items()}
    # Read without locks: a DELETE with this condition would lock the jobs that it looks at, on MySQL.
    for scope in (GROUP, PREFIX):
        names = sorted(name for (of, name), limit in keys.items() if of == scope and limit.concurrency is not None)
        held = and_(jobs.c.id == permits.c.job_id, jobs.c.claim_token == permits.c.claim_token)
        under = and_(permits.c.queue == queue, permits.c.scope == scope, permits.c.name.in_(names))
        rows = select(permits.c.name, permits.c.job_id, jobs.c.available_at).select_from(permits.outerjoin(jobs, held)).where(under)
        for name, job_id, until in tx.connection.execute(rows) if names else ():
            room = rooms[scope, name]
            if until is not None and until > now:
                room.left -= 1
            else:
                room.over.append(job_id)
    return rooms


def _locked(tx: Transaction, spent: Table, queue: str, scope: str, names: Sequence[str]) -> dict[Key, int]:
    """Lock the rows of these limits in the order of their names; make those that are missing."""
    rows = select(spent.c.name, spent.c.spent_until).where(spent.c.queue == queue, spent.c.scope == scope, spent.c.name.in_(names))
    query = tx.dialect.lock_rows(tx.dialect.by_id(rows.order_by(spent.c.name), spent), skip=False)
    found: dict[Key, int] = {(scope, row.name): row.spent_until for row in tx.connection.execute(query)}
    missing = [name for name in names if (scope, name) not in found]
    if missing:
        for name in missing:
            by_key.insert_new(tx, spent, {"queue": queue, "scope": scope, "name": name, "spent_until": 0})
        found = {(scope, row.name): row.spent_until for row in tx.connection.execute(query)}
    for name in names:
        by_key.touch(tx, spent, {"queue": queue, "scope": scope, "name": name}, "spent_until")
    return found


def _note(
    tx: Transaction,
    search: Search,
    rows: Iterable[Sequence[Any]],
    group_of: dict[int, str],
    limits_of: dict[str, list[tuple[Key, Limit]]],
    rooms: dict[Key, _Room],
) -> None:
    """Store what the claim has taken: a permit for each job and limit of concurrency, and what each rate has used up."""
    queue, token = search.parameters["in_queue"], search.parameters["token"]
    held, began = [], dict.fromkeys(rooms, 0)
    for row in rows:
        for key, limit in limits_of.get(group_of[row[0]], ()):
            began[key] += 1
            if limit.concurrency is not None:
                own = {"queue": queue, "scope": key[0], "name": key[1], "job_id": row[0]}
                held.append({**own, "claim_token": token, "until": rooms[key].now + search.parameters["lease"]})
    table = limits_tables(tx.tables).permits
    # One by one by their keys, so that no statement locks permits of other limits.
    gone = [
        {"of_scope": scope, "of_name": name, "of_id": job} for (scope, name), room in sorted(rooms.items()) for job in room.over
    ]
    if gone:
        of = (table.c.scope == bindparam("of_scope"), table.c.name == bindparam("of_name"), table.c.job_id == bindparam("of_id"))
        tx.connection.execute(delete(table).where(table.c.queue == queue, *of), gone)
    if held:
        tx.connection.execute(insert(table), held)
    for key, number in began.items():
        room = rooms[key]
        if number and room.cost:
            values = {"spent_until": room.spent + round(number * room.cost)}
            by_key.change(tx, fairness_tables(tx.tables).spent, {"queue": queue, "scope": key[0], "name": key[1]}, values)
