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

# Members of enumerations, which Python takes long to look up in their class.
_UNLOCKED, _SLICE = Lock.NONE, Order.SLICE

# The highest value of ``available_at``. A range that begins here has no due job.
_NEVER = 2**63 - 1


def claim(tx: Transaction, request: ClaimRequest, window: CandidateWindow) -> ClaimResult:
    """Take up to ``request.limit`` due jobs, lowest priority number first, then longest due.

    Whatever the limit, a claim takes one statement on PostgreSQL and SQLite. On SQLite a claim that finds too few jobs may need a
    second, small statement to look for new priorities. Other databases take two statements, and a third if candidates were lost.

    With ``request.completes``, nothing is completed or claimed if one statement cannot do both. If an earlier call with the same
    request has completed the jobs, this call only claims.
    """
    claim, parameters = asked(tx, request, window)
    fast_path = request.fast_path and claim.has_fast_path
    completes, delete_on_claim = request.completes, request.delete_on_claim
    if completes is not None and completes.done is not None:
        completes = None
    if not fast_path:
        if completes is not None:
            return ClaimResult(request.queue, request.limit, seen=Seen.NOTHING)
        if delete_on_claim:
            tx.begin()  # the caller deletes the claimed jobs by further statements in this transaction
            delete_on_claim = False
    result = tx.dialect.execute_claim(
        tx, claim, parameters, fast_path=fast_path, delete_on_claim=delete_on_claim, completes=completes
    )
    result.deleted, result.window = delete_on_claim, window.width if window.lock is _UNLOCKED else 0
    return result


def anything_due(tx: Transaction, request: ClaimRequest) -> bool:
    """Whether a job is due that this claim may take. If so, a claim that won nothing lost its candidates to other claims."""
    claim, parameters = asked(tx, request, CandidateWindow(read=1))
    return bool(tx.fetch(claim.made(candidates), parameters))


def asked(tx: Transaction, request: ClaimRequest, window: CandidateWindow) -> tuple[ClaimText, dict[str, Any]]:
    """The SQL for ``request``, and its parameters."""
    order, lock, read, start, _ = window
    limit, now, kind = request.limit, request.now, request.kind
    parameters: dict[str, Any] = {
        "in_queue": request.queue,
        "by_worker": request.worker,
        "token": request.token,
        "lease": request.lease,
        "limit": limit,
        "read": read or limit,
    }
    if order is _SLICE:
        parameters["start"] = start
        parameters["front"] = min(start, limit)
    if kind is not None:
        parameters["of_kind"] = kind
    if now is not None:
        parameters["now"] = now
    own = request.ranges if len(request.ranges) in _OWN else _filled(request.ranges)
    for place, (priority, floor) in enumerate(own):
        parameters[f"priority_{place}"] = priority
        parameters[f"floor_{place}"] = floor
    asked: list[tuple[str, Range]] = []
    if request.if_idle:
        asked = [(queue, known) for queue, ranges in request.if_idle for known in ranges][:MOST_ASKED]
        asked += asked[-1:] * (_size(len(asked), _OTHERS) - len(asked))
    for place, (queue, (priority, floor)) in enumerate(asked):
        parameters[f"other_queue_{place}"] = queue
        parameters[f"other_priority_{place}"] = priority
        parameters[f"other_floor_{place}"] = floor
    # The arguments are the fields of a Shape.
    text = tx.store.claim_text(tx.connection.dialect, len(own), order, lock, len(asked), now is not None, kind is not None)
    return text, parameters


def _size(number: int, sizes: Sequence[int]) -> int:
    """The smallest of ``sizes`` that is at least ``number``; 0 if ``number`` is 0."""
    if number in sizes:
        return number
    return next((size for size in sizes if size >= number), number) if number else 0


def _filled(ranges: Sequence[Range]) -> list[Range]:
    """``ranges``, filled up to one of the numbers ``_OWN`` with ranges of the last priority that have no job."""
    return [*ranges, *[(ranges[-1][0], _NEVER)] * (_size(len(ranges), _OWN) - len(ranges))] if ranges else []


__all__ = ["HEAD", "HEAD_UNLOCKED", "CandidateWindow", "Lock", "Order", "anything_due", "asked", "claim"]
