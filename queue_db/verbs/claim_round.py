"""One round of a claim: a transaction that reads candidates and takes them, and what becomes of it when its answer is lost."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from queue_db.core import ONCE, Core
from queue_db.database.database import Run
from queue_db.errors import StorageError
from queue_db.model import ClaimedRow, ClaimRequest, ClaimResult, Completion, JobLinks, links_of
from queue_db.store import LowWaterMarks, Transaction, settle
from queue_db.store.batches import Departure
from queue_db.store.on_leave import finish
from queue_db.verbs.fenced_change import Work

log = logging.getLogger("queue_db.verbs.claim_round")

#: Jobs won by one round, and the token of its claim.
Won = tuple[Sequence[ClaimedRow], str]

#: Seconds after a claim whose answer was lost at which its jobs are looked for: the server may still be executing it, or begin to.
#: On connections of the library a statement waits at most 10 s for a lock.
LOOKS = (0.0, 1.0, 5.0, 30.0)

# Random bytes of a claim token, from the system's source for secrets.
_TOKEN = 16

# Run twice, a claim does no harm: jobs won by a run whose answer was lost are given back, or return when the lease ends. A job
# that was deleted does not return, so an unknown outcome is reported.
_CLAIM = Run("claim", direct=True, repeatable=True)
_CLAIM_AND_DELETE = Run("claim", direct=True)

# What was rolled back runs again as two transactions.
_EXCHANGE = Run("exchange", attempts=1, direct=True)


class Answer(NamedTuple):
    """What the database answered to a round."""

    token: str
    claim: ClaimResult
    #: Its transaction, which was committed.
    tx: Transaction
    seconds: float


@dataclass(slots=True)
class ClaimCall:
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
    won: list[Won] = field(default_factory=list)
    missed: int = 0
    #: Rounds that lost every candidate.
    lost: int = 0
    #: The last round, if it won nothing and left open whether there were jobs.
    doubtful: ClaimResult | None = None
    #: The answer to a round whose jobs are not in ``won`` yet.
    answered: Answer | None = None
    #: The transactions of its rounds that something follows, but for one that is a completion's.
    committed: list[Transaction] = field(default_factory=list)


@dataclass(slots=True)
class Unanswered:
    """A claim whose answer was lost, or may have been."""

    token: str
    #: The jobs that were received; its others are leased, but in no hands.
    received: set[int] = field(default_factory=set)
    since: float = field(default_factory=time.monotonic)
    #: How often its jobs were looked for.
    looks: int = 0


class ClaimRounds:
    """The rounds of the claims of one queue. Safe to share between threads."""

    def __init__(self, core: Core, queue: str) -> None:
        self._core = core
        self._queue = queue
        #: Claims whose jobs are to be given back.
        self.unanswered: list[Unanswered] = []

    def abandon(self, call: ClaimCall) -> None:
        """The call was stopped: the jobs that it won are in no hands."""
        self.unanswered.extend(Unanswered(token) for _, token in call.won)
        if call.answered is not None:
            self.unanswered.append(Unanswered(call.answered.token))

    def ask(self, call: ClaimCall, completion: Completion | None = None, complete: Work | None = None) -> Answer:
        """Read candidates and take them, in one transaction; with ``completion`` first complete its jobs, by ``complete`` where the
        claim has no statement for that.
        """
        core, store = self._core, self._core.store
        at_once = store.dialect.deletes_on_claim
        request = ClaimRequest(
            queue=self._queue,
            limit=call.open,
            lease=call.lease,
            worker=call.worker,
            token=os.urandom(_TOKEN).hex(),
            ranges=call.marks.ranges(rescan=call.rescan),
            now=store.clock() if store.clock else None,
            fast_path=call.fast_path,
            delete_on_claim=call.delete and call.fast_path and at_once,
            completes=completion if at_once else None,
            unless_due=tuple((queue, core.marks[queue].ranges()) for queue in call.unless_due) if call.unless_due else (),
            call_limit=call.limit,
        )
        began, runs, answer = time.monotonic(), 0, None

        def claim(tx: Transaction) -> ClaimResult:
            nonlocal runs
            runs += 1
            if completion is not None and complete is not None and request.completes is None:
                tx.begin()
                completion.done = complete(tx, completion.pairs)
            if call.delete and not request.delete_on_claim:
                tx.begin()
            found = core.strategy.claim(tx, request)
            if call.delete and not found.deleted:
                _delete(tx, self._queue, [row for row in found.rows if not row.exhausted])
            return found

        how = _EXCHANGE if completion is not None else _CLAIM_AND_DELETE if call.delete else _CLAIM
        try:
            answer, tx = core.commit(how, claim)
        except StorageError as error:
            if completion is not None and not error.outcome_unknown:
                runs = 0  # its only run was rolled back
            raise
        finally:
            if not call.delete and runs > (answer is not None):
                self.unanswered.append(Unanswered(request.token, set() if answer is None else {row.id for row in answer.rows}))
        return Answer(request.token, answer, tx, time.monotonic() - began)

    def give_back_unanswered(self) -> None:
        """Release the jobs of earlier claims whose answers were lost, as far as the server has executed them."""
        for _ in range(len(self.unanswered)):
            try:
                lost = self.unanswered.pop(0)
            except IndexError:  # another thread has taken the last one
                return
            try:
                if time.monotonic() >= lost.since + LOOKS[lost.looks]:
                    found = self._core.run(ONCE, settle.give_back_claim, queue=self._queue, token=lost.token, but=lost.received)
                    lost.looks += 1
                    if found:
                        log.info("%d jobs of %r are back in the queue: the answer to their claim was lost", found, self._queue)
            except StorageError:
                self.unanswered.append(lost)  # the next claim tries again; or the leases end
                break
            except BaseException:
                self.unanswered.append(lost)
                raise
            if lost.looks < len(LOOKS):
                self.unanswered.append(lost)


def _delete(tx: Transaction, queue: str, rows: Sequence[ClaimedRow]) -> None:
    """Delete claimed jobs in the transaction of the claim."""

    def leave() -> dict[int, Departure]:
        return dict.fromkeys(settle.delete(tx, [(row.id, row.version) for row in rows]), Departure.COMPLETED)

    links: dict[int, JobLinks] = {row.id: found for row in rows if (found := links_of(queue, row)) is not None}
    if links:
        finish(tx, links, leave)
    else:
        leave()
