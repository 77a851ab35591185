"""The rows of a claim, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from queue_db.model import MOST_ATTEMPTS, MOST_VERSION, ClaimedRow, ClaimResult

#: Positions in the rows of a claim, which begin with the columns of a claimed job.
ID, PRIORITY, AVAILABLE, DUE, VERSION, ATTEMPTS = map(
    ClaimedRow._fields.index, ("id", "priority", "available_at", "due_at", "version", "attempts")
)
HEAD = len(ClaimedRow._fields)
LOOKED_AT = HEAD + 1

#: The parameters of the change; the others are those of the candidates.
ASSIGNED = ("token", "lease", "by_worker", "now")


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


def assigned(parameters: Mapping[str, Any], until: int, *, waits: bool) -> dict[str, Any]:
    """The parameters of the change; ``until``: the end of the lease."""
    values = {name: parameters[name] for name in ASSIGNED if name in parameters}
    if not waits:
        values["until"] = until
        del values["lease"]
        values.pop("now", None)
    return values
