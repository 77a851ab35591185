"""The claim loop: rounds against the database until jobs are won or no job is due."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import OwnTransaction, Run
from queue_db.errors import StorageError
from queue_db.model import ClaimRequest, ClaimResult, Completion, Seen, Verdict, exhausted_in, links_of
from queue_db.store.base import Transaction, follow
from queue_db.strategies.policies import Policy
from queue_db.verbs.claim_round import FAST, FULL, RESCAN, ClaimedBatch, Unanswered, Way, delete_claimed, give_back
from queue_db.verbs.fenced_change import FencedChange, Outcome

log = logging.getLogger("queue_db.verbs.claim")

#: The most jobs in one claim.
MAX_CLAIM = 10_000

# A claim ends after this many rounds that lost every candidate.
_ROUNDS = 5

# Seconds between two warnings of a queue that each run of a claim lost.
_LOGGED_EVERY = 60.0

# Seconds. After the n-th of these rounds the claim pauses for a random time up to 2^n times this value.
_PAUSE = 0.002

# The most rounds of one claim. It limits the rounds that only find new priorities or bury exhausted jobs, since these do not count
# as lost. The low-water marks keep fewer priorities than this, so a claim can find all of them.
_MOST_ROUNDS = 1000

# The number of random bytes in a lease token. They come from the operating system, so that nobody can guess the token.
_TOKEN = 16

# A claim may run again: if the answer to a run is lost, the jobs of that run are released later, or their leases end.
_CLAIM = Run("claim", lazy=True, repeatable=True)

# A claim that deletes its jobs must not run again: deleted jobs do not return. So an unknown outcome is reported to the caller.
_CLAIM_AND_DELETE = Run("pop", lazy=True)

# The completion of claims that complete no jobs.
_NOTHING = Completion(())

# Python takes long to look up a member of an enumeration in its class.
_ALL = Seen.ALL

# One attempt: after a rollback, the completion and the claim run in two transactions.
_COMPLETE_AND_CLAIM = Run("complete_and_claim", attempts=1, lazy=True)


class ClaimCall:
    """One call of claim: its arguments, and the results of its rounds so far.

    :param limit: the most jobs to claim.
    :param lease: the length of the leases, microseconds.
    :param delete: delete the jobs instead of leasing them.
    :param if_idle: take nothing while a job is due in one of these queues.
    :param worker: the worker name that the jobs show; None: the name of this process.
    """

    __slots__ = (
        "answered",
        "collided",
        "committed",
        "delete",
        "if_idle",
        "lease",
        "limit",
        "lost",
        "missed",
        "open",
        "previous",
        "result",
        "seconds",
        "token",
        "tx",
        "way",
        "won",
        "worker",
    )

    #: The transaction of the last round.
    tx: OwnTransaction
    #: The duration of the last round, seconds.
    seconds: float

    def __init__(
        self,
        claims: ClaimLoop,
        limit: int,
        lease: int,
        delete: bool = False,
        if_idle: Sequence[str] = (),
        worker: str | None = None,
    ) -> None:
        if type(limit) is not int or not 1 <= limit <= MAX_CLAIM:
            limit = arguments.whole("limit", limit, 1, MAX_CLAIM)
        self.limit = limit
        #: How many more jobs are wanted.
        self.open = limit
        self.lease = lease
        self.delete = delete
        self.if_idle = if_idle
        self.worker = worker or claims.core.worker
        self.way: Way = RESCAN if claims.marks.rescan_due() else FAST if claims.winning else FULL
        self.won: list[ClaimedBatch] = []
        self.missed = 0
        #: How many candidates the last round lost in runs that the database rolled back.
        self.collided = 0
        #: Whether a round was answered.
        self.answered = False
        #: How many rounds lost every candidate.
        self.lost = 0
        #: The token of the last round.
        self.token = ""
        #: The result of the last round, until its jobs are in ``won``.
        self.result: ClaimResult | None = None
        #: The result of the previous round, if its ``seen`` is not ALL; otherwise None.
        self.previous: ClaimResult | None = None
        #: The transactions of the rounds that have a follow-up to run. A transaction that also completed jobs is not among them:
        #: the completion runs its follow-up.
        self.committed: tuple[Transaction, ...] = ()


class ClaimLoop:
    """The claims of one queue. Safe to share between threads.

    :param bury: a function that moves exhausted jobs to the dead table.
    """

    def __init__(self, core: Core, queue: str, bury: Callable[[ClaimedBatch], object]) -> None:
        self.core = core
        self.marks = core.marks[queue]
        #: Whether the last round won all the jobs that it wanted. If so, the next claim tries the fast way.
        self.winning = False
        #: Claims whose jobs did not reach a caller. The next claims release these jobs.
        self.unanswered: list[Unanswered] = []
        self._queue = queue
        self._bury = bury
        # When the last warning was logged, by the monotonic clock.
        self._warned = -_LOGGED_EVERY

    def claim(self, call: ClaimCall) -> list[ClaimedBatch]:
        """Run the rounds of a call; return the jobs won.

        :raises StorageError: a round failed, and no earlier round won a job. If one did, the jobs won so far are returned.
        """
        try:
            for _ in range(_MOST_ROUNDS):
                result = call.result or self._ask(call)
                buried = self._take_in(call, result)
                # First the cheap test: most calls win all that they want in one round.
                another = (call.open > 0 or call.previous is not None) and self._another(call, result, buried)
                if result.seen is _ALL or result.rows or call.collided:
                    result.missed += call.collided
                    self.core.strategy.observe(result)
                if not another:
                    break
        except StorageError as error:
            # A signal handler's error may come after the COMMIT, before the jobs of the round are in ``won``.
            self._abandon(call, returned=True)
            if not call.won:
                raise
            if call.delete and error.outcome_unknown:
                message = "%d jobs of %r are claimed and deleted, and up to %d more may be lost: %s"
                log.error(message, call.limit - call.open, self._queue, call.open, error)  # noqa: TRY400 - won jobs are returned
        except BaseException:
            self._abandon(call)
            self._follow(call)
            raise
        if not call.won:
            counters = self.core.database.counters
            with self.core.database.counting:
                counters.contended += call.missed > 0
                counters.empty += not call.missed
        if call.committed:
            self._follow(call)
        return call.won

    def complete_and_claim(self, change: FencedChange, call: ClaimCall) -> tuple[list[Verdict], list[ClaimedBatch]]:
        """Complete the jobs of ``change``, then claim jobs as :meth:`claim` does.

        Both are done in one transaction where measurements showed that this is faster.

        :return: the verdicts, and the claimed jobs. If the claim fails after the completion, there are no claimed jobs, and the
            error is logged.
        :raises Exception: the completion failed. No job is claimed.
        """
        dialect = self.core.store.dialect
        # One transaction is used if one statement does both, or if the database has no server. On a server that needs two
        # statements, the completed jobs would stay locked while the claim runs, so two calls could deadlock. InnoDB reports
        # deadlocks even if the claims skip locked rows.
        together = call.way is FAST if dialect.deletes_on_claim else not dialect.served
        together = together and change.verb.carried and not change.dependent()
        try:
            with change:
                verdicts = change.end(self._exchanged(change, call) if together else None)
            if change.committed or change.deaths:
                change.follow()
        except BaseException:
            self._abandon(call)
            raise
        try:
            return verdicts, self.claim(call)
        except Exception:  # a user's strategy may raise anything, and the verdicts must not be lost
            log.warning("the jobs of %r are completed, but the claim of the next ones failed", self._queue, exc_info=True)
            return verdicts, []

    def _exchanged(self, change: FencedChange, call: ClaimCall) -> Outcome | None:
        """Complete the jobs of ``change`` in the transaction of the first round; return None if the jobs were not completed."""
        core = self.core
        completion = Completion(change.pairs)
        try:
            result = self._ask(call, change, completion)
        except StorageError as error:
            # An error that is not the database's, such as a signal handler's, may come after the COMMIT.
            if completion.done is not None and (call.tx.committed or not call.tx.asked):
                return Outcome(completion.done, call.tx)
            if error.outcome_unknown:
                return Outcome(completion.done, None, error)
            with core.database.counting:
                core.database.counters.retried += 1
            return None
        if completion.done is not None:
            return Outcome(completion.done, call.tx)
        if result.rows:
            call.committed += (call.tx,)
        else:
            call.result = None  # the claim begins again
        return None

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _ask(self, call: ClaimCall, change: FencedChange | None = None, completion: Completion = _NOTHING) -> ClaimResult:
        """Run one round: in one transaction complete the jobs of ``completion`` with ``change``, if given, and claim others."""
        core, store = self.core, self.core.store
        at_once, ranges = store.dialect.deletes_on_claim, self.marks.ranges(call.way is RESCAN)
        # By position: Python takes twice as long for names.
        request = ClaimRequest(self._queue, call.open, call.lease, call.worker, os.urandom(_TOKEN).hex(), ranges)
        request.call_limit, request.fast_path = call.limit, call.way is FAST
        request.now = store.clock() if store.clock else None
        request.delete_on_claim = call.delete and request.fast_path and at_once
        request.completes = completion if change is not None and at_once else None
        request.if_idle = tuple((queue, core.marks[queue].ranges()) for queue in call.if_idle) if call.if_idle else ()
        policy = self._policy(call, request) if core.policies.stale or self._queue in core.policies.of else None
        call.token, began, runs = request.token, time.monotonic(), 0
        call.tx = tx = core.transaction(_COMPLETE_AND_CLAIM if change is not None else _CLAIM_AND_DELETE if call.delete else _CLAIM)
        try:
            while not tx.committed:
                with tx:
                    runs += 1
                    if (change is not None and not at_once) or (call.delete and not request.delete_on_claim):
                        tx.begin()  # the claim is one statement of several
                    if change is not None and not at_once:
                        completion.done = change.attempt(tx, completion.pairs, change.dependent())
                    result = core.strategy.claim(tx, request) if policy is None else policy.claim(tx, request, core.strategy.claim)
                    if call.delete and not result.deleted:
                        delete_claimed(tx, self._queue, [row for row in result.rows if not row.exhausted])
            call.result = result
        except StorageError as error:
            if change is not None and not (error.outcome_unknown or tx.committed) and (completion.done is None or tx.asked):
                runs = 0  # the only run was rolled back
            result = self._beaten(call, error, change)
        finally:
            if not tx.committed:
                tx.give_back()
            # The jobs of a run that was interrupted after its COMMIT are not in hand either.
            lost = runs - tx.collisions - (call.result is not None)
            if lost > 0 and not call.delete:
                self.unanswered.append(Unanswered(request.token, {row.id for row in call.result.rows} if call.result else set()))
        call.seconds = time.monotonic() - began
        call.result = result
        if change is None and (tx.woken or tx.following):
            call.committed += (tx,)
        return result

    def _policy(self, call: ClaimCall, request: ClaimRequest) -> Policy | None:
        """How this queue claims, if not by the strategy alone. The policies are read again from time to time."""
        policies = self.core.policies
        if policies.due():
            policies.read(self.core)
        request.first = not call.answered
        return policies.of.get(self._queue)

    def _beaten(self, call: ClaimCall, error: StorageError, change: FencedChange | None) -> ClaimResult:
        """The result of a round that lost to other transactions at each run. It won nothing, and has seen nothing of the queue.

        :raises StorageError: it is ``error``, which says something else, or the jobs of ``change`` were not completed.
        """
        elsewhere = call.tx.committed or error.outcome_unknown  # a signal handler's error may come after the COMMIT
        if change is not None or elsewhere or not self.core.store.dialect.errors.is_collision(error):
            raise error
        call.way, call.lost, call.previous = FULL, _ROUNDS, None
        now = time.monotonic()
        if now - self._warned >= _LOGGED_EVERY:
            self._warned = now
            message = "claims of %r lose to other transactions: all %d runs of one were rolled back, the last one with: %s"
            log.warning(message, self._queue, call.tx.collisions, error)
        return ClaimResult(self._queue, call.open, missed=1)

    def _take_in(self, call: ClaimCall, result: ClaimResult) -> int:
        """Add the jobs won to ``call``, and learn where the next claim starts; return how many exhausted jobs were buried."""
        rows = result.rows
        missed = result.missed
        call.collided = 0
        if call.tx.collisions and call.tx.committed:
            # A run that lost does not show how many candidates it had. If the last run won jobs, the others raced for as many each.
            # Otherwise they may have met something else than claims: they are one miss, as in a round that lost all runs.
            call.collided = call.tx.collisions * len(rows) or 1
        lost = missed + call.collided
        if self.unanswered:
            give_back(self.core, self._queue, self.unanswered)
        self.winning = len(rows) >= call.open
        if result.min_due or result.new_priorities or call.way is RESCAN:
            now = rows[0].available_at - call.lease if rows else None
            self.marks.learn(result, now, call.way is RESCAN, call.seconds)
        if call.way is FAST:
            call.way = FULL
        if rows and rows[0].group_key is not None and self._queue not in self.core.policies.of:
            self.core.policies.suspect()
        exhausted = exhausted_in(rows)
        kept = rows if not exhausted else [row for row in rows if not row.exhausted]
        number = len(kept)
        if number:
            call.won.append((kept, call.token))
            call.open -= number
        call.result = None
        call.missed += missed
        first, call.answered = not call.answered, True
        database = self.core.database
        counters = database.counters
        with database.counting:
            counters.claims += first
            counters.attempts += 1
            counters.claimed += number
            counters.refused += result.refused
            if lost or exhausted:
                counters.missed += lost
                counters.exhausted += len(exhausted)
        if lost or call.delete:
            self.core.queue_counters.add(self._queue, missed=lost, completed=number if call.delete else 0)
        if exhausted:
            # All attempts of these jobs are used up. The jobs are buried in a separate transaction. If that transaction fails, the
            # leases of the jobs end and a later claim buries them.
            self._bury((exhausted, call.token))
        return len(exhausted)

    def _another(self, call: ClaimCall, result: ClaimResult, buried: int) -> bool:
        """Decide whether another round is needed. If the last round lost every candidate, wait a moment first.

        Call this method only if more jobs are wanted or ``call.previous`` is set.

        :param result: the result of the last round.
        :param buried: how many exhausted jobs the last round buried.
        """
        previous, call.previous = call.previous, None
        if result.seen is not _ALL:
            # The round won fewer jobs than wanted, and does not show why. The next round shows whether jobs were due.
            call.previous = result
            return call.open > 0
        if previous is not None and previous.seen is Seen.SOME and not previous.rows:
            # On its fast path, a claim that deletes skips exhausted jobs and jobs with a group or a batch. They are not misses.
            left = call.delete and any(row.exhausted or links_of(self._queue, row) is not None for row in result.rows)
            call.missed += 0 if left else self._judge(previous, result)
        if call.open and (result.new_priorities or buried):
            return True
        if call.won:
            return False
        if result.missed:
            call.lost += 1
            if call.lost < _ROUNDS:
                self.core.database.pause(_PAUSE * 2**call.lost * random.random())
            return call.lost < _ROUNDS
        if call.way is RESCAN or not self.marks.raised or not self.marks.rescan_due():
            return False
        call.way = RESCAN
        return True

    def _judge(self, doubtful: ClaimResult, after: ClaimResult) -> int:
        """Count the misses of the round ``doubtful``, which won no job: it missed the jobs that the next round (``after``) found.

        Return the number of misses.
        """
        lost = min(doubtful.limit, len(after.rows) + after.missed)
        if lost:
            self.core.strategy.observe(replace(doubtful, missed=lost))
            counters = self.core.database.counters
            with self.core.database.counting:
                counters.missed += lost
            self.core.queue_counters.add(self._queue, missed=lost)
        return lost

    def _follow(self, call: ClaimCall) -> None:
        """Run the follow-ups of the committed rounds of a call."""
        try:
            follow(call.committed)
        except Exception:  # the caller must still get the jobs that were won: they may be deleted
            log.exception("jobs of %r are claimed, but not all who wait for others were woken", self._queue)

    def _abandon(self, call: ClaimCall, *, returned: bool = False) -> None:
        """Remember the jobs that a stopped call won, so that the next claim releases them.

        :param returned: the caller still gets the jobs in ``won``.
        """
        won = {token for _, token in call.won}
        lost = set() if returned else won
        if call.result is not None and call.token not in won:
            lost.add(call.token)
        self.unanswered.extend(map(Unanswered, lost))
