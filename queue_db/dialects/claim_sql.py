"""The SQL of a claim, as text: the parts that the databases share. A dialect puts them together to the statements that it sends.

Table names come quoted from SQLAlchemy, values are always bound: ``:limit``. In each statement the table is called ``jobs``.
"""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    Executable,
    Integer,
    String,
    Table,
    Text,
    bindparam,
    column,
    text,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.types import TupleType

from queue_db.dialects.clock import now_us, now_us_after_waiting
from queue_db.model import MOST_ATTEMPTS, MOST_VERSION, ClaimedRow

if TYPE_CHECKING:
    from queue_db.dialects.seam import ClaimSeam


class Order(StrEnum):
    """How candidates are picked from the window of due jobs."""

    HEAD = "head"  #: the first ones
    SLICE = "slice"  #: neighbours from an offset on; continues at the head where the queue ends
    SHUFFLE = "shuffle"  #: any


class Lock(StrEnum):
    """Whether candidates are locked while they are read."""

    NONE = "none"
    WAIT = "wait"
    SKIP = "skip"


class Shape(NamedTuple):
    """What the statements of claims differ in, besides their values. A tuple: each claim makes one, to find its text."""

    #: Index ranges that are read, one for each known priority; 0: one range over all priorities.
    ranges: int
    order: Order
    lock: Lock
    #: Ranges of other queues in which no job may be due.
    others: int = 0
    #: The time is the parameter ``now``; otherwise the database's clock.
    settable: bool = False
    #: Only jobs of the kind ``of_kind``.
    kinded: bool = False


#: The columns that a claim returns.
COLUMNS = ClaimedRow._fields

# Those that a window of candidates has: payloads are read of the picked jobs alone.
_WINDOW = ("id", "version", "priority", "available_at")
_REST = tuple(name for name in COLUMNS if name not in _WINDOW)

# Of the columns that statements return; the others are numbers.
_TEXTS = frozenset({"kind", "payload", "headers", "unique_key", "last_error", "group_key"})

# The types of the parameters, by the beginning of their names; any other is a text.
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("limit", "read", "start", "front", "priority_", "other_priority_"), Integer()),
    **dict.fromkeys(("now", "lease", "until", "floor_", "other_floor_", "of_id", "of_version"), BigInteger()),
}


def kept(sql: str, *returns: str, **lists: Any) -> Executable:
    """A statement that is built once and kept.

    :param returns: the columns of its rows.
    :param lists: the types of parameters that are lists: an array, or that of one element, and all are written out.
    """
    statement = text(sql)
    statement = statement.bindparams(*(_parameter(name, lists) for name in statement.compile().params))
    return (
        statement.columns(*(column(name, Text() if name in _TEXTS else BigInteger()) for name in returns)) if returns else statement
    )


def _parameter(name: str, lists: Mapping[str, Any]) -> BindParameter[Any]:
    if name in lists:
        return bindparam(name, type_=lists[name], expanding=not isinstance(lists[name], ARRAY))
    return bindparam(name, type_=next((kind for start, kind in _TYPES.items() if name.startswith(start)), String()))


def columns_of(table: str, names: tuple[str, ...] = COLUMNS) -> str:
    """``table.id, table.kind, …``"""
    return ", ".join(f"{table}.{name}" for name in names)


_FAST = frozenset({(Order.HEAD, Lock.NONE), (Order.HEAD, Lock.SKIP), (Order.SLICE, Lock.NONE)})


class ClaimText:
    """The parts of the statements of one shape, on one table of one database; keeps the statements that are made of them."""

    def __init__(self, dialect: ClaimSeam, jobs: Table, shape: Shape, sql: SQLAlchemyDialect) -> None:
        self.shape = shape
        self._dialect = dialect
        self._sql = sql
        #: ``made(take, one=True)`` is ``take(self, one=True)``, made once and forgotten with these parts.
        self.made = cache(lambda make, **which: make(self, **which))
        #: Whether one short statement can claim: from a single range, without waiting. No slice that locks: it would lock the jobs
        #: before it too.
        self.has_fast_path = shape.ranges == 1 and (shape.order, shape.lock) in _FAST
        #: The table, with the name that it has in the statements.
        self.table = sql.identifier_preparer.format_table(jobs)
        self.jobs = f"{self.table} AS jobs"
        #: The same with a hint to use the primary key, where the planner might not.
        self.by_id = f"{self.jobs}{dialect.by_id_hint}"
        self.now = ":now" if shape.settable else self.written(now_us())

    def written(self, expression: ColumnElement[Any]) -> str:
        """An expression without parameters, as this database writes it, for a statement that is a text."""
        sql = str(expression.compile(dialect=self._sql, compile_kwargs={"literal_binds": True}))
        # What the driver wants of a percent sign is done again with the whole text. A colon would begin a parameter.
        return sql.replace(str(text("%").compile(dialect=self._sql)), "%").replace(":", "\\:")

    # --- which jobs are due -----------------------------------------------------------------------------------------

    def due(self, place: int | None) -> str:
        """The due jobs of one range; None: of all priorities."""
        kind = " AND jobs.kind = :of_kind" if self.shape.kinded else ""
        within = "" if place is None else f" AND jobs.priority = :priority_{place} AND jobs.available_at >= :floor_{place}"
        return f"jobs.queue = :in_queue AND jobs.available_at <= {self.now} AND jobs.delete_mark = 0{kind}{within}"

    @property
    def nothing_due(self) -> list[str]:
        """No job is due in ranges of other queues: one index entry each.

        They do not depend on a row, so a database evaluates them once where they stand: outside the arms of the claim's ranges.
        """
        # Not NOT EXISTS: that may be turned into a join, which reads the claim's own rows first.
        return [
            f"(SELECT other.id FROM {self.table} AS other WHERE other.queue = :other_queue_{place}"
            f" AND other.priority = :other_priority_{place} AND other.available_at >= :other_floor_{place}"
            f" AND other.available_at <= {self.now} AND other.delete_mark = 0 ORDER BY other.available_at LIMIT 1) IS NULL"
            for place in range(self.shape.others)
        ]

    @property
    def nothing_before(self) -> str:
        """No job has a lower priority number than the only range."""
        # Ordered, or all of it might be read.
        return (
            f"(SELECT other.priority FROM {self.table} AS other WHERE other.queue = :in_queue"
            " AND other.priority < :priority_0 ORDER BY other.priority DESC LIMIT 1) IS NULL"
        )

    @property
    def unseen(self) -> str:
        """One ``priority`` for each gap between the known ones in which there is a job: one index entry each."""
        gaps = []
        for place in range(self.shape.ranges + 1):
            above = f" AND jobs.priority > :priority_{place - 1}" if place > 0 else ""
            below = f" AND jobs.priority < :priority_{place}" if place < self.shape.ranges else ""
            # Downwards from the known priority above, if there is one: the entries just below it are the end of another range.
            # Upwards InnoDB would run into its beginning, and step over all the dead entries there to find out that the gap ends.
            order = " DESC" if below else ""
            gaps.append(
                f"SELECT gap_{place}.priority FROM (SELECT jobs.priority FROM {self.jobs}"
                f" WHERE jobs.queue = :in_queue{above}{below} ORDER BY jobs.priority{order} LIMIT 1) AS gap_{place}"
            )
        return " UNION ALL ".join(gaps)

    # --- candidates ---------------------------------------------------------------------------------------------------

    @cached_property
    def lock(self) -> str:
        """What locks the rows of a SELECT."""
        lock = self.shape.lock
        return "" if lock is Lock.NONE else self._dialect.lock_clause(self._sql, skip=lock is Lock.SKIP)

    def _arm(self, place: int | None, columns: str) -> str:
        """One index range in the order of the index (store/low_water_marks.py says why one for each priority)."""
        keys = "jobs.available_at, jobs.id" if place is not None else "jobs.priority, jobs.available_at, jobs.id"
        head = "jobs.available_at"
        if self.shape.order is not Order.HEAD:
            head = f"(SELECT jobs.available_at FROM {self.jobs} WHERE {self.due(place)} ORDER BY {keys} LIMIT 1)"
        return f"SELECT {columns}, {head} AS head FROM {self.jobs} WHERE {self.due(place)} ORDER BY {keys} LIMIT :read{self.lock}"

    def _window(self, name: str, columns: str) -> str:
        """The first due jobs of all ranges, in claim order, as a subquery."""
        if self.shape.ranges == 0:
            return f"({self._arm(None, columns)}) AS {name}_all"
        # The arms run one after the other until the limit: later priorities are not read while earlier ones suffice.
        arms = [f"({self._arm(place, columns)}) AS {name}_{place}" for place in range(self.shape.ranges)]
        if len(arms) == 1:
            return arms[0]
        return f"({' UNION ALL '.join(f'SELECT * FROM {arm}' for arm in arms)} LIMIT :read) AS {name}"

    def candidates(self, *, whole: bool) -> str:
        """``id, version, priority, available_at, head`` of the jobs to take, and with ``whole`` all that a claim returns."""
        order, locks = self.shape.order, self.shape.lock is not Lock.NONE
        # Locked jobs are claimed: their other columns are read under the lock.
        columns = columns_of("jobs", (*_WINDOW, *_REST) if whole and locks else _WINDOW)
        if order is Order.HEAD:
            drawn = f"SELECT * FROM {self._window('due', columns)}"
        elif order is Order.SHUFFLE:
            drawn = f"SELECT * FROM {self._window('due', columns)} ORDER BY {self.written(self._dialect.random())} LIMIT :limit"
        else:
            # Where the queue ends before the slice, it continues at the head.
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
        """Column → value. The order counts: MySQL reads the new value of a column that was assigned before."""
        now = self.now
        if self.shape.lock is Lock.WAIT and not self.shape.settable:
            now = self.written(now_us_after_waiting())
        return {
            "due_at": "jobs.available_at",
            "available_at": f"{now} + :lease",
            "version": f"CASE WHEN jobs.version < {MOST_VERSION} THEN jobs.version + 1 ELSE jobs.version END",
            # Counted at the claim and not at the failure: a job that kills its worker counts too.
            "attempts": f"CASE WHEN jobs.attempts < {MOST_ATTEMPTS} THEN jobs.attempts + 1 ELSE {MOST_ATTEMPTS} END",
            # A token is left of an expired lease: another worker had a handler for the job.
            "unknown_since": "CASE WHEN jobs.claim_token IS NULL THEN jobs.unknown_since ELSE NULL END",
            "claim_token": ":token",
            "worker": ":by_worker",
            # Left of an attempt whose lease expired.
            "progress": "NULL",
            "progress_note": "NULL",
            # The row gets no longer (queue_db/store/schema/jobs.py).
            "padding": "NULL",
        }

    def set(self, **other: str) -> str:
        """The assignments of an UPDATE; ``other``: values in place of these."""
        return ", ".join(f"{name} = {value}" for name, value in (self.assignments | other).items())


#: The type of an array of ids or versions.
IDS = ARRAY(BigInteger())

_PAIRS = TupleType(BigInteger(), BigInteger())

# --- statements for most databases: each is sent as ``claim.made(…)`` ------------------------------------------------------------


def matching(*, one: bool) -> str:
    """Rows whose ``(id, version)`` is given: the parameters are those of :func:`~queue_db.dialects.statements.wanted`."""
    if one:
        return "jobs.id = :of_id AND jobs.version = :of_version"
    # The ids alone drive the primary key; not every planner sees a range in the pairs.
    return "jobs.id IN :of_ids AND (jobs.id, jobs.version) IN :of_pairs"


def candidates(claim: ClaimText) -> Executable:
    """The candidates alone."""
    return kept(claim.candidates(whole=False), *_WINDOW, "head")


def unseen_priorities(claim: ClaimText) -> Executable:
    """The unseen priorities alone."""
    return kept(claim.unseen, "priority")


_LOOKED = (*COLUMNS, "head", "looked_at")


def look(claim: ClaimText) -> Executable:
    """Candidates and unseen priorities (rows without an id) in one read."""
    found = f"SELECT {columns_of('candidate', (*COLUMNS, 'head'))}, {claim.now} AS looked_at"
    rows = f"{found} FROM ({claim.candidates(whole=True)}) AS candidate"
    if not claim.shape.ranges:
        return kept(rows, *_LOOKED)
    blank = ", ".join("unseen.priority" if name == "priority" else "NULL" for name in COLUMNS)
    return kept(f"{rows} UNION ALL SELECT {blank}, NULL, NULL FROM ({claim.unseen}) AS unseen", *_LOOKED)


def fast_path_look(claim: ClaimText) -> Executable:
    """Candidates of a single range, in the same columns; a slice knows of no head."""
    slices = claim.shape.order is Order.SLICE
    where = " AND ".join([claim.due(0), *claim.nothing_due, claim.nothing_before])
    return kept(
        f"SELECT {columns_of('jobs')}, {'NULL' if slices else 'jobs.available_at'} AS head, {claim.now} AS looked_at"
        f" FROM {claim.jobs} WHERE {where} ORDER BY jobs.available_at, jobs.id"
        f" LIMIT :limit{' OFFSET :start' if slices else ''}{claim.lock}",
        *_LOOKED,
    )


def take(claim: ClaimText, *, one: bool) -> Executable:
    """Take candidates that still have their version. The lease counts from their read; after a wait for locks, from now."""
    until = {} if claim.shape.lock is Lock.WAIT else {"available_at": ":until"}
    change = f"UPDATE {claim.by_id} SET {claim.set(**until)} WHERE {matching(one=one)}"
    return kept(change, of_ids=BigInteger(), of_pairs=_PAIRS)


def won(claim: ClaimText) -> Executable:
    """The candidates that a claim has won."""
    where = "jobs.id IN :of_ids AND jobs.claim_token = :token"
    return kept(f"SELECT {columns_of('jobs')} FROM {claim.by_id} WHERE {where}", *COLUMNS, of_ids=BigInteger())


def take_existing(claim: ClaimText) -> Executable:
    """SQLite: read candidates and take them, as rows that exist already (queue_db/dialects/sqlite.py says why)."""
    where = "true"  # without WHERE SQLite would read ON CONFLICT as the condition of a join
    if claim.shape.ranges:
        # No candidates beyond a priority that was not read. Priorities are 32-bit numbers.
        where = f"candidate.priority < coalesce((SELECT min(unseen.priority) FROM ({claim.unseen}) AS unseen), {2**31})"
    return kept(
        f"INSERT INTO {claim.jobs} (id, queue, payload) SELECT candidate.id, '', ''"
        f" FROM ({claim.candidates(whole=False)}) AS candidate WHERE {where}"
        f" ON CONFLICT (id) DO UPDATE SET {claim.set()} RETURNING {', '.join(COLUMNS)}",
        *COLUMNS,
    )
