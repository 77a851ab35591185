"""The claim loop: rounds against the database until a job is won or none is due."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from queue_db import arguments
from queue_db.core import ONCE, Core, Run
from queue_db.errors import QueueDBError, StorageError
from queue_db.model import (
    CallCost,
    ClaimedRow,
    ClaimRequest,
    ClaimResult,
    Completion,
    JobLinks,
    exhausted_in,
    links_of,
)
from queue_db.store import LowWaterMarks, Store, settle
from queue_db.store.callbacks import Departure
from queue_db.store.dependents import finish
from queue_db.verbs.fenced_change import Carrier, Outcome, Pairs, Work

log = logging.getLogger("queue_db.verbs.claim")

_T = TypeVar("_T")

#: Jobs won by one round, and the token of its claim.
Won = tuple[Sequence[ClaimedRow], str]

#: Most jobs in one claim.
MAX_CLAIM = 10_000

# Random bytes of a claim token, from the system's source for secrets.
_TOKEN = 16

# Rounds of one claim that lost every candidate, and the first pause between them (seconds), doubling, with jitter.
_ROUNDS = 5
_PAUSE = 0.002

# Rounds that only find new priorities or bury exhausted jobs do not count as lost. The low-water marks keep fewer priorities.
_MOST_ROUNDS = 1000

# Run twice, a claim does no harm: jobs won by a run whose answer was lost are given back, or return when the lease ends. A job
# that was deleted does not return, so an unknown outcome is reported.
_CLAIM = Run("claim", direct=True, repeatable=True)
_CLAIM_AND_DELETE = Run("claim", direct=True)

# What was rolled back runs again as two transactions.
_EXCHANGE = Run("exchange", attempts=1, direct=True)


class _Answer(NamedTuple):
    """What the database answered to a round."""

    token: str
    claim: ClaimResult
    seconds: float


@dataclass(slots=True)
class _Rounds:
    """One call of claim: its arguments, and the results of its rounds so far."""

    limit: int
    #: How many more jobs are wanted.
    open: int
    lease: int
    marks: LowWaterMarks
    delete: bool
    unless_due: Sequence[str]
    worker: str
    #: The next round starts from the beginning of the queue.
    rescan: bool
    #: The next round is one short statement that may be inconclusive.
    fast_path: bool
    #: When the call began, if that was on the fast path: of other calls the cost says little.
    began: float | None
    won: list[Won] = field(default_factory=list)
    #: Whether the last round locked its candidates; None before the first.
    locked: bool | None = None
    missed: int = 0
    #: Rounds that lost every candidate.
    lost: int = 0
    #: The last round, if it won nothing and left open whether there were jobs.
    doubtful: ClaimResult | None = None
    #: The answer to a round whose jobs are not in ``won`` yet.
    answered: _Answer | None = None

    def cost(self) -> CallCost | None:
        """What the call has cost until now; None if it found no job, or did not begin on the fast path."""
        if self.began is None or not (self.won or self.missed):
            return None
        return CallCost(self.limit, self.limit - self.open, time.monotonic() - self.began)


class ClaimLoop:
    """The claims of one queue. Safe to share between threads.

    :param bury: sends jobs to the dead table whose attempts are used up.
    """

    def __init__(self, core: Core, queue: str, bury: Callable[[Won], object]) -> None:
        self._core = core
        self._queue = queue
        self._bury = bury
        # Whether the last round won all it wanted: then the next one probably does too.
        self._winning = False
        # Tokens of claims whose answer may have been lost, and the jobs that were received: the others are leased, but in no hands.
        self._unanswered: list[tuple[str, set[int]]] = []

    def claim(
        self, limit: int, lease: int, *, delete: bool = False, unless_due: Iterable[str] = (), worker: str | None = None
    ) -> list[Won]:
        """Take up to ``limit`` due jobs for ``lease`` microseconds, or with ``delete`` out of the table.

        :param unless_due: take nothing while a job is due in one of these queues.
        :param worker: the name that the jobs show; None: that of this process.
        :raises StorageError: nothing was won. Jobs that an earlier round won are leased, and are returned.
        """
        return self._run(self._begun(limit, lease, delete, unless_due, worker))

    def exchange(
        self, complete: Callable[[Carrier], _T], limit: int, lease: int, *, unless_due: Iterable[str] = ()
    ) -> tuple[_T, list[Won]]:
        """Run ``complete``, and :meth:`claim`: in one transaction where ``complete`` can give its change to the first round.

        :param complete: completes jobs. It may call the carrier, once, and completes them by itself if that returns None.
        :return: what ``complete`` returned, and the jobs won: none, with a log record, if the claim failed after the completion.
        :raises Exception: ``complete`` raised it. No job is won.
        """
        rounds = self._begun(limit, lease, False, unless_due, None)
        try:
            completed = complete(partial(self._carry, rounds))
        except BaseException:
            self._abandon(rounds)
            raise
        try:
            return completed, self._run(rounds)
        except QueueDBError:
            log.warning("the jobs of %r are completed, but the claim of the next ones failed", self._queue, exc_info=True)
            return completed, []

    def _begun(self, limit: int, lease: int, delete: bool, unless_due: Iterable[str], worker: str | None) -> _Rounds:
        arguments.whole("limit", limit, 1, MAX_CLAIM)
        marks = self._core.marks[self._queue]
        rescan = marks.rescan_due()
        fast_path = self._winning and not rescan
        return _Rounds(
            limit,
            limit,
            lease,
            marks,
            delete,
            tuple(unless_due),
            worker or self._core.worker,
            rescan=rescan,
            fast_path=fast_path,
            began=time.monotonic() if fast_path else None,
        )

    def _run(self, rounds: _Rounds) -> list[Won]:
        """The rounds of one call."""
        if rounds.began is not None and rounds.answered is None:
            rounds.began = time.monotonic()  # without a completion that ran before
        try:
            for _ in range(_MOST_ROUNDS):
                claim, buried = self._round(rounds)
                another = self._another(rounds, claim, buried)
                if not another:
                    claim.cost = rounds.cost()
                if claim.conclusive or claim.rows:
                    self._core.strategy.observe(claim)
                if not another:
                    break
        except StorageError:
            if not rounds.won:
                raise
        except BaseException:
            self._abandon(rounds)
            raise
        self._count(rounds)
        return rounds.won

    def _abandon(self, rounds: _Rounds) -> None:
        """The call was stopped: the jobs that it won are in no hands."""
        self._unanswered.extend((token, set()) for _, token in rounds.won)
        if rounds.answered is not None:
            self._unanswered.append((rounds.answered.token, set()))

    def _carry(self, rounds: _Rounds, pairs: Pairs, work: Work) -> Outcome | None:
        """Complete ``pairs`` in the transaction of the first round. None: nothing was done.

        :param work: completes them by itself, on databases whose claim has no statement for both.
        """
        core = self._core
        dialect = core.store.dialect
        # With a server and two statements, an exchange would hold its completed jobs while it claims: two of them can wait for each
        # other, and that is a deadlock. InnoDB also finds some where claims step over locked rows.
        if not (rounds.fast_path if dialect.deletes_on_claim else not dialect.served):
            return None
        completion = Completion(pairs)
        try:
            answer = self._ask(rounds, completion, work)
        except StorageError as error:
            if error.outcome_unknown:
                return Outcome(completion.done, error)
            with core.database.counting as counters:
                counters.retried += 1
            return None
        if completion.done is None and not answer.claim.rows:
            return None
        rounds.answered = answer
        return None if completion.done is None else Outcome(completion.done)

    def _another(self, rounds: _Rounds, claim: ClaimResult, buried: int) -> bool:
        """Whether another round follows the one that got ``claim`` and buried exhausted jobs; waits a moment after lost races."""
        rounds.missed += claim.missed
        if not claim.conclusive:
            # It won less than wanted. If it won nothing, the next round shows whether there were jobs.
            rounds.doubtful = None if claim.rows else claim
            return rounds.open > 0
        if rounds.doubtful is not None:
            rounds.missed += self._judge(rounds.doubtful, claim)
            rounds.doubtful = None
        if rounds.open and (claim.unseen or buried):
            return True
        if rounds.won:
            return False
        if claim.missed:
            rounds.lost += 1
            if rounds.lost < _ROUNDS:
                self._core.database.pause(_PAUSE * 2**rounds.lost * random.random())
            return rounds.lost < _ROUNDS
        rescan = not rounds.rescan and rounds.marks.raised and rounds.marks.rescan_due()
        rounds.rescan = rounds.rescan or rescan
        return rescan

    def _round(self, rounds: _Rounds) -> tuple[ClaimResult, int]:
        """Read candidates and take them, once, unless that has been done; add the jobs won to ``rounds``; also return how many
        exhausted jobs were buried.
        """
        if rounds.answered is None:
            rounds.answered = self._ask(rounds)
        token, answer, seconds = rounds.answered
        self._give_back_unanswered()
        self._learn(answer, rounds, seconds)
        rounds.fast_path, rounds.locked = False, answer.locked
        exhausted = exhausted_in(answer.rows)
        kept = answer.rows if not exhausted else [row for row in answer.rows if not row.exhausted]
        if kept:
            rounds.won.append((kept, token))
            rounds.open -= len(kept)
        rounds.answered = None
        self._count_round(answer, len(exhausted), deleted=rounds.delete)
        if exhausted:
            # Every attempt was claimed and none ended with a verdict. In a transaction of its own: if it fails, the leases end and
            # the next claim buries them.
            self._bury((exhausted, token))
        return answer, len(exhausted)

    def _ask(self, rounds: _Rounds, completion: Completion | None = None, complete: Work | None = None) -> _Answer:
        """Read candidates and take them, in one transaction; with ``completion`` first complete its jobs, by ``complete`` where the
        claim has no statement for that.
        """
        core, request = self._core, self._request(rounds, completion)
        began, runs, answer = time.monotonic(), 0, None

        def claim(connection: Connection, store: Store) -> ClaimResult:
            nonlocal runs
            runs += 1
            if completion is not None and complete is not None and request.completes is None:
                store.dialect.begin(connection)
                completion.done = complete(connection, store, completion.pairs)
            if rounds.delete and not request.delete_on_claim:
                store.dialect.begin(connection)
            found = core.strategy.claim(connection, store, request)
            if rounds.delete and not found.deleted:
                _delete(connection, store, self._queue, [row for row in found.rows if not row.exhausted])
            return found

        how = _EXCHANGE if completion is not None else _CLAIM_AND_DELETE if rounds.delete else _CLAIM
        try:
            answer = core.run(how, claim)
        except StorageError as error:
            if completion is not None and not error.outcome_unknown:
                runs = 0  # its only run was rolled back
            raise
        finally:
            if not rounds.delete and runs > (answer is not None):
                self._unanswered.append((request.token, set() if answer is None else {row.id for row in answer.rows}))
        return _Answer(request.token, answer, time.monotonic() - began)

    def _request(self, rounds: _Rounds, completion: Completion | None) -> ClaimRequest:
        store = self._core.store
        return ClaimRequest(
            queue=self._queue,
            limit=rounds.open,
            lease=rounds.lease,
            worker=rounds.worker,
            token=os.urandom(_TOKEN).hex(),
            ranges=rounds.marks.ranges(rescan=rounds.rescan),
            now=store.clock() if store.clock else None,
            fast_path=rounds.fast_path,
            delete_on_claim=rounds.delete and rounds.fast_path and store.dialect.deletes_on_claim,
            completes=completion if store.dialect.deletes_on_claim else None,
            unless_due=tuple((queue, self._core.marks[queue].ranges()) for queue in rounds.unless_due),
            locked_before=rounds.locked,
        )

    def _learn(self, claim: ClaimResult, rounds: _Rounds, seconds: float) -> None:
        """Move the low-water marks."""
        rows = claim.rows
        self._winning = len(rows) >= rounds.open
        if claim.heads or claim.unseen or rounds.rescan:
            now = rows[0].available_at - rounds.lease if rows else None
            rounds.marks.learn(claim, now=now, rescanned=rounds.rescan, seconds=seconds)

    def _give_back_unanswered(self) -> None:
        """Release the jobs of earlier claims whose answers were lost."""
        while self._unanswered:
            token, received = self._unanswered.pop()
            try:
                self._core.run(ONCE, settle.give_back_claim, queue=self._queue, token=token, but=received)
            except StorageError:
                self._unanswered.append((token, received))  # the next claim tries again; or the leases end
                break
            except BaseException:
                self._unanswered.append((token, received))
                raise

    def _judge(self, doubtful: ClaimResult, after: ClaimResult) -> int:
        """The misses of a round that won nothing: jobs found by the round after it were there before, and were lost."""
        lost = min(doubtful.limit, len(after.rows) + after.missed)
        if lost:
            self._core.strategy.observe(replace(doubtful, missed=lost))
            with self._core.database.counting as counters:
                counters.candidates += lost
                counters.missed += lost
            self._core.tally.add(self._queue, missed=lost)
        return lost

    def _count(self, rounds: _Rounds) -> None:
        with self._core.database.counting as counters:
            counters.claims += 1
            if not rounds.won:
                counters.contended += rounds.missed > 0
                counters.empty += not rounds.missed

    def _count_round(self, claim: ClaimResult, exhausted: int, *, deleted: bool) -> None:
        with self._core.database.counting as counters:
            counters.attempts += 1
            counters.candidates += len(claim.rows) + claim.missed
            counters.missed += claim.missed
            counters.claimed += len(claim.rows) - exhausted
            counters.exhausted += exhausted
        completed = len(claim.rows) - exhausted if deleted else 0
        self._core.tally.add(self._queue, missed=claim.missed, completed=completed)


def _delete(connection: Connection, store: Store, queue: str, rows: Sequence[ClaimedRow]) -> None:
    """Delete claimed jobs in the transaction of the claim."""

    def leave() -> dict[int, Departure]:
        return dict.fromkeys(settle.delete(connection, store, [(row.id, row.version) for row in rows]), Departure.COMPLETED)

    links: dict[int, JobLinks] = {row.id: found for row in rows if (found := links_of(queue, row)) is not None}
    if links:
        finish(connection, store, links, leave)
    else:
        leave()
