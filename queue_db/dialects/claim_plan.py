"""The plan of a claim: its statements in parts, and the portable statements made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, ColumnElement, Integer, Select, Table, Update, bindparam, null, select, update

from queue_db.dialects.statements import matching
from queue_db.model import MOST_ATTEMPTS, MOST_VERSION, ClaimedRow, ClaimResult

if TYPE_CHECKING:
    from queue_db.dialects.seam import ClaimSeam

#: Positions in the rows of a claim, which begin with the columns of a claimed job.
ID, PRIORITY, AVAILABLE, DUE, VERSION, ATTEMPTS = map(
    ClaimedRow._fields.index, ("id", "priority", "available_at", "due_at", "version", "attempts")
)
HEAD = len(ClaimedRow._fields)
LOOKED_AT = HEAD + 1

#: The parameters of ``ClaimPlan.values``; the others are those of the candidates.
ASSIGNED = ("token", "lease", "by_worker", "now")


@dataclass(frozen=True, eq=False)
class ClaimPlan:
    """The parts of a claim, which a dialect combines into as few statements as it can. Built once for each shape and kept.

    - ``candidates`` selects ``id, version, priority, available_at, head`` of the jobs to claim, in claim order, and locks them if
      the strategy wants that; ``whole`` does the same with all columns of ``returning``.
    - ``fast_path`` selects ``id, version, available_at`` of all due jobs, where there is a single range and no waiting (else None);
      ``before`` a job of lower priority number than that range.
    - ``slices``: the candidates begin at the parameter ``start`` and go on at the head where the queue ends.
    - ``clock`` is the time of the statement.
    - ``unseen`` selects one ``priority`` for each gap between the known ones in which there is a job (None: no gaps).
    - ``locks``: the candidates are locked; ``waits``: that waits for other transactions' locks.
    - ``values`` are the assignments, ``returning`` the columns of the jobs won.

    The parameters are given when it runs; ``limit`` and ``token``, the claim token, are among them.
    """

    jobs: Table
    candidates: Select[Any]
    whole: Select[Any]
    fast_path: Select[Any] | None
    before: Select[Any] | None
    slices: bool
    clock: ColumnElement[int]
    unseen: Select[Any] | None
    locks: bool
    waits: bool
    values: Sequence[tuple[ColumnElement[Any], Any]]
    returning: Sequence[ColumnElement[Any]]


_COLUMNS = len(ClaimedRow._fields)
_in_claim_order = itemgetter(PRIORITY, DUE, ID)

# ClaimedRow._make without a call of a Python function for each row.
_claimed: Callable[[Sequence[Any]], ClaimedRow] = partial(tuple.__new__, ClaimedRow)


def result_of(
    parameters: Mapping[str, Any],
    rows: Sequence[Sequence[Any]] = (),
    candidates: int = 0,
    *,
    heads: Mapping[int, int] | None = None,
    unseen: Sequence[int] = (),
    conclusive: bool = True,
    looked: bool = True,
) -> ClaimResult:
    """The result of a claim with these ``parameters``, which won ``rows`` (they begin with ``returning``) of its ``candidates``."""
    if len(rows) > 1:
        rows = sorted(rows, key=_in_claim_order)
    won = tuple([_claimed(row[:_COLUMNS]) for row in rows])
    return ClaimResult(
        queue=parameters["in_queue"],
        limit=parameters["limit"],
        rows=won,
        missed=candidates - len(won),
        heads={} if heads is None else heads,
        unseen=tuple(unseen),
        conclusive=conclusive,
        looked=looked,
    )


@lru_cache(maxsize=256)
def change_of(dialect: ClaimSeam, plan: ClaimPlan, *, one: bool) -> Update:
    """The UPDATE that claims candidates."""
    jobs = plan.jobs
    values = plan.values
    if not plan.waits:
        until = bindparam("until", type_=BigInteger)
        values = [(column, until if column is jobs.c.available_at else value) for column, value in values]
    return dialect.by_id(update(jobs).where(matching(jobs, one=one)).ordered_values(*values), jobs)


@lru_cache(maxsize=256)
def won_by(dialect: ClaimSeam, plan: ClaimPlan) -> Select[Any]:
    """The candidates that a claim has won."""
    jobs = plan.jobs
    among = jobs.c.id.in_(bindparam("of_ids", expanding=True))
    return dialect.by_id(select(*plan.returning).where(among, jobs.c.claim_token == bindparam("token")), jobs)


@lru_cache(maxsize=256)
def look(plan: ClaimPlan) -> Any:
    """Candidates and unseen priorities (rows without an id) in one read."""
    read = plan.whole.subquery("candidate")
    names = [str(column.key) for column in plan.returning]
    columns = select(*(read.c[name] for name in names), read.c.head, plan.clock.label("looked_at"))
    if plan.unseen is None:
        return columns
    gap = plan.unseen.subquery("unseen")
    blank = [gap.c.priority if name == "priority" else null() for name in names]
    return columns.union_all(select(*blank, null(), null()))


@lru_cache(maxsize=256)
def fast_path_look(dialect: ClaimSeam, plan: ClaimPlan) -> Any:
    """Candidates of a single range, in the same columns; a slice knows of no head."""
    assert plan.fast_path is not None  # noqa: S101 - callers check
    assert plan.before is not None  # noqa: S101
    head = null() if plan.slices else plan.jobs.c.available_at
    rows = (
        plan.fast_path.with_only_columns(*plan.returning, head.label("head"), plan.clock.label("looked_at"))
        .where(plan.before.scalar_subquery().is_(None))
        .limit(bindparam("limit", type_=Integer))
    )
    if plan.slices:
        rows = rows.offset(bindparam("start", type_=Integer))
    return dialect.lock_rows(rows, skip=True) if plan.locks else rows


def as_claimed(row: Sequence[Any], until: int) -> Sequence[Any]:
    """The row of a candidate after its claim."""
    stored = list(row)
    stored[DUE] = stored[AVAILABLE]
    stored[AVAILABLE] = until
    stored[VERSION] = min(stored[VERSION] + 1, MOST_VERSION)
    stored[ATTEMPTS] = min(stored[ATTEMPTS] + 1, MOST_ATTEMPTS)
    return stored


def candidates_in(found: Sequence[Sequence[Any]]) -> tuple[list[Sequence[Any]], dict[int, int], list[int]]:
    """The rows of :func:`look` in parts: candidates, the lowest due time of each priority among them, unseen priorities."""
    unseen = sorted(row[PRIORITY] for row in found if row[ID] is None)
    # No candidates beyond a priority that was not read.
    candidates = [row for row in found if row[ID] is not None and not (unseen and unseen[0] < row[PRIORITY])]
    heads: dict[int, int] = {}
    for row in candidates:
        priority, head = row[PRIORITY], row[HEAD]
        if head is not None:
            heads[priority] = min(head, heads.get(priority, head))
    return candidates, heads, unseen


def assigned(plan: ClaimPlan, parameters: Mapping[str, Any], until: int) -> dict[str, Any]:
    """The parameters of the assignments of :func:`change_of`; ``until``: the end of the lease."""
    values = {name: parameters[name] for name in ASSIGNED if name in parameters}
    if not plan.waits:
        values["until"] = until
        del values["lease"]
        values.pop("now", None)
    return values
