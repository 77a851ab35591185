"""Claim jobs: find the candidates and lease them. Strategies differ in their :class:`CandidateWindow`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from queue_db.dialects.claim_sql import Lock, Order, Shape, candidates
from queue_db.model import ClaimRequest, ClaimResult, Range
from queue_db.store.base import Transaction


@dataclass(slots=True)
class CandidateWindow:
    """Which due jobs a claim tries to take.

    ``read`` is the number of rows to read, ``start`` the offset of a SLICE in jobs, and ``width`` the size of the window as a
    multiple of the claim's limit.
    """

    order: Order = Order.HEAD
    lock: Lock = Lock.NONE
    read: int = 1
    start: int = 0
    width: int = 1


#: The most ranges of other queues in which a claim checks for due jobs, in the order of ``ClaimRequest.if_idle``. The worker's own
#: polls find due jobs in further ranges.
MOST_ASKED = 16

# The numbers of ranges for which there are statements. A claim with another number adds ranges up to the next of these numbers.
# Otherwise each new priority in a queue would need a new statement, to be compiled and planned.
_OWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_OTHERS = (1, 2, 4, 8, MOST_ASKED)

# The highest value of ``available_at``: no job is due after it.
_NEVER = 2**63 - 1


def claim(tx: Transaction, request: ClaimRequest, window: CandidateWindow) -> ClaimResult:
    """Take up to ``request.limit`` due jobs, lowest priority number first, then longest due.

    Whatever the limit, a claim takes one statement on PostgreSQL and SQLite. On SQLite a claim that finds too few jobs may need a
    second, small statement to look for new priorities. Other databases take two statements, and a third if candidates were lost.

    With ``request.completes`` it takes nothing if the completion cannot be part of the statement. A second call with the same
    request only claims.
    """
    shape, parameters = _asked(request, window.order, window.lock)
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
    locked = shape.lock is not Lock.NONE
    claim = tx.claim_text(shape)
    fast_path = request.fast_path and claim.has_fast_path
    completes = request.completes if request.completes is not None and request.completes.done is None else None
    if completes is not None and not fast_path:
        return ClaimResult(request.queue, request.limit, complete=False, looked=False, locked=locked)
    delete_on_claim = request.delete_on_claim and fast_path
    if request.delete_on_claim and not fast_path:
        tx.begin()  # the caller deletes the claimed jobs by further statements in this transaction
    result = tx.dialect.execute_claim(
        tx,
        claim,
        parameters,
        fast_path=fast_path,
        delete_on_claim=delete_on_claim,
        completes=completes,
    )
    result.window, result.deleted, result.locked = window.width, delete_on_claim, locked
    return result


def anything_due(tx: Transaction, request: ClaimRequest) -> bool:
    """Whether a job is due that this claim may take. It tells a claim that lost its candidates from an empty queue."""
    shape, parameters = _asked(request, Order.HEAD, Lock.NONE)
    return bool(tx.fetch(tx.claim_text(shape).made(candidates), parameters | {"read": 1}))


def _asked(request: ClaimRequest, order: Order, lock: Lock) -> tuple[Shape, dict[str, Any]]:
    """The shape of the SQL for ``request``, and the parameters that select its due jobs."""
    parameters: dict[str, Any] = {"in_queue": request.queue}
    if request.kind is not None:
        parameters["of_kind"] = request.kind
    if request.now is not None:
        parameters["now"] = request.now
    own = request.ranges if len(request.ranges) in _OWN else _filled(request.ranges, _OWN, floor=_NEVER)
    for place, known in enumerate(own):
        parameters[f"priority_{place}"] = known.priority
        parameters[f"floor_{place}"] = known.floor
    asked: list[tuple[str, Range]] = []
    if request.if_idle:
        asked = [(queue, known) for queue, ranges in request.if_idle for known in ranges][:MOST_ASKED]
        asked += asked[-1:] * (_size(len(asked), _OTHERS) - len(asked))
    for place, (queue, known) in enumerate(asked):
        parameters[f"other_queue_{place}"] = queue
        parameters[f"other_priority_{place}"] = known.priority
        parameters[f"other_floor_{place}"] = known.floor
    shape = Shape(len(own), order, lock, len(asked), settable=request.now is not None, kinded=request.kind is not None)
    return shape, parameters


def _size(number: int, sizes: Sequence[int]) -> int:
    """The smallest of ``sizes`` that is large enough; 0 stays 0."""
    if number in sizes:
        return number
    return next((size for size in sizes if size >= number), number) if number else 0


def _filled(ranges: Sequence[Range], sizes: Sequence[int], floor: int) -> list[Range]:
    """``ranges``, filled up to one of ``sizes`` with ranges of the last priority that begin at ``floor``."""
    more = _size(len(ranges), sizes) - len(ranges)
    return [*ranges, *([Range(ranges[-1].priority, floor)] * more if more else [])]


__all__ = ["CandidateWindow", "Lock", "Order", "anything_due", "claim"]
