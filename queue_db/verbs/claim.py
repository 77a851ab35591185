"""The claim loop: rounds against the database until a job is won or none is due."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from queue_db import arguments
from queue_db.core import Core
from queue_db.errors import StorageError
from queue_db.model import (
    ClaimResult,
    Completion,
    exhausted_in,
    links_of,
)
from queue_db.store.base import follow
from queue_db.verbs.claim_round import ClaimCall, ClaimRounds, Won
from queue_db.verbs.fenced_change import Carrier, Outcome, Pairs, Work

log = logging.getLogger("queue_db.verbs.claim")

_T = TypeVar("_T")

#: Most jobs in one claim.
MAX_CLAIM = 10_000

# Rounds of one claim that lost every candidate, and the first pause between them (seconds), doubling, with jitter.
_ROUNDS = 5
_PAUSE = 0.002

# Rounds that only find new priorities or bury exhausted jobs do not count as lost. The low-water marks keep fewer priorities.
_MOST_ROUNDS = 1000


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
        self._rounds = ClaimRounds(core, queue)

    def claim(
        self, limit: int, lease: int, *, delete: bool = False, unless_due: Iterable[str] = (), worker: str | None = None
    ) -> list[Won]:
        """Take up to ``limit`` due jobs for ``lease`` microseconds, or with ``delete`` out of the table.

        :param unless_due: take nothing while a job is due in one of these queues.
        :param worker: the name that the jobs show; None: that of this process.
        :raises StorageError: nothing was won. Jobs that an earlier round won are leased, and are returned.
        """
        return self._run(self._begin(limit, lease, delete, unless_due, worker))

    def exchange(
        self, complete: Callable[[Carrier], _T], limit: int, lease: int, *, unless_due: Iterable[str] = ()
    ) -> tuple[_T, list[Won]]:
        """Run ``complete``, and :meth:`claim`: in one transaction where ``complete`` can give its change to the first round.

        :param complete: completes jobs. It may call the carrier, once, and completes them by itself if that returns None.
        :return: what ``complete`` returned, and the jobs won: none, with a log record, if the claim failed after the completion.
        :raises Exception: ``complete`` raised it. No job is won.
        """
        call = self._begin(limit, lease, False, unless_due, None)
        try:
            completed = complete(partial(self._carry, call))
        except BaseException:
            self._rounds.abandon(call)
            raise
        try:
            return completed, self._run(call)
        except Exception:  # also of a strategy of the user's: the verdicts must not be lost
            log.warning("the jobs of %r are completed, but the claim of the next ones failed", self._queue, exc_info=True)
            return completed, []

    def _begin(self, limit: int, lease: int, delete: bool, unless_due: Iterable[str], worker: str | None) -> ClaimCall:
        if type(limit) is not int or not 1 <= limit <= MAX_CLAIM:
            limit = arguments.whole("limit", limit, 1, MAX_CLAIM)
        marks = self._core.marks[self._queue]
        rescan = marks.rescan_due()
        fast_path = self._winning and not rescan
        return ClaimCall(
            limit,
            limit,
            lease,
            marks,
            delete,
            tuple(unless_due),
            worker or self._core.worker,
            rescan=rescan,
            fast_path=fast_path,
        )

    def _run(self, call: ClaimCall) -> list[Won]:
        """The rounds of one call."""
        try:
            for _ in range(_MOST_ROUNDS):
                claim, buried = self._round(call)
                # Most calls win all that they want in one round.
                another = (call.open > 0 or call.doubtful is not None) and self._another(call, claim, buried)
                if claim.conclusive or claim.rows:
                    self._core.strategy.observe(claim)
                if not another:
                    break
        except StorageError as error:
            if not call.won:
                raise
            if call.delete and error.outcome_unknown:
                message = "%d jobs of %r are claimed and deleted, and up to %d more may be lost: %s"
                log.error(message, call.limit - call.open, self._queue, call.open, error)  # noqa: TRY400 - others are returned
        except BaseException:
            self._rounds.abandon(call)
            self._follow(call)
            raise
        counters = self._core.database.counters
        with self._core.database.counting:
            counters.claims += 1
            if not call.won:
                counters.contended += call.missed > 0
                counters.empty += not call.missed
        if call.committed:
            self._follow(call)
        return call.won

    def _carry(self, call: ClaimCall, pairs: Pairs, work: Work) -> Outcome | None:
        """Complete ``pairs`` in the transaction of the first round. None: nothing was done.

        :param work: completes them by itself, on databases whose claim has no statement for both.
        """
        core = self._core
        dialect = core.store.dialect
        # With a server and two statements, an exchange would hold its completed jobs while it claims: two of them can wait for each
        # other, and that is a deadlock. InnoDB also finds some where claims step over locked rows.
        if not (call.fast_path if dialect.deletes_on_claim else not dialect.served):
            return None
        completion = Completion(pairs)
        try:
            answer = self._rounds.ask(call, completion, work)
        except StorageError as error:
            if error.outcome_unknown:
                return Outcome(completion.done, None, error)
            counters = core.database.counters
            with core.database.counting:
                counters.retried += 1
            return None
        if completion.done is None and not answer.claim.rows:
            return None
        call.answered = answer
        if completion.done is None:
            call.committed.append(answer.tx)
            return None
        return Outcome(completion.done, answer.tx)

    def _another(self, call: ClaimCall, claim: ClaimResult, buried: int) -> bool:
        """Whether another round follows the one that got ``claim`` and buried exhausted jobs; waits a moment after lost races.

        If no more jobs are wanted and none are in doubt, none does.
        """
        if not claim.conclusive:
            # It won less than wanted. If it won nothing, the next round shows whether there were jobs.
            call.doubtful = claim if claim.looked and not claim.rows else None
            return call.open > 0
        if call.doubtful is not None:
            # A deletion on the fast path leaves jobs with a group or a batch to this round, and exhausted ones: none is lost.
            left = call.delete and any(row.exhausted or links_of(self._queue, row) is not None for row in claim.rows)
            call.missed += 0 if left else self._judge(call.doubtful, claim)
            call.doubtful = None
        if call.open and (claim.unseen or buried):
            return True
        if call.won:
            return False
        if claim.missed:
            call.lost += 1
            if call.lost < _ROUNDS:
                self._core.database.pause(_PAUSE * 2**call.lost * random.random())
            return call.lost < _ROUNDS
        rescan = not call.rescan and call.marks.raised and call.marks.rescan_due()
        call.rescan = call.rescan or rescan
        return rescan

    def _round(self, call: ClaimCall) -> tuple[ClaimResult, int]:
        """Read candidates and take them, once, unless that has been done; add the jobs won to ``call``; also return how many
        exhausted jobs were buried.
        """
        if call.answered is None:
            call.answered = self._rounds.ask(call)
            if call.answered.tx.woken or call.answered.tx.following:
                call.committed.append(call.answered.tx)
        token, answer, _, seconds = call.answered
        rows, missed = answer.rows, answer.missed
        if self._rounds.unanswered:
            self._rounds.give_back_unanswered()
        self._winning = len(rows) >= call.open
        if answer.heads or answer.unseen or call.rescan:
            now = rows[0].available_at - call.lease if rows else None
            call.marks.learn(answer, now=now, rescanned=call.rescan, seconds=seconds)
        call.fast_path = False
        exhausted = exhausted_in(rows)
        kept = rows if not exhausted else [row for row in rows if not row.exhausted]
        if kept:
            call.won.append((kept, token))
            call.open -= len(kept)
        call.answered = None
        call.missed += missed
        counters = self._core.database.counters
        with self._core.database.counting:
            counters.attempts += 1
            counters.candidates += len(rows) + missed
            counters.missed += missed
            counters.claimed += len(kept)
            counters.exhausted += len(exhausted)
        if missed or call.delete:
            self._core.queue_counters.add(self._queue, missed=missed, completed=len(kept) if call.delete else 0)
        if exhausted:
            # Every attempt was claimed and none ended with a verdict. In a transaction of its own: if it fails, the leases end and
            # the next claim buries them.
            self._bury((exhausted, token))
        return answer, len(exhausted)

    def _judge(self, doubtful: ClaimResult, after: ClaimResult) -> int:
        """The misses of a round that won nothing: jobs found by the round after it were there before, and were lost."""
        lost = min(doubtful.limit, len(after.rows) + after.missed)
        if lost:
            self._core.strategy.observe(replace(doubtful, missed=lost))
            counters = self._core.database.counters
            with self._core.database.counting:
                counters.candidates += lost
                counters.missed += lost
            self._core.queue_counters.add(self._queue, missed=lost)
        return lost

    def _follow(self, call: ClaimCall) -> None:
        """Do what follows the rounds of a call that committed changes."""
        try:
            follow(call.committed)
        except Exception:  # the jobs that were won, and may be deleted, must not be lost by it
            log.exception("jobs of %r are claimed, but not all who wait for others were woken", self._queue)
