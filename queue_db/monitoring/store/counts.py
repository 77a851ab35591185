"""Count the jobs of a queue, all or up to a limit, and list the names of the queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Table,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    true,
)

from queue_db.monitoring.model import KindStats, QueueStats
from queue_db.slices import holders, slices
from queue_db.store.base import Transaction
from queue_db.store.schema import BLOCKED, MARKED, NEVER

#: The most priorities of a queue that a count up to a limit reads.
PRIORITIES = 32

_EARLIEST, _LATEST = -(2**63), 2**63 - 1

_LIVE = ("available", "scheduled", "running", "blocked")


def stats(tx: Transaction, queue: str, most: int | None = None) -> QueueStats:
    """Count the jobs of ``queue`` by state and kind.

    :param most: read about this many jobs of each state at most, and name the states that may have more in ``capped``. A queue with
        more jobs is read range by range of the claim index. None: read the whole queue.
    """
    if most is None:
        jobs = tx.tables.jobs
        of_queue = _by_kind(jobs, tx.now).where(jobs.c.queue == queue, jobs.c.available_at != NEVER)
        live, capped = list(tx.connection.execute(of_queue, tx.time())), set[str]()
    else:
        live, capped = _live(tx, queue, most)
    deaths = _dead(tx, queue, most)
    if most is not None and sum(deaths.values()) >= most:
        capped.add("dead")
    kinds: dict[str, dict[str, int]] = {}
    for row in live:
        of_kind = kinds.setdefault(row.kind, dict.fromkeys(_LIVE, 0))
        for state in _LIVE:
            of_kind[state] += int(getattr(row, state))
    by_kind = {kind: KindStats(**states, dead=deaths.pop(kind, 0)) for kind, states in kinds.items() if any(states.values())}
    by_kind |= {kind: KindStats(dead=count) for kind, count in deaths.items()}

    def total(state: str) -> int:
        # More than ``most`` jobs may have been read, since the oldest job of each priority is read in any case.
        number: int = sum(getattr(kind, state) for kind in by_kind.values())
        return number if most is None or state not in capped else min(number, most)

    progressing = sum(int(row.progressing) for row in live)
    ages = [int(row.read_at) - int(row.oldest) for row in live if row.oldest is not None]
    return QueueStats(
        queue=queue,
        available=total("available"),
        scheduled=total("scheduled"),
        running=total("running"),
        dead=total("dead"),
        oldest_available_age=max(ages) / 1_000_000 if ages else None,
        by_kind=dict(sorted(by_kind.items())),
        held=sum(holder.count(tx, queue) for holder in holders()),
        blocked=total("blocked"),
        progress=sum(row.progress or 0.0 for row in live) / progressing if progressing else None,
        capped=tuple(sorted(capped)),
        unknown=sum(int(row.unknown) for row in live),
    )


def queues(tx: Transaction) -> list[str]:
    """The names of the queues that have live jobs, dead jobs, or jobs that a slice holds."""
    held = [name for holder in holders() for name in holder.queues(tx)]
    return sorted({*names(tx, tx.tables.jobs), *names(tx, tx.tables.dead), *held})


def used(tx: Transaction, queue: str) -> bool:
    """Whether the queue has a live or dead job, a finished job that is kept, or something of a slice."""
    tables = tx.tables
    rows = (table.c.queue == queue for table in (tables.jobs, tables.dead, tables.finished))
    has_rows = any(tx.connection.execute(select(literal(1)).where(of_queue).limit(1)).first() for of_queue in rows)
    return has_rows or any(part.knows(tx, queue) for part in slices().values() if part.knows is not None)


def overdue(tx: Transaction, micros: int, limit: int, most: int) -> list[tuple[str, int, int]]:
    """The queues whose oldest due job has waited longer than ``micros``, longest wait first.

    :param limit: the most queues to return.
    :param most: read about this many jobs of each queue at most.
    :return: for each queue, its name, the number of such jobs, and the age of the oldest in microseconds.
    """
    jobs = tx.tables.jobs
    now = tx.read_clock()
    waiting = []
    for queue in names(tx, jobs):
        rows: list[Row[Any]] = []
        for priority in _priorities(tx, queue):
            # Read at least one job of each priority, to find its oldest.
            left = max(1, most - _read(rows))
            rows += _range(tx, queue, priority, jobs.c.available_at < now - micros, left, now)
        oldest = [int(row.oldest) for row in rows if row.oldest is not None]
        if oldest:
            waiting.append((queue, sum(int(row.available) for row in rows), now - min(oldest)))
    return sorted(waiting, key=lambda item: -item[2])[:limit]


def _live(tx: Transaction, queue: str, most: int) -> tuple[list[Row[Any]], set[str]]:
    """The rows of :func:`_by_kind` for a queue, and the states that may have more jobs than these rows count."""
    now = tx.read_clock()
    rows: list[Row[Any]] = []
    priorities = _priorities(tx, queue, PRIORITIES + 1)
    for priority in priorities[:PRIORITIES]:
        # Read priority by priority, as claims do. Without a condition on the priority a planner may sort the whole queue.
        rows += _range(tx, queue, priority, true(), most + 1 - _read(rows), now)
        if _read(rows) > most:
            return _by_ranges(tx, queue, priorities, most, now)
    return rows, set() if len(priorities) <= PRIORITIES else set(_LIVE)


def _by_ranges(tx: Transaction, queue: str, priorities: Sequence[int], most: int, now: int) -> tuple[list[Row[Any]], set[str]]:
    """As :func:`_live`, for a queue with more than ``most`` jobs. It reads up to ``most`` jobs of each range of due times."""
    at = tx.tables.jobs.c.available_at
    ranges: dict[tuple[str, ...], ColumnElement[bool]] = {
        ("available",): at <= now,
        ("scheduled", "running"): at.between(now + 1, NEVER - 1),
        ("blocked",): at == BLOCKED,
    }
    left = dict.fromkeys(ranges, most)
    rows: list[Row[Any]] = []
    for priority in priorities[:PRIORITIES]:
        for states, within in ranges.items():
            # Read at least one due job of each priority, to find its oldest.
            limit = left[states] or (1 if states == ("available",) else 0)
            if limit:
                entries = _range(tx, queue, priority, within, limit, now)
                left[states] = max(0, left[states] - _read(entries))
                rows += entries
    more = {state for states in ranges if not left[states] for state in states}
    return rows, more if len(priorities) <= PRIORITIES else set(_LIVE)


def _read(rows: Iterable[Row[Any]]) -> int:
    """The number of jobs that were read for these rows of :func:`_by_kind`."""
    return sum(int(row.read) for row in rows)


def _dead(tx: Transaction, queue: str, most: int | None) -> dict[str, int]:
    """The number of dead jobs by kind, of at most ``most`` dead jobs."""
    dead = tx.tables.dead
    deaths: FromClause = dead
    if most is not None:
        # The range holds every time. With it, a planner without statistics reads the index in order and does not sort.
        of_queue = select(dead.c.queue, dead.c.kind).where(dead.c.queue == queue, dead.c.died_at.between(_EARLIEST, _LATEST))
        deaths = of_queue.order_by(dead.c.died_at, dead.c.id).limit(most).subquery("some")
    of_kind = select(deaths.c.kind, func.count().label("dead")).where(deaths.c.queue == queue).group_by(deaths.c.kind)
    return {row.kind: int(row.dead) for row in tx.connection.execute(of_kind)}


def _by_kind(rows: FromClause, now: ColumnElement[int]) -> Select[Any]:
    """The query that counts the jobs among ``rows`` by kind and state. Jobs that a slice holds are not counted as live."""
    at, token, progress = rows.c.available_at, rows.c.claim_token, rows.c.progress
    live = rows.c.delete_mark == 0
    due = and_(live, at <= now)
    later = and_(live, at > now, at != NEVER, at != BLOCKED)
    running = and_(later, token.is_not(None))

    def number(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((condition, 1), else_=0))

    return select(
        rows.c.kind,
        func.count().label("read"),
        number(due).label("available"),
        number(and_(later, token.is_(None))).label("scheduled"),
        number(and_(live, at == BLOCKED)).label("blocked"),
        number(running).label("running"),
        # Python computes the age. In SQL the subtraction could overflow, since a client may store any number as a due time.
        func.min(case((due, at), else_=None)).label("oldest"),
        func.max(now).label("read_at"),
        func.sum(case((running, progress), else_=None)).label("progress"),
        number(and_(running, progress.is_not(None))).label("progressing"),
        # A leased job is not counted, since its worker may have a handler for it.
        number(and_(live, rows.c.unknown_since.is_not(None), or_(token.is_(None), due))).label("unknown"),
    ).group_by(rows.c.kind)


def _range(tx: Transaction, queue: str, priority: int, within: ColumnElement[bool], limit: int, now: int) -> Sequence[Row[Any]]:
    """Counts of the first ``limit`` jobs of one priority whose due times are ``within`` a range."""
    jobs = tx.tables.jobs
    columns = ("kind", "available_at", "claim_token", "progress", "delete_mark", "unknown_since")
    needed = select(*(jobs.c[name] for name in columns))
    of_range = needed.where(jobs.c.queue == queue, jobs.c.priority == priority, within)
    entries = tx.dialect.by_claim(of_range, jobs).order_by(jobs.c.available_at, jobs.c.id).limit(limit).subquery("some")
    return tx.connection.execute(_by_kind(entries, literal(now, BigInteger))).all()


def _priorities(tx: Transaction, queue: str, most: int = PRIORITIES) -> list[int]:
    """The first ``most`` priorities of ``queue``. Each takes one statement, which reads one entry of the claim index."""
    jobs = tx.tables.jobs
    of_queue = tx.dialect.by_claim(select(jobs.c.priority).where(jobs.c.queue == queue), jobs)
    return _distinct(tx.connection, of_queue, jobs.c.priority, None, most)


def names(tx: Transaction, table: Table, most: int | None = None) -> list[str]:
    """The names of the queues in the table of jobs or of dead jobs. Each takes a statement, which reads one entry of an index.

    :param most: the most names to return; None: all names.
    """
    query = select(table.c.queue)
    if table is tx.tables.jobs:
        query = tx.dialect.by_claim(query, table)
    return _distinct(tx.connection, query, table.c.queue, MARKED, most)


def _distinct(connection: Connection, query: Select[Any], column: Column[Any], above: Any, most: int | None) -> list[Any]:
    """The different values of ``column``, in order, by one statement for each value.

    A DISTINCT would read all entries of an index on PostgreSQL before 18 and on SQLite.

    :param above: return only values above this one; None: all values.
    :param most: the most values to return; None: all values.
    """
    values: list[Any] = []
    while most is None or len(values) < most:
        # Use only one condition on the column, since SQLite starts its read of the index at the first condition.
        rest = query if above is None else query.where(column > above)
        above = connection.execute(rest.order_by(column).limit(1)).scalar()
        if above is None:
            break
        values.append(above)
    return values
