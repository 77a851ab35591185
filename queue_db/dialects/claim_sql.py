"""The SQL of a claim, as text: the parts that databases share. A dialect builds its statements from these parts.

SQLAlchemy quotes the table names. Values are always bound, as in ``:limit``. Each statement gives the table the alias ``jobs``.
"""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Executable, Table
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect

from queue_db.dialects.clock import now_us_after_waiting
from queue_db.dialects.statements import LISTS, JobsText, kept
from queue_db.model import MOST_ATTEMPTS, MOST_VERSION, ClaimedRow, ClaimResult, Seen

if TYPE_CHECKING:
    from queue_db.dialects.base import Dialect


class Order(StrEnum):
    """How candidates are picked from the window of due jobs."""

    HEAD = "head"  #: the first ones
    SLICE = "slice"  #: consecutive jobs from an offset on; if the queue ends too soon, also the first ones


class Lock(StrEnum):
    """Whether candidates are locked while they are read."""

    NONE = "none"
    WAIT = "wait"
    SKIP = "skip"


class Shape(NamedTuple):
    """The properties of a claim that determine its SQL text. :class:`ClaimText` is made once for each shape."""

    #: The number of index ranges to read, one for each known priority. 0: read one range over all priorities.
    ranges: int
    order: Order
    lock: Lock
    #: The number of index ranges of other queues. The claim takes nothing if a job in one of these ranges is due.
    others: int = 0
    #: Whether the time is the parameter ``now``; otherwise it is the database's clock.
    settable: bool = False
    #: Whether to claim only jobs of the kind ``of_kind``.
    kinded: bool = False


#: The columns that a claim returns.
COLUMNS = ClaimedRow._fields

# The columns of a window of candidates. The payload is not among them: it is read only for the jobs that are picked.
_WINDOW = ("id", "version", "priority", "available_at")
_REST = tuple(name for name in COLUMNS if name not in _WINDOW)


def columns_of(table: str, names: tuple[str, ...] = COLUMNS) -> str:
    """The columns ``names`` of ``table`` for a SELECT, such as ``table.id, table.kind``."""
    return ", ".join(f"{table}.{name}" for name in names)


_FAST = frozenset({(Order.HEAD, Lock.NONE), (Order.HEAD, Lock.SKIP), (Order.SLICE, Lock.NONE)})


class ClaimText(JobsText):
    """The parts of the claim statements of one shape."""

    def __init__(self, dialect: Dialect, jobs: Table, shape: Shape, sql: SQLAlchemyDialect) -> None:
        super().__init__(dialect, jobs, sql, settable=shape.settable)
        self.shape = shape
        #: Whether one short statement can claim. The claim needs a single range and must not wait for locks. A slice that locks has
        #: no fast path, because the short statement would also lock the jobs before the slice.
        self.has_fast_path = shape.ranges == 1 and (shape.order, shape.lock) in _FAST
        #: The table with its alias in these statements.
        self.jobs = f"{self.table} AS jobs"
        self.by_id = f"{self.jobs}{dialect.by_id_hint}"

    # --- which jobs are due -----------------------------------------------------------------------------------------

    def due(self, place: int | None) -> str:
        """The condition for the due jobs of the range ``place``. If ``place`` is None: for those of all priorities."""
        kind = " AND jobs.kind = :of_kind" if self.shape.kinded else ""
        within = "" if place is None else f" AND jobs.priority = :priority_{place} AND jobs.available_at >= :floor_{place}"
        return f"jobs.queue = :in_queue AND jobs.available_at <= {self.now} AND jobs.delete_mark = 0{kind}{within}"

    @property
    def nothing_due(self) -> list[str]:
        """Conditions that no job is due in the ranges of other queues. Each condition reads one index entry.

        The conditions depend on no row, so a database evaluates each condition once if it stands outside the SELECTs of the ranges.
        """
        # NOT EXISTS is not used: a planner may turn it into a join, which reads the claim's own rows first.
        return [
            f"(SELECT other.id FROM {self.table} AS other WHERE other.queue = :other_queue_{place}"
            f" AND other.priority = :other_priority_{place} AND other.available_at >= :other_floor_{place}"
            f" AND other.available_at <= {self.now} AND other.delete_mark = 0 ORDER BY other.available_at LIMIT 1) IS NULL"
            for place in range(self.shape.others)
        ]

    @property
    def nothing_before(self) -> str:
        """The condition that no job of the queue has a lower priority number than the priority of the only range."""
        # Without ORDER BY, the database might read all the rows.
        return (
            f"(SELECT other.priority FROM {self.table} AS other WHERE other.queue = :in_queue"
            " AND other.priority < :priority_0 ORDER BY other.priority DESC LIMIT 1) IS NULL"
        )

    @property
    def new_priorities(self) -> str:
        """A query for new priorities. If a gap between known priorities has a job, the query returns the priority of this job."""
        gaps = []
        for place in range(self.shape.ranges + 1):
            above = f" AND jobs.priority > :priority_{place - 1}" if place > 0 else ""
            below = f" AND jobs.priority < :priority_{place}" if place < self.shape.ranges else ""
            # Read downwards from the next known priority, if there is one. In a gap without jobs, this read stops at the last entry
            # of the range below. An upward read would go on to the next range, where InnoDB steps over all dead entries.
            order = " DESC" if below else ""
            gaps.append(
                f"SELECT gap_{place}.priority FROM (SELECT jobs.priority FROM {self.jobs}"
                f" WHERE jobs.queue = :in_queue{above}{below} ORDER BY jobs.priority{order} LIMIT 1) AS gap_{place}"
            )
        return " UNION ALL ".join(gaps)

    # --- candidates ---------------------------------------------------------------------------------------------------

    @cached_property
    def lock(self) -> str:
        """The clause at the end of a SELECT that locks the selected rows; empty for ``Lock.NONE``."""
        lock = self.shape.lock
        return "" if lock is Lock.NONE else self.locked(skip=lock is Lock.SKIP)

    def _arm(self, place: int | None, columns: str) -> str:
        """The query of one index range, in index order. store/low_water_marks.py says why each priority has its own range."""
        keys = "jobs.available_at, jobs.id" if place is not None else "jobs.priority, jobs.available_at, jobs.id"
        head = "jobs.available_at"
        if self.shape.order is not Order.HEAD:
            head = f"(SELECT jobs.available_at FROM {self.jobs} WHERE {self.due(place)} ORDER BY {keys} LIMIT 1)"
        return f"SELECT {columns}, {head} AS head FROM {self.jobs} WHERE {self.due(place)} ORDER BY {keys} LIMIT :read{self.lock}"

    def _window(self, name: str, columns: str) -> str:
        """The window as a subquery: the first due jobs of all ranges, in claim order."""
        if self.shape.ranges == 0:
            return f"({self._arm(None, columns)}) AS {name}_all"
        # The database runs the arms one after the other until the limit. It reads no later priority if the earlier ones suffice.
        arms = [f"({self._arm(place, columns)}) AS {name}_{place}" for place in range(self.shape.ranges)]
        if len(arms) == 1:
            return arms[0]
        return f"({' UNION ALL '.join(f'SELECT * FROM {arm}' for arm in arms)} LIMIT :read) AS {name}"

    def candidates(self, *, whole: bool) -> str:
        """The query for ``id, version, priority, available_at, head`` of the candidates.

        :param whole: select also the other columns that a claim returns.
        """
        order, locks = self.shape.order, self.shape.lock is not Lock.NONE
        # All locked jobs are claimed, so the locking read can select all their columns without a join.
        columns = columns_of("jobs", (*_WINDOW, *_REST) if whole and locks else _WINDOW)
        if order is Order.HEAD:
            drawn = f"SELECT * FROM {self._window('due', columns)}"
        else:
            # If the queue ends before the slice has enough jobs, the slice continues at the head.
            slice_ = f"(SELECT * FROM {self._window('due', columns)} LIMIT :limit OFFSET :start) AS slice"
            front = f"(SELECT * FROM {self._window('front_due', columns)} LIMIT :front) AS front"
            drawn = f"SELECT * FROM {slice_} UNION ALL SELECT * FROM {front} LIMIT :limit"
        where = f" WHERE {' AND '.join(self.nothing_due)}" if self.nothing_due else ""
        if not whole or locks:
            if where and order is not Order.HEAD:
                drawn = f"SELECT * FROM ({drawn}) AS drawn"
            return f"{drawn}{where}"
        rest = columns_of("jobs", _REST)
        return f"SELECT drawn.*, {rest} FROM ({drawn}) AS drawn JOIN {self.by_id} ON jobs.id = drawn.id{where}"

    # --- the change ---------------------------------------------------------------------------------------------------

    @property
    def assignments(self) -> dict[str, str]:
        """Column → new value. The order matters: MySQL reads the new value of a column that an earlier assignment has changed."""
        now = self.now
        if self.shape.lock is Lock.WAIT and not self.shape.settable:
            now = self.written(now_us_after_waiting())
        return {
            "due_at": "jobs.available_at",
            "available_at": f"{now} + :lease",
            "version": f"CASE WHEN jobs.version < {MOST_VERSION} THEN jobs.version + 1 ELSE jobs.version END",
            # Attempts are counted at the claim and not at the failure, so that an attempt that kills its worker counts.
            "attempts": f"CASE WHEN jobs.attempts < {MOST_ATTEMPTS} THEN jobs.attempts + 1 ELSE {MOST_ATTEMPTS} END",
            # If the row has the token of an expired lease, a worker with a handler for the job has claimed it before.
            "unknown_since": "CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END",
            "claim_token": ":token",
            "worker": ":by_worker",
            # Clear the progress of an earlier attempt whose lease expired.
            "progress": "NULL",
            "progress_note": "NULL",
            # Removing the padding keeps the row from growing (queue_db/store/schema/jobs.py).
            "padding": "NULL",
        }

    def set(self, **other: str) -> str:
        """The SET clause of an UPDATE; ``other``: values that replace those of :attr:`assignments`."""
        return ", ".join(f"{name} = {value}" for name, value in (self.assignments | other).items())


# --- statements for most databases: each is sent as ``claim.made(…)`` ------------------------------------------------------------


def matching(*, one: bool) -> str:
    """The condition for rows whose ``(id, version)`` is given; :func:`~queue_db.dialects.statements.wanted` has the parameters."""
    if one:
        return "jobs.id = :of_id AND jobs.version = :of_version"
    # The condition on the ids lets the planner use the primary key. Not every planner can derive index ranges from the pairs.
    return "jobs.id IN :of_ids AND (jobs.id, jobs.version) IN :of_pairs"


def candidates(claim: ClaimText) -> Executable:
    """Read the candidates without new priorities."""
    return kept(claim.candidates(whole=False), *_WINDOW, "head")


def read_new_priorities(claim: ClaimText) -> Executable:
    """Read the new priorities without candidates."""
    return kept(claim.new_priorities, "priority")


_LOOKED = (*COLUMNS, "head", "looked_at")


def look(claim: ClaimText) -> Executable:
    """Read candidates and new priorities in one statement. The rows of new priorities have no id."""
    found = f"SELECT {columns_of('candidate', (*COLUMNS, 'head'))}, {claim.now} AS looked_at"
    rows = f"{found} FROM ({claim.candidates(whole=True)}) AS candidate"
    if not claim.shape.ranges:
        return kept(rows, *_LOOKED)
    blank = ", ".join("unseen.priority" if name == "priority" else "NULL" for name in COLUMNS)
    return kept(f"{rows} UNION ALL SELECT {blank}, NULL, NULL FROM ({claim.new_priorities}) AS unseen", *_LOOKED)


def fast_path_look(claim: ClaimText) -> Executable:
    """Read the candidates of a single range, with the columns of :func:`look`. For a slice, the column ``head`` is NULL."""
    slices = claim.shape.order is Order.SLICE
    where = " AND ".join([claim.due(0), *claim.nothing_due, claim.nothing_before])
    return kept(
        f"SELECT {columns_of('jobs')}, {'NULL' if slices else 'jobs.available_at'} AS head, {claim.now} AS looked_at"
        f" FROM {claim.jobs} WHERE {where} ORDER BY jobs.available_at, jobs.id"
        f" LIMIT :limit{' OFFSET :start' if slices else ''}{claim.lock}",
        *_LOOKED,
    )


def update_claimed(claim: ClaimText, *, one: bool) -> Executable:
    """Claim the candidates that still have their version.

    The lease ends at the parameter ``until``. With ``Lock.WAIT``, the lease starts at the time of this UPDATE instead.
    """
    until = {} if claim.shape.lock is Lock.WAIT else {"available_at": ":until"}
    change = f"UPDATE {claim.by_id} SET {claim.set(**until)} WHERE {matching(one=one)}"
    return kept(change, **LISTS)


def won(claim: ClaimText) -> Executable:
    """Read the jobs that a claim has won."""
    where = "jobs.id IN :of_ids AND jobs.claim_token = :token"
    return kept(f"SELECT {columns_of('jobs')} FROM {claim.by_id} WHERE {where}", *COLUMNS, **LISTS)


def update_existing(claim: ClaimText) -> Executable:
    """Claim candidates on SQLite, with an INSERT that updates existing rows (queue_db/dialects/sqlite.py explains why)."""
    where = "true"  # without WHERE SQLite would read ON CONFLICT as the condition of a join
    if claim.shape.ranges:
        # Candidates after a new priority are excluded, because the jobs of that priority come first. Any priority is below 2**31.
        where = f"candidate.priority < coalesce((SELECT min(unseen.priority) FROM ({claim.new_priorities}) AS unseen), {2**31})"
    return kept(
        f"INSERT INTO {claim.jobs} (id, queue, payload) SELECT candidate.id, '', ''"
        f" FROM ({claim.candidates(whole=False)}) AS candidate WHERE {where}"
        f" ON CONFLICT (id) DO UPDATE SET {claim.set()} RETURNING {', '.join(COLUMNS)}",
        *COLUMNS,
    )


# --- the rows of a claim, and its result ------------------------------------------------------------------------------------

#: Positions in the rows of a claim, which begin with the columns of a claimed job.
ID, PAYLOAD, PRIORITY, AVAILABLE, DUE, VERSION, ATTEMPTS = map(
    COLUMNS.index, ("id", "payload", "priority", "available_at", "due_at", "version", "attempts")
)
HEAD = len(ClaimedRow._fields)
LOOKED_AT = HEAD + 1

_columns = itemgetter(slice(len(COLUMNS)))
_in_claim_order = itemgetter(PRIORITY, DUE, ID)

# The same as ClaimedRow._make, but without a Python function call for each row.
_claimed: Callable[[Sequence[Any]], ClaimedRow] = partial(tuple.__new__, ClaimedRow)


def result_of(
    parameters: Mapping[str, Any],
    rows: Sequence[Sequence[Any]] = (),
    candidates: int = 0,
    *,
    min_due: Mapping[int, int] | None = None,
    new_priorities: Sequence[int] = (),
    seen: Seen = Seen.ALL,
) -> ClaimResult:
    """Make the result of a claim.

    :param rows: the jobs won; each row begins with :data:`COLUMNS`.
    :param candidates: the number of candidates.
    """
    if len(rows) > 1:
        rows = sorted(rows, key=_in_claim_order)
    won = tuple(map(_claimed, map(_columns, rows)))
    # By position: Python takes twice as long for names.
    result = ClaimResult(parameters["in_queue"], parameters["limit"], won, candidates - len(won), 1, min_due or {})
    result.new_priorities, result.seen = tuple(new_priorities), seen
    return result


def as_claimed(candidates: Sequence[Sequence[Any]], until: int) -> Sequence[Sequence[Any]]:
    """The rows of candidates with the values that the claim has given them."""
    rows = [[*row] for row in candidates]
    for row in rows:
        row[DUE] = row[AVAILABLE]
        row[AVAILABLE] = until
        row[VERSION] = min(row[VERSION] + 1, MOST_VERSION)
        row[ATTEMPTS] = min(row[ATTEMPTS] + 1, MOST_ATTEMPTS)
    return rows


def candidates_in(found: Sequence[Sequence[Any]]) -> tuple[list[Sequence[Any]], dict[int, int], list[int]]:
    """Split the rows of :func:`look` into candidates, the lowest due time of each of their priorities, and new priorities."""
    new_priorities = sorted(row[PRIORITY] for row in found if row[ID] is None)
    # Candidates after a new priority are excluded, because the jobs of that priority come first.
    candidates = [row for row in found if row[ID] is not None and not (new_priorities and new_priorities[0] < row[PRIORITY])]
    min_due: dict[int, int] = {}
    for row in candidates:
        priority, head = row[PRIORITY], row[HEAD]
        if head is not None:
            min_due[priority] = min(head, min_due.get(priority, head))
    return candidates, min_due, new_priorities
