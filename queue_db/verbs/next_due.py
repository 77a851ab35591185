"""Finds out when the next job of each queue is due.

One statement reads all queues, each from its low-water marks. This is cheap, so idle workers can ask often.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, Select, Table, bindparam, cast, literal, null, select, union_all

from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.clock import moment
from queue_db.model import Capability, Range
from queue_db.store import Transaction
from queue_db.store.schema import NEVER

# The most reads of one call. A read that finds a new priority is repeated, with a range for this priority. A queue with more
# priorities than the marks keep is read without ranges, and then no priority is new.
_READS = 64

_READ = Run("next_due", write=False, lazy=True, repeatable=True)

# The positions of the columns in a row of the answer.
_PLACE, _PRIORITY, _DUE = range(3)

# The `place` of the row with the time of the database.
_CLOCK = -1


@dataclass(frozen=True, slots=True)
class DueInfo:
    """When the next job of a queue is due, and which priorities the queue has."""

    #: Microseconds until the next job is due: 0 or less if a job is due now, None if the queue has no job.
    wait: int | None
    #: Priorities of the queue that are not in the ranges.
    new_priorities: tuple[int, ...] = ()
    #: Priorities of the ranges in which a job was found.
    seen: tuple[int, ...] = ()
    #: The time of the read, by the database's clock, in microseconds.
    read_at: int = 0


def next_due(core: Core, queues: Iterable[str]) -> dict[str, float | None]:
    """Seconds until the next job of each queue is due: 0 or less if a job is due now, None if the queue has no job.

    One statement reads all queues. As with claims, a job below a queue's low-water mark is found only by the next rescan.
    """
    core.ready()
    waits: dict[str, float | None] = {}
    asked = {queue: core.marks[queue] for queue in queues}
    for _ in range(_READS):
        if not asked:
            break
        rescanning = {queue for queue, marks in asked.items() if marks.rescan_due()}
        ranges = {queue: marks.ranges(rescan=queue in rescanning) for queue, marks in asked.items()}
        began = time.monotonic()
        infos = core.run(_READ, read_next_due, ranges)
        seconds = time.monotonic() - began
        again = {}
        for queue, info in infos.items():
            marks = asked[queue]
            marks.add(*info.new_priorities, *info.seen)
            waits[queue] = None if info.wait is None else info.wait / 1_000_000
            if info.new_priorities:
                again[queue] = marks
            elif not _due(waits[queue]):
                if Capability.CONCURRENT_WRITERS in core.store.capabilities:  # other databases keep no dead index entries
                    marks.nothing_due(ranges[queue], info.read_at)
                if queue in rescanning:
                    # Do not record the rescan if a job is due: the claim must rescan too, or it would not find the job.
                    marks.rescanned(seconds)
        asked = again
    return waits


def _due(wait: float | None) -> bool:
    return wait is not None and wait <= 0


def read_next_due(tx: Transaction, queues: Mapping[str, Sequence[Range]]) -> dict[str, DueInfo]:
    """Read when the next job of each queue is due.

    One index entry is read for each range and for each gap between ranges. A running job counts as due at the end of its lease.

    :param queues: the ranges to read in each queue (``store/low_water_marks.py``); no ranges: look only for any due job.
    """
    values: dict[str, Any] = tx.time()
    for place, (queue, ranges) in enumerate(queues.items()):
        values[f"queue_{place}"] = queue
        for number, (priority, floor) in enumerate(ranges):
            values[f"priority_{place}_{number}"] = priority
            values[f"floor_{place}_{number}"] = floor
    shape = tuple(len(ranges) for ranges in queues.values())
    rows = tx.fetch(_question(tx.tables.jobs, shape, tx.store.clock is not None), values)
    now = next(row[_DUE] for row in rows if row[_PLACE] == _CLOCK)
    due: dict[int, int] = {}
    new_priorities: dict[int, list[int]] = {}
    seen: dict[int, list[int]] = {}
    for row in rows:
        place = row[_PLACE]
        if place == _CLOCK:
            continue
        if row[_DUE] is None:
            new_priorities.setdefault(place, []).append(row[_PRIORITY])
            continue
        seen.setdefault(place, []).append(row[_PRIORITY])
        if row[_DUE] < NEVER:  # blocked and held jobs have no due time
            due[place] = min(row[_DUE], due.get(place, row[_DUE]))
    return {
        queue: DueInfo(
            due[place] - now if place in due else None,
            tuple(sorted(new_priorities.get(place, ()))),
            tuple(seen.get(place, ())),
            now,
        )
        for place, queue in enumerate(queues)
    }


@lru_cache(maxsize=256)
def _question(jobs: Table, shape: tuple[int, ...], settable: bool) -> Any:
    """A query for rows of ``place``, ``priority`` and ``due``.

    It returns the database's time, the first job of each range, and one priority for each gap that has jobs (``due`` is NULL). For
    a queue without ranges it returns any due job.
    """
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
    return _first_row(jobs, place, f"first_{place}_{number}", of_range, jobs.c.available_at, jobs.c.available_at)


def _anywhere(jobs: Table, place: int, settable: bool) -> Select[Any]:
    """Any due job of a queue that has more priorities than the marks keep."""
    return _first_row(jobs, place, f"any_{place}", [jobs.c.available_at <= moment(settable)], jobs.c.available_at, None)


def _gap(jobs: Table, place: int, ranges: int, number: int) -> Select[Any]:
    """A priority between two known priorities. ``ClaimText.new_priorities`` explains the direction of the order."""
    known = [bindparam(f"priority_{place}_{range_number}", type_=Integer) for range_number in range(ranges)]
    inside: list[ColumnElement[bool]] = []
    if number > 0:
        inside.append(jobs.c.priority > known[number - 1])
    if number < ranges:
        inside.append(jobs.c.priority < known[number])
    order = jobs.c.priority.desc() if number < ranges else jobs.c.priority
    return _first_row(jobs, place, f"gap_{place}_{number}", inside, None, order)


def _first_row(
    jobs: Table,
    place: int,
    name: str,
    where: Sequence[ColumnElement[bool]],
    due: ColumnElement[int] | None,
    order: ColumnElement[Any] | None,
) -> Select[Any]:
    """The first row of a queue, in ``order``; None: any row."""
    # The subquery is needed because not every database allows a LIMIT in an arm of a UNION. The cast is needed because PostgreSQL
    # gives an untyped NULL in a subquery the type text.
    due_at = cast(null(), BigInteger) if due is None else due
    row = select(literal(place, Integer).label("place"), jobs.c.priority.label("priority"), due_at.label("due"))
    row = row.where(jobs.c.queue == bindparam(f"queue_{place}"), jobs.c.delete_mark == 0, *where).limit(1)
    return select((row if order is None else row.order_by(order)).subquery(name))
