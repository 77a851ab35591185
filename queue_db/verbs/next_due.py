"""Finds out when the next job of each queue is due.

One statement reads up to about 100 queues, each from its low-water marks. This is cheap, so idle workers can ask often.
"""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Executable

from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects import statements
from queue_db.dialects.statements import JobsText
from queue_db.model import Capability, Range
from queue_db.store import Transaction
from queue_db.store.schema import NEVER

# The most reads of one call. A read that finds a new priority is repeated, with a range for this priority. A queue with more
# priorities than the marks keep is read without ranges, and then no priority is new.
_READS = 64

# The most reads of index entries in one statement: 100 queues of one priority. SQLite refuses a statement with more than 500, and
# MySQL plans one of thousands for longer than a statement may take.
_MOST_ROWS = 300

_READ = Run("next_due", write=False, lazy=True, repeatable=True)

# The positions of the columns in a row of the answer.
_PLACE, _PRIORITY, _DUE = range(3)

# The `place` of the row with the time of the database.
_CLOCK = -1


class DueInfo(NamedTuple):
    """When the next job of a queue is due, and which priorities the queue has."""

    #: Microseconds until the next job is due: 0 or less if a job is due now, None if the queue has no job.
    wait: int | None
    #: Priorities of which a job was found.
    priorities: tuple[int, ...]
    #: Whether all of these priorities were in the ranges. Otherwise a job of another one may be due.
    complete: bool
    #: The time of the read, by the database's clock, in microseconds.
    read_at: int


def next_due(core: Core, queues: Iterable[str]) -> dict[str, float | None]:
    """Seconds until the next job of each queue is due: 0 or less if a job is due now, None if the queue has no job.

    One statement reads up to about 100 queues. As with claims, a job below a low-water mark is found only by the next rescan.
    """
    core.ready()
    waits: dict[str, float | None] = {}
    asked = {queue: core.marks[queue] for queue in queues}
    for _ in range(_READS):
        if not asked:
            break
        rescanning = {queue for queue, marks in asked.items() if marks.rescan_due()}
        ranges = {queue: marks.ranges(rescan=queue in rescanning) for queue, marks in asked.items()}
        again = {}
        for piece in _pieces(ranges):
            began = time.monotonic()
            infos = core.run(_READ, read_next_due, piece)
            seconds = time.monotonic() - began
            for queue, info in infos.items():
                marks = asked[queue]
                marks.add(*info.priorities)
                waits[queue] = None if info.wait is None else info.wait / 1_000_000
                if not info.complete:
                    again[queue] = marks
                elif info.wait is None or info.wait > 0:
                    if Capability.CONCURRENT_WRITERS in core.store.capabilities:  # other databases keep no dead index entries
                        marks.nothing_due(piece[queue], info.read_at)
                    if queue in rescanning:
                        # Do not record the rescan if a job is due: the claim must rescan too, or it would not find the job.
                        marks.rescanned(seconds)
        asked = again
    return waits


def _pieces(ranges: Mapping[str, Sequence[Range]]) -> Iterator[dict[str, Sequence[Range]]]:
    """The queues in their order, in pieces that one statement reads."""
    piece: dict[str, Sequence[Range]] = {}
    rows = 0
    for queue, of_queue in ranges.items():
        more = 2 * len(of_queue) + 1  # the ranges, and the gaps around them
        if piece and rows + more > _MOST_ROWS:
            yield piece
            piece, rows = {}, 0
        piece[queue] = of_queue
        rows += more
    if piece:
        yield piece


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
    texts = statements.on(tx.dialect, tx.tables.jobs, tx.connection.dialect, settable=tx.store.clock is not None)
    rows = tx.fetch(_question(texts, shape), values)
    now = next(row[_DUE] for row in rows if row[_PLACE] == _CLOCK)
    due: dict[int, int] = {}
    incomplete: set[int] = set()
    for row in rows:
        place = row[_PLACE]
        if row[_DUE] is None:
            incomplete.add(place)
        elif row[_DUE] < NEVER:  # blocked and held jobs have no due time
            due[place] = min(row[_DUE], due.get(place, row[_DUE]))
    return {
        queue: DueInfo(
            due[place] - now if place in due else None,
            tuple(row[_PRIORITY] for row in rows if row[_PLACE] == place),
            place not in incomplete,
            now,
        )
        for place, queue in enumerate(queues)
    }


@lru_cache(maxsize=256)
def _question(texts: JobsText, shape: tuple[int, ...]) -> Executable:
    """A query for rows of ``place``, ``priority`` and ``due``.

    It returns the database's time, the first job of each range, and one priority for each gap that has jobs (``due`` is NULL). For
    a queue without ranges, which has more priorities than the marks keep, it returns any due job.

    :param shape: the number of ranges of each queue.
    """
    rows = []
    for place, ranges in enumerate(shape):
        known = [f":priority_{place}_{number}" for number in range(ranges)]
        for number, priority in enumerate(known):
            of_range = f"priority = {priority} AND available_at >= :floor_{place}_{number} ORDER BY available_at"
            rows.append(_row(texts, place, "available_at", of_range))
        if not known:
            rows.append(_row(texts, place, "available_at", f"available_at <= {texts.now}"))
            continue
        # NULLIF makes a NULL that is a number: PostgreSQL takes a bare NULL for a text. ``ClaimText.new_priorities`` explains the
        # direction of the order.
        gaps = [f"priority < {known[0]} ORDER BY priority DESC", f"priority > {known[-1]} ORDER BY priority"]
        gaps += [f"priority > {low} AND priority < {high} ORDER BY priority DESC" for low, high in pairwise(known)]
        rows += [_row(texts, place, "NULLIF(0, 0)", gap) for gap in gaps]
    # The subqueries are needed because not every database allows a LIMIT in an arm of a UNION.
    arms = [f"SELECT * FROM ({row}) AS row_{number}" for number, row in enumerate(rows)]
    clock = f"SELECT {_CLOCK} AS place, 0 AS priority, {texts.now} AS due"
    return statements.kept(" UNION ALL ".join([clock, *arms]), "place", "priority", "due")


def _row(texts: JobsText, place: int, due: str, where: str) -> str:
    """The first row of a queue; ``where`` ends with the order."""
    columns = f"{place} AS place, priority, {due} AS due"
    return f"SELECT {columns} FROM {texts.table} WHERE queue = :queue_{place} AND delete_mark = 0 AND {where} LIMIT 1"
