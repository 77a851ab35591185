"""The claim: which jobs are candidates, and the change that takes them. Strategies differ in their :class:`CandidateWindow`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    null,
    select,
    union_all,
)

from queue_db.dialects.claim_plan import ClaimPlan
from queue_db.dialects.clock import moment
from queue_db.model import ClaimedRow, ClaimRequest, ClaimResult, Range
from queue_db.store.base import Store, Transaction, next_attempt, next_version


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


@dataclass(slots=True)
class CandidateWindow:
    """Which due jobs a claim tries to take.

    ``read`` rows are read from the head of the queue; ``start`` is the offset of a SLICE, in jobs; ``width`` the size of the window
    in batches of the claim's limit.
    """

    order: Order = Order.HEAD
    lock: Lock = Lock.NONE
    read: int = 1
    start: int = 0
    width: int = 1


#: Most ranges of other queues in which a claim checks for due jobs, in the order of ``ClaimRequest.unless_due``. The worker's own
#: polls find what lies beyond.
MOST_ASKED = 16

# Numbers of ranges with a statement of their own; others are filled up to the next one. Otherwise each new priority in a queue
# would need a new statement, compiled and planned.
_OWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_OTHERS = (1, 2, 4, 8, MOST_ASKED)

# No job is due later.
_NEVER = 2**63 - 1

_COLUMNS = ClaimedRow._fields


def claim(tx: Transaction, request: ClaimRequest, window: CandidateWindow) -> ClaimResult:
    """Take up to ``request.limit`` due jobs, lowest priority number first, then longest due.

    One statement on PostgreSQL and SQLite (a second, small one where a short claim must look for new priorities on SQLite), two
    elsewhere and a third where some candidates were lost, whatever the limit. With ``request.completes`` it takes nothing if the
    completion cannot be part of the statement; a second call with the same request claims only.
    """
    plan, parameters = _asked(tx.store, request, window.order, window.lock)
    parameters |= {
        "by_worker": request.worker,
        "token": request.token,
        "lease": request.lease,
        "limit": request.limit,
        "read": window.read,
    }
    if window.order is Order.SLICE:
        parameters["start"] = window.start
        parameters["front"] = min(window.start, request.limit)
    fast_path = request.fast_path and plan.fast_path is not None
    completes = request.completes if request.completes is not None and request.completes.done is None else None
    if completes is not None and not fast_path:
        return ClaimResult(request.queue, request.limit, conclusive=False, looked=False, locked=plan.locks)
    delete_on_claim = request.delete_on_claim and fast_path
    if request.delete_on_claim and not fast_path:
        tx.begin()  # the caller deletes them by statements of its own
    result = tx.dialect.take(
        tx,
        plan,
        parameters,
        fast_path=fast_path,
        delete_on_claim=delete_on_claim,
        completes=completes,
    )
    result.window, result.deleted, result.locked = window.width, delete_on_claim, plan.locks
    return result


def anything_due(tx: Transaction, request: ClaimRequest) -> bool:
    """Whether a job is due that this claim may take: distinguishes a lost wait from an empty queue."""
    plan, parameters = _asked(tx.store, request, Order.HEAD, Lock.NONE)
    return tx.connection.execute(plan.candidates, parameters | {"read": 1, "limit": 1}).first() is not None


def _asked(store: Store, request: ClaimRequest, order: Order, lock: Lock) -> tuple[ClaimPlan, dict[str, Any]]:
    """The plan for ``request``, and the parameters of its due jobs."""
    parameters: dict[str, Any] = {"in_queue": request.queue}
    if request.kind is not None:
        parameters["of_kind"] = request.kind
    if request.now is not None:
        parameters["now"] = request.now
    own = _filled(request.ranges, _OWN, floor=_NEVER)
    for place, known in enumerate(own):
        parameters[f"priority_{place}"] = known.priority
        parameters[f"floor_{place}"] = known.floor
    asked: list[tuple[str, Range]] = []
    if request.unless_due:
        asked = [(queue, known) for queue, ranges in request.unless_due for known in ranges][:MOST_ASKED]
        asked += asked[-1:] * (_size(len(asked), _OTHERS) - len(asked))
    for place, (queue, known) in enumerate(asked):
        parameters[f"other_queue_{place}"] = queue
        parameters[f"other_priority_{place}"] = known.priority
        parameters[f"other_floor_{place}"] = known.floor
    plan = _plan(store, len(own), order, lock, len(asked), settable=request.now is not None, kinded=request.kind is not None)
    return plan, parameters


def _size(number: int, sizes: Sequence[int]) -> int:
    """The smallest of ``sizes`` that is large enough; 0 stays 0."""
    if number in sizes:
        return number
    return next((size for size in sizes if size >= number), number) if number else 0


def _filled(ranges: Sequence[Range], sizes: Sequence[int], floor: int) -> list[Range]:
    """``ranges`` and, up to one of ``sizes``, more of the last priority that begin at ``floor``."""
    more = _size(len(ranges), sizes) - len(ranges)
    return [*ranges, *([Range(ranges[-1].priority, floor)] * more if more else [])]


def _plan(store: Store, ranges: int, order: Order, lock: Lock, others: int = 0, *, settable: bool, kinded: bool) -> ClaimPlan:
    """The plan of one shape of claim, built once. ``others``: number of ranges of other queues in which no job may be due."""
    shape = (ranges, order, lock, others, settable, kinded)
    plan = store.plans.get(shape)
    if plan is None:
        jobs = store.tables.jobs
        simple = ranges == 1 and lock is not Lock.WAIT and order is not Order.SHUFFLE
        nothing_due = _nothing_due(store, others, settable)
        plan = store.plans[shape] = ClaimPlan(
            jobs=jobs,
            candidates=_candidates(store, ranges, order, lock, settable, nothing_due, kinded=kinded),
            whole=_candidates(store, ranges, order, lock, settable, nothing_due, kinded=kinded, whole=True),
            fast_path=_fast_path(store, settable, nothing_due, kinded=kinded) if simple else None,
            before=_before(store) if simple else None,
            slices=order is Order.SLICE,
            clock=moment(settable),
            unseen=_unseen(store, ranges) if ranges else None,
            locks=lock is not Lock.NONE,
            waits=lock is Lock.WAIT,
            values=_assignments(store, settable, waits=lock is Lock.WAIT),
            returning=[jobs.c[name] for name in _COLUMNS],
        )
    return plan


def _assignments(store: Store, settable: bool, *, waits: bool) -> list[tuple[ColumnElement[Any], Any]]:
    """The assignments of a claim. The order counts: MySQL reads the new value of a column that was assigned before."""
    jobs = store.tables.jobs
    return [
        (jobs.c.due_at, jobs.c.available_at),
        (jobs.c.available_at, moment(settable, after_waiting=waits) + bindparam("lease", type_=BigInteger)),
        (jobs.c.version, next_version(jobs)),
        # Counted at the claim and not at the failure: a job that kills its worker counts too.
        (jobs.c.attempts, next_attempt(jobs)),
        # A token is left of an expired lease: another worker had a handler for the job.
        (jobs.c.unknown_since, case((jobs.c.claim_token.is_(None), jobs.c.unknown_since), else_=null())),
        (jobs.c.claim_token, bindparam("token")),
        (jobs.c.worker, bindparam("by_worker")),
        # Left of an attempt whose lease expired.
        (jobs.c.progress, null()),
        (jobs.c.progress_note, null()),
    ]


def _candidates(
    store: Store,
    ranges: int,
    order: Order,
    lock: Lock,
    settable: bool,
    nothing_due: Sequence[ColumnElement[bool]],
    *,
    kinded: bool,
    whole: bool = False,
) -> Select[Any]:
    """``id, version, priority, available_at, head`` of the jobs to take, and with ``whole`` all that a claim returns.

    A window has ids and versions only: payloads are read of the picked jobs alone.
    """
    jobs = store.tables.jobs
    wanted = [jobs.c.id, jobs.c.version, jobs.c.priority, jobs.c.available_at]
    more = [jobs.c[name] for name in _COLUMNS if name not in {column.name for column in wanted}] if whole else []
    read = bindparam("read", type_=Integer)

    def arm(place: int | None) -> Select[Any]:
        """One index range in the order of the index (store/low_water_marks.py says why one for each priority)."""
        due = _due(store, place, settable, kinded=kinded)
        keys = [jobs.c.available_at, jobs.c.id]
        if place is None:
            keys.insert(0, jobs.c.priority)
        # Locked jobs are claimed: read their other columns under the lock.
        columns = wanted if lock is Lock.NONE else [*wanted, *more]
        head: ColumnElement[int] = jobs.c.available_at
        if order is not Order.HEAD:
            head = select(jobs.c.available_at).where(*due).order_by(*keys).limit(1).correlate(None).scalar_subquery()
        rows = select(*columns, head.label("head")).where(*due).order_by(*keys).limit(read)
        return rows if lock is Lock.NONE else store.dialect.lock_rows(rows, skip=lock is Lock.SKIP)

    def window(name: str) -> FromClause:
        """The first due jobs of all ranges, in claim order."""
        # The arms run one after the other until the limit: later priorities are not read while earlier ones suffice.
        arms = [arm(place).subquery(f"{name}_{place}") for place in range(ranges)] or [arm(None).subquery(f"{name}_all")]
        return arms[0] if len(arms) == 1 else union_all(*(select(one) for one in arms)).limit(read).subquery(name)

    if order is Order.HEAD:
        return _joined(select(window("range")), store, more if lock is Lock.NONE else [], nothing_due)
    if order is Order.SHUFFLE:
        drawn = select(window("range")).order_by(store.dialect.random()).limit(bindparam("limit", type_=Integer))
        return _joined(drawn, store, more, nothing_due)
    limit, start, front = (bindparam(name, type_=Integer) for name in ("limit", "start", "front"))
    # Where the queue ends before the slice, it continues at the head.
    slice_ = select(window("range")).offset(start).limit(limit).subquery("slice")
    head = select(window("front")).limit(front).subquery("head")
    return _joined(union_all(select(slice_), select(head)).limit(limit), store, more, nothing_due)


def _fast_path(store: Store, settable: bool, nothing_due: Sequence[ColumnElement[bool]], *, kinded: bool) -> Select[Any]:
    """``id, version, available_at`` of the due jobs of a single range, in claim order."""
    jobs = store.tables.jobs
    return (
        select(jobs.c.id, jobs.c.version, jobs.c.available_at)
        .where(*_due(store, 0, settable, kinded=kinded), *nothing_due)
        .order_by(jobs.c.available_at, jobs.c.id)
    )


def _before(store: Store) -> Select[Any]:
    """A job of a lower priority number than the only range."""
    jobs = store.tables.jobs
    # An alias, or SQLAlchemy would correlate it with the outer table. Ordered, or all of it might be read.
    other = jobs.alias("other")
    below = other.c.priority < bindparam("priority_0", type_=Integer)
    return select(other.c.priority).where(other.c.queue == bindparam("in_queue"), below).order_by(other.c.priority.desc()).limit(1)


def _due(store: Store, place: int | None, settable: bool, *, kinded: bool) -> list[ColumnElement[bool]]:
    """The due jobs of one range, or of all priorities."""
    jobs = store.tables.jobs
    due = [jobs.c.queue == bindparam("in_queue"), jobs.c.available_at <= moment(settable), jobs.c.delete_mark == 0]
    if kinded:
        due.append(jobs.c.kind == bindparam("of_kind"))
    if place is not None:
        due.append(jobs.c.priority == bindparam(f"priority_{place}", type_=Integer))
        due.append(jobs.c.available_at >= bindparam(f"floor_{place}", type_=BigInteger))
    return due


def _nothing_due(store: Store, others: int, settable: bool) -> list[ColumnElement[bool]]:
    """No job is due in any of ``others`` ranges of other queues: one index entry each.

    They do not depend on a row, so a database evaluates them once where they stand: outside the arms of the claim's ranges.
    """
    # An alias, or SQLAlchemy would correlate it with the outer table.
    other = store.tables.jobs.alias("other")
    conditions: list[ColumnElement[bool]] = []
    for place in range(others):
        due = select(other.c.id).where(
            other.c.queue == bindparam(f"other_queue_{place}"),
            other.c.priority == bindparam(f"other_priority_{place}", type_=Integer),
            other.c.available_at >= bindparam(f"other_floor_{place}", type_=BigInteger),
            other.c.available_at <= moment(settable),
            other.c.delete_mark == 0,
        )
        # Not NOT EXISTS: that may be turned into a join, which reads the claim's own rows first.
        conditions.append(due.order_by(other.c.available_at).limit(1).scalar_subquery().is_(None))
    return conditions


def _joined(
    drawn: Select[Any] | CompoundSelect[Any], store: Store, others: list[Column[Any]], nothing_due: Sequence[ColumnElement[bool]]
) -> Select[Any]:
    """``drawn`` with the other columns of its jobs, unless a job is due elsewhere."""
    jobs, of = store.tables.jobs, drawn.subquery("drawn")
    if not others:
        return (drawn if isinstance(drawn, Select) else select(of)).where(*nothing_due)
    rows = select(of, *others).join_from(of, jobs, jobs.c.id == of.c.id)
    return store.dialect.by_id(rows.where(*nothing_due), jobs)


def _unseen(store: Store, ranges: int) -> Select[Any]:
    """One ``priority`` for each gap between the known ones in which there is a job: one index entry each."""
    jobs = store.tables.jobs
    known = [bindparam(f"priority_{place}", type_=Integer) for place in range(ranges)]
    gaps = []
    for place in range(ranges + 1):
        inside = [jobs.c.queue == bindparam("in_queue")]
        if place > 0:
            inside.append(jobs.c.priority > known[place - 1])
        if place < ranges:
            inside.append(jobs.c.priority < known[place])
        # Downwards from the known priority above, if there is one: the entries just below it are the end of another range. Upwards
        # InnoDB would run into its beginning, and step over all the dead entries there to find out that the gap has ended.
        order = jobs.c.priority.desc() if place < ranges else jobs.c.priority
        gap = select(jobs.c.priority).where(and_(*inside)).order_by(order).limit(1)
        gaps.append(select(gap.subquery(f"gap_{place}")))
    every = union_all(*gaps).subquery("gaps")
    return select(every.c.priority)


__all__ = ["CandidateWindow", "Lock", "Order", "anything_due", "claim"]
