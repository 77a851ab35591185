"""Pages of the jobs of one queue in one state, read from the indexes of claims, of groups and of the dead table.

A page is read in two steps. The first reads up to :data:`SCANNED` index entries in order, without payloads. The second reads the
wanted rows by id. So the cost of a page does not depend on the length of the queue. A text says where the next page begins.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Select, select

from queue_db import arguments
from queue_db.administration.job_rows import state_of
from queue_db.core import Core, observe
from queue_db.model import PRESENT, State
from queue_db.monitoring.model import JobPage
from queue_db.store import Transaction
from queue_db.store.schema import BLOCKED, KEY_LENGTH, KIND_LENGTH, NEVER
from queue_db.verbs.job_rows import job_from_row

#: Most jobs on one page.
LONGEST_PAGE = 1000

#: Most index entries that one page reads to find jobs by a condition that is in no index.
SCANNED = 1000

#: Most priorities of a queue that one page reads.
PRIORITIES = 32

# The range of priorities, and the range of times.
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1
_EARLIEST, _LATEST = -(2**63), 2**63 - 1

# The letter of each order in a position, so that a position of a list in another order is refused.
_CLAIM, _GROUP, _DEATH = "cgd"


class Position(NamedTuple):
    """The place of a job in the order of a list; ``priority`` and ``at`` are 0 in lists that are not ordered by them."""

    priority: int
    at: int
    id: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page lists: the jobs of a queue in one state, with a kind and a group (None: any)."""

    queue: str
    state: State
    kind: str | None
    group: str | None
    limit: int

    @property
    def most_read(self) -> int:
        """Most index entries to read.

        If all entries fit, this is one more than the page has, to see whether there are more. Otherwise it is at least
        :data:`SCANNED`.
        """
        in_order = self.kind is None and self.group is None and self.state in (State.AVAILABLE, State.BLOCKED, State.DEAD)
        return self.limit + 1 if in_order else max(SCANNED, self.limit + 1)

    def fits(self, row: Row[Any], now: int) -> bool:
        """Whether the page lists the job of ``row``, by its kind, group and state.

        :param row: the job, or its index entry.
        """
        if (self.kind is not None and row.kind != self.kind) or (self.group is not None and row.group_key != self.group):
            return False
        if self.state is State.DEAD:
            return True
        # A job that a slice holds is in none of the states.
        return row.delete_mark == 0 and row.available_at != NEVER and state_of(row.available_at, row.claim_token, now) is self.state


def list_jobs(core: Core, queue: str, state: str, *, kind: str | None, group: str | None, after: str | None, limit: int) -> JobPage:
    """A page of the jobs of ``queue`` in ``state``.

    :raises ArgumentError: there is no such state, or ``after`` does not come from a page of this list.
    """
    wanted = Wanted(
        queue,
        _state(state),
        None if kind is None else arguments.name("kind", kind, KIND_LENGTH),
        None if group is None else arguments.name("group", group, KEY_LENGTH),
        arguments.whole("limit", limit, 1, LONGEST_PAGE),
    )
    order = _DEATH if wanted.state is State.DEAD else _CLAIM if group is None else _GROUP
    start = None if after is None else _position(order, after)
    rows, end = observe(core, "jobs", read_page, wanted, start)
    return JobPage([job_from_row(row, wanted.state, core.codec) for row in rows], None if end is None else _text(order, end))


def _state(state: object) -> State:
    if state not in PRESENT:
        raise arguments.wrong("state", state, f": must be one of {', '.join(PRESENT)}")
    return State(state)  # type: ignore[arg-type]


def _text(order: str, position: Position) -> str:
    return base64.urlsafe_b64encode(f"{order}.{'.'.join(map(str, position))}".encode()).decode().rstrip("=")


def _position(order: str, after: object) -> Position:
    """The position of a page's ``after``.

    :raises ArgumentError: ``after`` does not come from a list in this order.
    """
    if isinstance(after, str) and len(after) <= len(_text(order, Position(_LOWEST, _EARLIEST, _EARLIEST))):
        try:
            given, *numbers = base64.b64decode(after + "=" * (-len(after) % 4), b"-_", validate=True).decode().split(".")
            priority, at, job_id = map(int, numbers)
        except (binascii.Error, ValueError):
            pass
        else:
            position = Position(priority, at, job_id)
            fits = _LOWEST <= priority <= _HIGHEST and _EARLIEST <= at <= _LATEST and -1 <= job_id <= _LATEST
            if fits and given == order and _text(order, position) == after:
                return position
    raise arguments.wrong("after", after, ": must be the `after` of the page before, of the same state and group")


# --- the rows of a page -------------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """The rows of a page, and the position after which the next one begins; None: there are no more."""

    rows: list[Row[Any]]
    after: Position | None


def read_page(tx: Transaction, wanted: Wanted, after: Position | None) -> _Rows:
    """The jobs after ``after``: up to ``limit``, or fewer if the entries that one page may read contain fewer."""
    now = tx.read_clock()
    entries = _Entries(tx, wanted, now)
    ids: list[int] = []
    last = after
    for position, row in entries.read(after):
        if len(ids) == wanted.limit:
            break
        last = position
        if row is not None and wanted.fits(row, now):
            ids.append(position.id)
    else:
        if not entries.cut:
            last = None
    return _Rows(_rows(tx, wanted, ids, now), last)


class _Entries:
    """The entries of an index, in its order."""

    def __init__(self, tx: Transaction, wanted: Wanted, now: int) -> None:
        self._connection = tx.connection
        self._tables, self._dialect = tx.tables, tx.dialect
        self._wanted = wanted
        self._now = now
        self._left = wanted.most_read
        #: Whether there may be more entries than were read.
        self.cut = False

    def read(self, after: Position | None) -> Iterator[tuple[Position, Row[Any] | None]]:
        """The entries after ``after``, each with its position. A position without an entry: the next page begins there."""
        if self._wanted.state is State.DEAD:
            return self._dead(after)
        return self._in_claim_order(after) if self._wanted.group is None else self._of_group(after)

    def _in_claim_order(self, after: Position | None) -> Iterator[tuple[Position, Row[Any] | None]]:
        jobs = self._tables.jobs
        start = after or Position(_LOWEST, _EARLIEST, -1)
        for _ in range(PRIORITIES):
            priority = self._next_priority(start.priority)
            if priority is None:
                return
            if priority > start.priority:
                start = Position(priority, _EARLIEST, -1)
            of_priority = self._live().where(jobs.c.queue == self._wanted.queue, jobs.c.priority == priority)
            by_claim = self._dialect.by_claim(of_priority, jobs)
            for row in self._in_order(by_claim, jobs.c.available_at, jobs.c.id, self._times(), start):
                yield Position(priority, row.available_at, row.id), row
            if self.cut or priority == _HIGHEST:
                return
            start = Position(priority + 1, _EARLIEST, -1)
        self.cut = True
        yield Position(start.priority - 1, _LATEST, _LATEST), None

    def _of_group(self, after: Position | None) -> Iterator[tuple[Position, Row[Any] | None]]:
        jobs = self._tables.jobs
        of_queue = self._live().where(jobs.c.queue == self._wanted.queue)
        above = -1 if after is None else after.id
        for row in self._limited(self._dialect.by_group(of_queue, jobs, self._wanted.group or "", above)):
            yield Position(0, 0, row.id), row

    def _dead(self, after: Position | None) -> Iterator[tuple[Position, Row[Any] | None]]:
        dead = self._tables.dead
        of_queue = select(dead.c.id, dead.c.kind, dead.c.group_key, dead.c.died_at).where(dead.c.queue == self._wanted.queue)
        start = after or Position(0, _EARLIEST, -1)
        for row in self._in_order(of_queue, dead.c.died_at, dead.c.id, (_EARLIEST, _LATEST), start):
            yield Position(0, row.died_at, row.id), row

    def _live(self) -> Select[Any]:
        jobs = self._tables.jobs
        return select(jobs.c.id, jobs.c.kind, jobs.c.group_key, jobs.c.available_at, jobs.c.claim_token, jobs.c.delete_mark)

    def _times(self) -> tuple[int, int]:
        """The first and the last ``available_at`` of the wanted jobs."""
        match self._wanted.state:
            case State.AVAILABLE:
                return _EARLIEST, self._now
            case State.BLOCKED:
                return BLOCKED, BLOCKED
            case _:
                return self._now + 1, NEVER - 1

    def _next_priority(self, lowest: int) -> int | None:
        jobs = self._tables.jobs
        query = select(jobs.c.priority).where(jobs.c.queue == self._wanted.queue, jobs.c.priority >= lowest)
        first = self._dialect.by_claim(query.order_by(jobs.c.priority).limit(1), jobs)
        return self._connection.execute(first).scalar()

    def _in_order(
        self, query: Select[Any], at: ColumnElement[int], job_id: ColumnElement[int], times: tuple[int, int], start: Position
    ) -> Iterator[Row[Any]]:
        """Rows of ``query`` after ``start``, by time and id.

        Many jobs may have the same time, and not every database reads a comparison of pairs as one range. So there are two ranges:
        the rows with the time of ``start``, and the rows with later times.
        """
        first, last = times
        if first <= start.at <= last:
            yield from self._limited(query.where(at == start.at, job_id > start.id).order_by(at, job_id))
            first = start.at + 1
        if first <= last and start.at < last:
            within = at == first if first == last else at.between(first, last)
            yield from self._limited(query.where(within).order_by(at, job_id))

    def _limited(self, query: Select[Any]) -> Iterator[Row[Any]]:
        if self._left:
            rows = self._connection.execute(query.limit(self._left)).all()
            self._left -= len(rows)
            yield from rows
        self.cut = not self._left


def _rows(tx: Transaction, wanted: Wanted, ids: list[int], now: int) -> list[Row[Any]]:
    """The jobs with these ids, in this order, without jobs that have left the queue or changed their state since."""
    if not ids:
        return []
    table = tx.tables.dead if wanted.state is State.DEAD else tx.tables.jobs
    # Without a condition on the queue: a planner might use it and read the whole queue.
    rows = tx.connection.execute(tx.dialect.by_id(select(table).where(table.c.id.in_(ids)), table))
    by_id = {row.id: row for row in rows if row.queue == wanted.queue and wanted.fits(row, now)}
    return [by_id[job_id] for job_id in ids if job_id in by_id]
