"""The claim loop: rounds against the database until a job is won or none is due."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from queue_db import arguments
from queue_db.core import ONCE, Core, Run
from queue_db.errors import StorageError
from queue_db.model import ClaimedRow, ClaimRequest, ClaimResult, JobLinks, exhausted_in, links_of
from queue_db.store import LowWaterMarks, Store, settle
from queue_db.store.callbacks import Departure
from queue_db.store.dependents import finish

#: Jobs won by one round, and the token of its claim.
Won = tuple[Sequence[ClaimedRow], str]

#: Most jobs in one claim.
MAX_CLAIM = 10_000

# Rounds of one claim that lost every candidate, and the first pause between them (seconds), doubling, with jitter.
_ROUNDS = 5
_PAUSE = 0.002

# Rounds that only find new priorities or bury exhausted jobs do not count as lost. The low-water marks keep fewer priorities.
_MOST_ROUNDS = 1000

# Run twice, a claim does no harm: jobs won by a run whose answer was lost are given back, or return when the lease ends. A job
# that was deleted does not return, so an unknown outcome is reported.
_CLAIM = Run("claim", direct=True, repeatable=True)
_CLAIM_AND_DELETE = Run("claim", direct=True)


@dataclass(slots=True)
class _Rounds:
    """One call of claim: its arguments, and the results of its rounds so far."""

    limit: int
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

    @property
    def open(self) -> int:
        """How many more jobs are wanted."""
        return self.limit - sum([len(rows) for rows, _ in self.won])


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
        arguments.whole("limit", limit, 1, MAX_CLAIM)
        marks = self._core.marks[self._queue]
        rescan = marks.rescan_due()
        rounds = _Rounds(
            limit,
            lease,
            marks,
            delete,
            tuple(unless_due),
            worker or self._core.worker,
            rescan=rescan,
            fast_path=self._winning and not rescan,
        )
        try:
            for _ in range(_MOST_ROUNDS):
                claim, buried = self._round(rounds)
                if not self._another(rounds, claim, buried):
                    break
        except StorageError:
            if not rounds.won:
                raise
        except BaseException:
            # Stopped between two rounds: the jobs of the earlier ones are in no hands.
            self._unanswered.extend((token, set()) for _, token in rounds.won)
            raise
        self._count(rounds)
        return rounds.won

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
        """Read candidates and take them, once; add the jobs won to ``rounds``; also return how many exhausted jobs were buried."""
        core, request = self._core, self._request(rounds)
        began, runs, answer = time.monotonic(), 0, None

        def claim(connection: Connection, store: Store) -> ClaimResult:
            nonlocal runs
            runs += 1
            if rounds.delete and not request.delete_on_claim:
                store.dialect.begin(connection)
            found = core.strategy.claim(connection, store, request)
            if rounds.delete and not found.deleted:
                _delete(connection, store, self._queue, [row for row in found.rows if not row.exhausted])
            return found

        try:
            answer = core.run(_CLAIM_AND_DELETE if rounds.delete else _CLAIM, claim)
        finally:
            if not rounds.delete and runs > (answer is not None):
                self._unanswered.append((request.token, set() if answer is None else {row.id for row in answer.rows}))
        self._give_back_unanswered(request.token)
        self._learn(answer, rounds, time.monotonic() - began)
        rounds.fast_path = False
        exhausted = exhausted_in(answer.rows)
        kept = answer.rows if not exhausted else [row for row in answer.rows if not row.exhausted]
        if kept:
            rounds.won.append((kept, request.token))
        self._count_round(answer, len(exhausted), deleted=rounds.delete)
        if exhausted:
            # Every attempt was claimed and none ended with a verdict. In a transaction of its own: if it fails, the leases end and
            # the next claim buries them.
            self._bury((exhausted, request.token))
        return answer, len(exhausted)

    def _request(self, rounds: _Rounds) -> ClaimRequest:
        store = self._core.store
        return ClaimRequest(
            queue=self._queue,
            limit=rounds.open,
            lease=rounds.lease,
            worker=rounds.worker,
            token=secrets.token_hex(16),
            ranges=rounds.marks.ranges(rescan=rounds.rescan),
            now=store.clock() if store.clock else None,
            fast_path=rounds.fast_path,
            delete_on_claim=rounds.delete and rounds.fast_path and store.dialect.deletes_on_claim,
            unless_due=tuple((queue, self._core.marks[queue].ranges()) for queue in rounds.unless_due),
        )

    def _learn(self, claim: ClaimResult, rounds: _Rounds, seconds: float) -> None:
        """Move the low-water marks and the strategy's window."""
        rows = claim.rows
        self._winning = len(rows) >= rounds.open
        if claim.heads or claim.unseen or rounds.rescan:
            now = rows[0].available_at - rounds.lease if rows else None
            rounds.marks.learn(claim, now=now, rescanned=rounds.rescan, seconds=seconds)
        if claim.conclusive or rows:
            self._core.strategy.observe(claim)

    def _give_back_unanswered(self, latest: str) -> None:
        """Release the jobs of earlier claims whose answers were lost. ``latest``: the token of the claim that was just answered."""
        while self._unanswered:
            token, received = self._unanswered.pop()
            try:
                self._core.run(ONCE, settle.give_back_claim, queue=self._queue, token=token, but=received)
            except StorageError:
                self._unanswered.append((token, received))  # the next claim tries again; or the leases end
                break
            except BaseException:
                self._unanswered += [(token, received), (latest, set())]  # stopped: the jobs just won are in no hands either
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
