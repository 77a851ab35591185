"""Numbers of each queue over time: one row for each ten seconds, and later one row for each ten minutes.

A row of ten seconds has the jobs by state, or NULL if they were not counted in this time, and what processes reported in this time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Row, Select, delete, func, insert, select, update

from queue_db.concurrency.queue_counters import LOST_IF_KNOWN
from queue_db.monitoring.tables import COUNTS, DEPTHS, monitoring_tables
from queue_db.store.base import Store, Transaction
from queue_db.store.portions import portions

_SECOND = 1_000_000

#: Seconds of a row when it is written, and after :func:`roll_up`.
FINE, COARSE = 10, 600

#: Width of a row → seconds for which such rows are kept.
KEPT = {FINE: 86_400, COARSE: 30 * 86_400}

# Seconds after the end of a row when no process writes to it any more: a report goes to the row of its own time.
_SETTLED = 60


def add(tx: Transaction, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Add counts by queue to the rows of the present ten seconds.

    Leases :data:`lost <queue_db.concurrency.queue_counters.LOST_IF_KNOWN>` in a queue without other counts or rows are left out:
    the name of the queue may be wrong, and a queue with numbers is listed.
    """
    table = monitoring_tables(tx.tables).metrics
    counts = {queue: known for queue, of_queue in counts.items() if (known := _known(tx, queue, of_queue))}
    added = {queue: {name: table.c[name] + number for name, number in of_queue.items()} for queue, of_queue in counts.items()}
    _write(tx, added, {queue: {**dict.fromkeys(COUNTS, 0), **of_queue} for queue, of_queue in counts.items()})


def _known(tx: Transaction, queue: str, counts: Mapping[str, int]) -> dict[str, int]:
    known = dict(counts)
    lost = known.pop(LOST_IF_KNOWN, 0)
    if lost and (known or has_numbers(tx, queue)):
        known["lost"] = known.get("lost", 0) + lost
    return known


def set_depths(tx: Transaction, depths: Mapping[str, Mapping[str, int | None]]) -> None:
    """Write the jobs by queue and state to the rows of the present ten seconds; states that are not given keep their numbers."""
    _write(tx, depths, {queue: {**dict.fromkeys(DEPTHS), **of_queue} for queue, of_queue in depths.items()})


def _write(tx: Transaction, changes: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> None:
    """Update the rows of the present ten seconds by ``changes``; for a queue without such a row, insert ``new``."""
    table = monitoring_tables(tx.tables).metrics
    at = _start(tx.read_clock(), FINE)
    there = _queues_with_row(tx, at, changes)
    for queue in sorted(there):  # in one order: no deadlock
        mine = table.c.queue == queue, table.c.width == FINE, table.c.at == at
        tx.connection.execute(update(table).where(*mine).values(dict(changes[queue])))
    rows = [{"queue": queue, "width": FINE, "at": at, **new[queue]} for queue in sorted(new) if queue not in there]
    if rows:
        tx.connection.execute(insert(table), rows)


def recent(tx: Transaction, seconds: int) -> tuple[int, dict[str, Row[Any]]]:
    """What was reported in the last ``seconds`` and in the present row: the first moment (microseconds), and the sums by queue."""
    table = monitoring_tables(tx.tables).metrics
    since = _start(tx.read_clock(), FINE) - seconds * _SECOND
    sums = [func.sum(table.c[name]).label(name) for name in COUNTS]
    query = select(table.c.queue, *sums).where(table.c.width == FINE, table.c.at >= since).group_by(table.c.queue)
    return since, {row.queue: row for row in tx.connection.execute(query)}


def has_numbers(tx: Transaction, queue: str) -> bool:
    """Whether the queue has a row."""
    table = monitoring_tables(tx.tables).metrics
    return tx.connection.execute(select(table.c.at).where(table.c.queue == queue).limit(1)).first() is not None


def history(tx: Transaction, *, queue: str | None, since: int, width: int) -> list[Row[Any]]:
    """Rows of ``width`` seconds from ``since`` on, by queue and time. Counts are sums, depths means, ``oldest`` a maximum."""
    table = monitoring_tables(tx.tables).metrics
    first = _start(since, width)
    sources = [(FINE, first)]
    if width % COARSE == 0:
        rolled = tx.connection.execute(select(func.max(table.c.at)).where(table.c.width == COARSE)).scalar()
        end = first if rolled is None else max(first, rolled + COARSE * _SECOND)
        sources = [(COARSE, first), (FINE, end)]
    rows: list[Row[Any]] = []
    for of, begin in sources:
        where = [table.c.width == of, table.c.at >= begin, *([] if queue is None else [table.c.queue == queue])]
        rows += tx.connection.execute(_summed(tx.store, width, where))
    return sorted(rows, key=lambda row: (row.queue, row.start))


def roll_up(tx: Transaction) -> bool:
    """Sum the rows of the earliest ten minutes that are over and not summed yet; False: there is nothing to sum."""
    table = monitoring_tables(tx.tables).metrics
    span = COARSE * _SECOND
    last = tx.connection.execute(select(func.max(table.c.at)).where(table.c.width == COARSE)).scalar()
    query = select(func.min(table.c.at)).where(table.c.width == FINE)
    first = tx.connection.execute(query if last is None else query.where(table.c.at >= last + span)).scalar()
    if first is None:
        return False
    start = _start(first, COARSE)
    if start + span + _SETTLED * _SECOND > tx.read_clock():
        return False
    rows = tx.connection.execute(_summed(tx.store, COARSE, [table.c.width == FINE, table.c.at >= start, table.c.at < start + span]))
    values = [{"queue": row.queue, "width": COARSE, "at": start, **numbers(row)} for row in rows]
    tx.connection.execute(insert(table), values)
    return True


def prune(tx: Transaction, width: int, limit: int) -> int:
    """Delete about ``limit`` rows of this width that are older than :data:`KEPT`; return how many.

    Rows of ten seconds are deleted only after they were summed.
    """
    table = monitoring_tables(tx.tables).metrics
    before = tx.read_clock() - KEPT[width] * _SECOND
    if width == FINE:
        summed = tx.connection.execute(select(func.max(table.c.at)).where(table.c.width == COARSE)).scalar()
        before = 0 if summed is None else min(before, summed + COARSE * _SECOND)
    old = select(table.c.queue, table.c.at).where(table.c.width == width, table.c.at < before).order_by(table.c.at).limit(limit)
    rows = tx.connection.execute(old).all()
    if not rows:
        return 0
    upto = rows[-1].at
    return tx.connection.execute(delete(table).where(table.c.width == width, table.c.at <= upto)).rowcount


def numbers(row: Row[Any]) -> dict[str, int | None]:
    """The numbers of a row by column, rounded to whole numbers."""
    values = {name: getattr(row, name) for name in (*DEPTHS, *COUNTS)}
    return {name: None if value is None else round(value) for name, value in values.items()}


def _summed(store: Store, width: int, where: Iterable[Any]) -> Select[Any]:
    table = monitoring_tables(store.tables).metrics
    rows = select((table.c.at - table.c.at % (width * _SECOND)).label("start"), table).where(*where).subquery()
    depths = [(func.max if name == "oldest" else func.avg)(rows.c[name]).label(name) for name in DEPTHS]
    sums = [func.sum(rows.c[name]).label(name) for name in COUNTS]
    return select(rows.c.queue, rows.c.start, *depths, *sums).group_by(rows.c.queue, rows.c.start)


def _queues_with_row(tx: Transaction, at: int, queues: Iterable[str]) -> set[str]:
    table = monitoring_tables(tx.tables).metrics
    queues_found: set[str] = set()
    for names in portions(sorted(queues)):
        of_names = table.c.queue.in_(names)
        queues_found.update(
            tx.connection.execute(select(table.c.queue).where(table.c.width == FINE, table.c.at == at, of_names)).scalars()
        )
    return queues_found


def _start(micros: int, width: int) -> int:
    return micros - micros % (width * _SECOND)
