"""When the next job of each of some queues is due: one statement for all of them, so that an idle worker asks one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Table,
    bindparam,
    cast,
    literal,
    null,
    select,
    union_all,
)

from queue_db.dialects.clock import moment
from queue_db.model import Range
from queue_db.store.base import Transaction
from queue_db.store.schema import NEVER

# Places in the rows of the answer.
_PLACE, _PRIORITY, _DUE = range(3)

# The position of the row with the time.
_CLOCK = -1


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is to be expected of one queue."""

    #: Microseconds until its next job is due: 0 or less when one is due now, None when there is no job.
    wait: int | None
    #: Priorities that are in the queue and were not in the ranges.
    unseen: tuple[int, ...] = ()
    #: Priorities with a job in the ranges.
    seen: tuple[int, ...] = ()
    #: When this was asked by the database's clock, microseconds.
    asked_at: int = 0


def anything_left(tx: Transaction, queue: str, within: int, kind: str | None = None) -> bool:
    """Whether ``queue`` has a job that is leased, or due at most ``within`` microseconds from now.

    A job that waits for others of its group does not count, since one of these does; nor one that a slice holds.

    :param kind: only jobs of this kind.
    """
    jobs = tx.tables.jobs
    near = jobs.c.available_at <= moment(tx.store.clock is not None) + literal(within, BigInteger)
    mine = [jobs.c.queue == queue, jobs.c.delete_mark == 0, jobs.c.available_at < NEVER, near | jobs.c.claim_token.is_not(None)]
    if kind is not None:
        mine.append(jobs.c.kind == kind)
    return tx.connection.execute(select(literal(1)).where(*mine).limit(1), tx.time()).first() is not None


def look(tx: Transaction, queues: Mapping[str, Sequence[Range]]) -> dict[str, Outlook]:
    """The outlook of each queue; ``queues`` says in which ranges (``store/low_water_marks.py``) its jobs lie, none: anywhere.

    Reads one index entry for each range and each gap between them. A running job counts as due at the end of its lease.
    """
    values: dict[str, Any] = tx.time()
    for place, (queue, ranges) in enumerate(queues.items()):
        values[f"queue_{place}"] = queue
        for number, known in enumerate(ranges):
            values[f"priority_{place}_{number}"] = known.priority
            values[f"floor_{place}_{number}"] = known.floor
    shape = tuple(len(ranges) for ranges in queues.values())
    rows = tx.fetch(_question(tx.tables.jobs, shape, tx.store.clock is not None), values)
    now = next(row[_DUE] for row in rows if row[_PLACE] == _CLOCK)
    due: dict[int, int] = {}
    unseen: dict[int, list[int]] = {}
    seen: dict[int, list[int]] = {}
    for row in rows:
        place = row[_PLACE]
        if place == _CLOCK:
            continue
        if row[_DUE] is None:
            unseen.setdefault(place, []).append(row[_PRIORITY])
            continue
        seen.setdefault(place, []).append(row[_PRIORITY])
        if row[_DUE] < NEVER:  # what waits for something else than time is no reason to wake up
            due[place] = min(row[_DUE], due.get(place, row[_DUE]))
    return {
        queue: Outlook(
            due[place] - now if place in due else None, tuple(sorted(unseen.get(place, ()))), tuple(seen.get(place, ())), now
        )
        for place, queue in enumerate(queues)
    }


@lru_cache(maxsize=256)
def _question(jobs: Table, shape: tuple[int, ...], settable: bool) -> Any:
    """``place, priority, available_at``: the clock, the first job of each range, and priorities in the gaps (without a time)."""
    columns: list[ColumnElement[Any]] = [literal(_CLOCK, Integer).label("place"), literal(0, Integer).label("priority")]
    arms: list[Select[Any]] = [select(*columns, moment(settable).label("due"))]
    for place, ranges in enumerate(shape):
        arms += [_first(jobs, place, number) for number in range(ranges)] or [_anywhere(jobs, place, settable)]
        if ranges:
            arms += [_gap(jobs, place, ranges, number) for number in range(ranges + 1)]
    return union_all(*arms)


def _first(jobs: Table, place: int, number: int) -> Select[Any]:
    of_range = [
        jobs.c.priority == bindparam(f"priority_{place}_{number}", type_=Integer),
        jobs.c.available_at >= bindparam(f"floor_{place}_{number}", type_=BigInteger),
    ]
    return _one(jobs, place, f"first_{place}_{number}", of_range, jobs.c.available_at, jobs.c.available_at)


def _anywhere(jobs: Table, place: int, settable: bool) -> Select[Any]:
    """Any due job: with more priorities than the marks keep, the first one is unknown."""
    return _one(jobs, place, f"any_{place}", [jobs.c.available_at <= moment(settable)], jobs.c.available_at, None)


def _gap(jobs: Table, place: int, ranges: int, number: int) -> Select[Any]:
    """A priority between two known ones; why in this direction, ``store/lease.py`` says."""
    known = [bindparam(f"priority_{place}_{one}", type_=Integer) for one in range(ranges)]
    inside: list[ColumnElement[bool]] = []
    if number > 0:
        inside.append(jobs.c.priority > known[number - 1])
    if number < ranges:
        inside.append(jobs.c.priority < known[number])
    order = jobs.c.priority.desc() if number < ranges else jobs.c.priority
    return _one(jobs, place, f"gap_{place}_{number}", inside, None, order)


def _one(
    jobs: Table,
    place: int,
    name: str,
    where: Sequence[ColumnElement[bool]],
    due: ColumnElement[int] | None,
    order: ColumnElement[Any] | None,
) -> Select[Any]:
    """The first row in ``order`` of a queue's, as a subquery: not every database takes a LIMIT in an arm of a UNION."""
    # With its type: an untyped NULL in a subquery is text to PostgreSQL.
    due_at = cast(null(), BigInteger) if due is None else due
    row = select(literal(place, Integer).label("place"), jobs.c.priority.label("priority"), due_at.label("due"))
    row = row.where(jobs.c.queue == bindparam(f"queue_{place}"), jobs.c.delete_mark == 0, *where).limit(1)
    return select((row if order is None else row.order_by(order)).subquery(name))
