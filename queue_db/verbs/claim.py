"""The claim loop: rounds against the database until something is won or nothing is due, and what is learnt from each."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection

from queue_db.database.database import Database
from queue_db.errors import StorageError
from queue_db.model import ClaimedRow, ClaimRequest, ClaimResult, Tie, tie_of
from queue_db.store import Marks, Store, settle
from queue_db.store.callbacks import Fate
from queue_db.store.leaving import leave
from queue_db.strategies import Strategy

#: A job won, and the token of the claim that won it.
Won = tuple[ClaimedRow, str]

# Rounds of one claim that lost every candidate, and the first pause between them (seconds), doubling, with jitter.
_ROUNDS = 5
_PAUSE = 0.002

# A round that only found out about new priorities adds a range; more than the marks keep cannot come. One that buried exhausted
# jobs has their places to fill.
_MOST_ROUNDS = 1000


class Claiming:
    """The claims of one queue. Safe to share between threads.

    :param worker: returns the name that claimed jobs show; it is another one after a fork.
    :param bury: sends jobs to the dead table whose attempts are used up.
    """

    def __init__(
        self,
        database: Database,
        store: Store,
        strategy: Strategy,
        queue: str,
        worker: Callable[[], str],
        bury: Callable[[Sequence[Won]], object],
    ) -> None:
        self._bury = bury
        self._database = database
        self._store = store
        self._strategy = strategy
        self._queue = queue
        self._worker = worker
        self.marks = Marks()
        # Where the last round won all it wanted, the next will most likely win too.
        self._winning = False
        # Tokens of claims of which an answer may have been cut off, and the jobs that were heard of: what else they won is leased
        # to us, and nobody has it in hand.
        self._unheard: list[tuple[str, set[int]]] = []

    def claim(self, limit: int, lease: int, *, pop: bool = False, unless_due: Mapping[str, Marks] | None = None) -> list[Won]:
        """Take up to ``limit`` due jobs for ``lease`` microseconds, or with ``pop`` out of the table for good.

        :param unless_due: take nothing while a job is due in one of these queues.
        :raises StorageError: if nothing has been won; what an earlier round won is leased to us, and is handed out.
        """
        won: list[Won] = []
        missed = 0
        try:
            missed = self._win(limit, lease, won, pop=pop, unless_due=unless_due or {})
        except StorageError:
            if not won:
                raise
        except BaseException:
            # Stopped between two rounds: nobody takes in hand what the first one won.
            self._unheard.extend((token, set()) for token in {token for _, token in won})
            raise
        with self._database.counting as counters:
            counters.claims += 1
            if not won:
                counters.contended += missed > 0
                counters.empty += not missed
        return won

    def _win(self, limit: int, lease: int, won: list[Won], *, pop: bool, unless_due: Mapping[str, Marks]) -> int:
        """Try until something is won or nothing is due, a few times; append to ``won`` and return the number of misses."""
        missed = rounds = 0
        sweeping = self.marks.sweep_due()
        doubtful: ClaimResult | None = None
        lean = self._winning and not sweeping
        for _ in range(_MOST_ROUNDS):
            held = len(won)
            claim = self._round(limit - held, lease, won, sweep=sweeping, pop=pop, lean=lean, unless_due=unless_due)
            lean = False
            if not claim.conclusive:
                # It won nothing, or less than it could: the next one says what is left.
                doubtful = None if claim.rows else claim
                missed += claim.missed
                if len(won) < limit:
                    continue
                break
            if doubtful is not None:
                missed += self._judge(doubtful, claim)
                doubtful = None
            missed += claim.missed
            buried = len(claim.rows) - (len(won) - held)
            if (claim.unseen or buried) and len(won) < limit:
                continue
            if won:
                break
            if not claim.missed:
                if sweeping or not self.marks.raised or not self.marks.sweep_due():
                    break
                sweeping = True
                continue
            rounds += 1
            if rounds >= _ROUNDS:
                break
            self._database.pause(_PAUSE * 2**rounds * random.random())
        return missed

    def _round(
        self, limit: int, lease: int, won: list[Won], *, sweep: bool, pop: bool, lean: bool, unless_due: Mapping[str, Marks]
    ) -> ClaimResult:
        """Read candidates and take them once, with ``pop`` out of the table; append the jobs won."""
        store, strategy = self._store, self._strategy
        token = secrets.token_hex(16)
        request = ClaimRequest(
            queue=self._queue,
            limit=limit,
            lease=lease,
            worker=self._worker(),
            token=token,
            ranges=self.marks.ranges(sweep=sweep),
            now=store.clock() if store.clock else None,
            lean=lean,
            out=pop and lean and store.dialect.takes_out,
        )
        if unless_due:
            request.unless_due = tuple((queue, marks.ranges()) for queue, marks in unless_due.items())

        def work(connection: Connection) -> ClaimResult:
            if not pop:
                return strategy.claim(connection, store, request)
            if not request.out:
                store.dialect.begin(connection)
            claim = strategy.claim(connection, store, request)
            if not claim.out:
                self._take_out(connection, [row for row in claim.rows if not row.exhausted])
            return claim

        began = time.monotonic()
        # Run twice a claim does no harm: what an answer that got lost would have told of comes back when its lease ends. What was
        # popped does not come back, so that must be said.
        claim = self._run(work, token, repeatable=not pop)
        rows = claim.rows
        self._winning = len(rows) >= limit
        now = rows[0].available_at - lease if rows else None
        if claim.heads or claim.unseen or sweep:
            self.marks.learn(claim, now=now, swept=sweep, seconds=time.monotonic() - began)
        if claim.conclusive or rows:
            strategy.observe(claim)
        exhausted = [row for row in rows if row.exhausted]
        with self._database.counting as counters:
            counters.attempts += 1
            counters.candidates += len(rows) + claim.missed
            counters.missed += claim.missed
            counters.claimed += len(rows) - len(exhausted)
            counters.exhausted += len(exhausted)
        if exhausted:
            won.extend((row, token) for row in rows if not row.exhausted)
            # Every attempt was claimed and none came back with a verdict: these jobs kill their workers. In a transaction of its
            # own: if it does not come to pass, their lease ends and the next claim does it.
            self._bury([(row, token) for row in exhausted])
        else:
            won.extend([(row, token) for row in rows])
        return claim

    def _run(self, claim: Callable[[Connection], ClaimResult], token: str, *, repeatable: bool) -> ClaimResult:
        """Run a claim, and let go what an earlier run won whose answer never came."""
        runs, heard = 0, None

        def work(connection: Connection) -> ClaimResult:
            nonlocal runs
            runs += 1
            return claim(connection)

        try:
            heard = self._database.run(work, name="claim", direct=True, repeatable=repeatable)
        finally:
            if repeatable and runs > (heard is not None):
                self._unheard.append((token, set() if heard is None else {row.id for row in heard.rows}))
        while self._unheard:
            doubtful = self._unheard.pop()
            look = partial(settle.give_back_claim, store=self._store, queue=self._queue, token=doubtful[0], but=doubtful[1])
            try:
                self._database.run(look, name="unheard", attempts=1)
            except StorageError:
                self._unheard.append(doubtful)  # the next claim tries again; else the leases end
                break
            except BaseException:
                self._unheard += [doubtful, (token, set())]  # stopped: what was just won is in nobody's hands either
                raise
        return heard

    def _judge(self, doubtful: ClaimResult, after: ClaimResult) -> int:
        """What the round after it says of one that won nothing: if there are jobs now there were jobs then, and it lost them."""
        lost = min(doubtful.limit, len(after.rows) + after.missed)
        if lost:
            self._strategy.observe(replace(doubtful, missed=lost))
            with self._database.counting as counters:
                counters.candidates += lost
                counters.missed += lost
        return lost

    def _take_out(self, connection: Connection, rows: Sequence[ClaimedRow]) -> None:
        """Delete what was claimed."""

        def change() -> dict[int, Fate]:
            return dict.fromkeys(settle.delete(connection, self._store, [(row.id, row.version) for row in rows]), Fate.COMPLETED)

        if ties := self._ties(rows):
            leave(connection, self._store, ties, change)
        else:
            change()

    def _ties(self, rows: Sequence[ClaimedRow]) -> dict[int, Tie]:
        return {row.id: tie for row in rows if (tie := tie_of(self._queue, row)) is not None}
