"""Claim jobs: find the candidates and lease them. Strategies differ in their :class:`CandidateWindow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from queue_db.dialects.claim_sql import ClaimText, Lock, Order, candidates
from queue_db.model import ClaimRequest, ClaimResult, Range, Seen
from queue_db.store.base import Transaction


class CandidateWindow(NamedTuple):
    """Which due jobs a claim tries to take; by default the first ones."""

    order: Order = Order.HEAD
    lock: Lock = Lock.NONE
    #: The number of rows to read; None: the claim's limit.
    read: int | None = None
    #: The offset of a SLICE, in jobs.
    start: int = 0
    #: The size of the window as a multiple of the claim's limit.
    width: int = 1


#: ``HEAD``: the first due jobs. ``HEAD_UNLOCKED``: the first due jobs that no other transaction has locked.
HEAD, HEAD_UNLOCKED = CandidateWindow(), CandidateWindow(lock=Lock.SKIP)


#: The most ranges of other queues in which a claim checks for due jobs. Ranges are taken in the order of ``ClaimRequest.if_idle``.
#: Due jobs in further ranges are found by the worker's polls of these queues.
MOST_ASKED = 16

# The numbers of ranges, of the claimed queue and of other queues, for which there are statements. A claim with another number adds
# ranges up to the next of these numbers. Otherwise each new priority in a queue would need a new statement, which would have to be
# compiled and planned.
_OWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_OTHERS = (1, 2, 4, 8, MOST_ASKED)

# The highest value of ``available_at``. A range that begins here has no due job.
_NEVER = 2**63 - 1


def claim(tx: Transaction, request: ClaimRequest, window: CandidateWindow) -> ClaimResult:
    """Take up to ``request.limit`` due jobs, lowest priority number first, then longest due.

    Whatever the limit, a claim takes one statement on PostgreSQL and SQLite. On SQLite a claim that finds too few jobs may need a
    second, small statement to look for new priorities. Other databases take two statements, and a third if candidates were lost.

    With ``request.completes``, nothing is completed or claimed if one statement cannot do both. If an earlier call with the same
    request has completed the jobs, this call only claims.
    """
    order, lock, read, start, width = window
    limit = request.limit
    claim, parameters = _asked(tx, request, order, lock)
    parameters["by_worker"] = request.worker
    parameters["token"] = request.token
    parameters["lease"] = request.lease
    parameters["limit"] = limit
    parameters["read"] = limit if read is None else read
    if order is Order.SLICE:
        parameters["start"] = start
        parameters["front"] = min(start, limit)
    fast_path = request.fast_path and claim.has_fast_path
    completes, delete_on_claim = request.completes, request.delete_on_claim
    if completes is not None and completes.done is not None:
        completes = None
    if not fast_path:
        if completes is not None:
            return ClaimResult(request.queue, limit, seen=Seen.NOTHING)
        if delete_on_claim:
            tx.begin()  # the caller deletes the claimed jobs by further statements in this transaction
            delete_on_claim = False
    result = tx.dialect.execute_claim(
        tx, claim, parameters, fast_path=fast_path, delete_on_claim=delete_on_claim, completes=completes
    )
    result.deleted, result.window = delete_on_claim, width if lock is Lock.NONE else 0
    return result


def anything_due(tx: Transaction, request: ClaimRequest) -> bool:
    """Whether a job is due that this claim may take. If so, a claim that won nothing lost its candidates to other claims."""
    claim, parameters = _asked(tx, request, Order.HEAD, Lock.NONE)
    return bool(tx.fetch(claim.made(candidates), parameters | {"read": 1}))


def _asked(tx: Transaction, request: ClaimRequest, order: Order, lock: Lock) -> tuple[ClaimText, dict[str, Any]]:
    """The SQL for ``request``, and the parameters that select its due jobs."""
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
    # The arguments are the fields of a Shape.
    sql, store = tx.connection.dialect, tx.store
    return store.claim_text(sql, len(own), order, lock, len(asked), request.now is not None, request.kind is not None), parameters


def _size(number: int, sizes: Sequence[int]) -> int:
    """The smallest of ``sizes`` that is at least ``number``; 0 if ``number`` is 0."""
    if number in sizes:
        return number
    return next((size for size in sizes if size >= number), number) if number else 0


def _filled(ranges: Sequence[Range], sizes: Sequence[int], floor: int) -> list[Range]:
    """``ranges``, filled up to one of ``sizes`` with ranges of the last priority that begin at ``floor``."""
    more = _size(len(ranges), sizes) - len(ranges)
    return [*ranges, *([Range(ranges[-1].priority, floor)] * more if more else [])]


__all__ = ["HEAD", "HEAD_UNLOCKED", "CandidateWindow", "Lock", "Order", "anything_due", "claim"]
