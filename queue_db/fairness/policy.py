"""How the claims of a fair queue choose: by turns among the groups that have due jobs."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from queue_db.concurrency.forks import reset_after_fork
from queue_db.dialects import Dialect
from queue_db.dialects.claim_sql import result_of
from queue_db.fairness.dialects import Ahead, FairDialect, Search, Turn
from queue_db.model import ClaimedRow, ClaimRequest, ClaimResult, Seen
from queue_db.store import lease
from queue_db.store.base import Transaction

#: One claim in this many takes the jobs that have been due longest, so that jobs without a group are not passed over for ever.
BY_TIME_EVERY = 64

_Strategy = Callable[[Transaction, ClaimRequest], ClaimResult]


@lru_cache(maxsize=64)
def dialect_of(dialect: Dialect) -> FairDialect:
    """Kept, since claims keep their statements by it."""
    return FairDialect.of(dialect)


@dataclass(frozen=True, slots=True)
class Rules:
    """What people have set for the groups of one queue."""

    #: Jobs in a turn of a group; one for a group that is missing.
    weights: Mapping[str, int] = field(default_factory=dict)


class Turns:
    """Where the turns of one queue go on, for each priority. Threads may share it."""

    def __init__(self) -> None:
        #: Whether the last claim found fewer due jobs than it wanted. Then claims need not choose.
        self.quiet = False
        #: Whether the last claim found a group for each job that it wanted, so that the next one does not look for a second.
        self.many = False
        self.count: Callable[[], int] = itertools.count(1).__next__
        self.ahead = Ahead()
        self._of: dict[int, Turn] = {}
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock: another thread of the parent process may have held it at the fork."""
        self._lock = threading.Lock()

    def of(self, priority: int) -> Turn:
        """Where the turns of this priority go on. The first one is at a random group, so that processes spread."""
        turn = self._of.get(priority)
        if turn is None:
            turn = self._of[priority] = Turn("".join(random.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=2)), 0)
        return turn

    def taken(self, rows: Sequence[tuple[int, str]], asked: Mapping[int, Turn], weights: Mapping[str, int]) -> None:
        """Go on after a claim.

        :param rows: priority and group of each job that it took.
        :param asked: where the turns were when it read them.
        """
        with self._lock:
            for priority in {priority for priority, _ in rows}:
                turn = asked[priority]
                counts = Counter(group for found, group in rows if found == priority)
                # The turns go on from the last group, and begin anew after the last one of all.
                last = max(counts, key=lambda group: (not self._is_ahead(group, turn), group))
                weight = weights.get(last, 1)
                each = max(-(-number // weights.get(group, 1)) for group, number in counts.items())
                quota = each * weight if last != turn.group or turn.credit <= 0 else turn.credit + (each - 1) * weight
                self._of[priority] = Turn(last, max(0, quota - counts[last]))

    @staticmethod
    def _is_ahead(group: str, turn: Turn) -> bool:
        return group > turn.group or (group == turn.group and turn.credit > 0)


class Fair:
    """The policy of one fair queue."""

    def __init__(self, rules: Rules, turns: Turns) -> None:
        self.rules = rules
        self.turns = turns

    def claim(self, tx: Transaction, request: ClaimRequest, strategy: _Strategy) -> ClaimResult:
        """Take the first due jobs of the groups whose turn it is. The next round of the call takes any others that are due."""
        turns = self.turns
        if not request.first or turns.quiet or not request.ranges or turns.count() % BY_TIME_EVERY == 0:
            result = strategy(tx, request)
            turns.quiet = result.seen is Seen.ALL and len(result.rows) + result.missed < request.limit
            return result
        text, parameters = lease.asked(tx, request, lease.HEAD)
        priorities = [parameters[f"priority_{place}"] for place in range(text.shape.ranges)]
        asked = {priority: turns.of(priority) for priority in priorities}
        if not tx.dialect.served:
            tx.begin()
        weights = self.rules.weights
        search = Search(text, parameters, [asked[priority] for priority in priorities], weights)
        search.one_each = request.limit == 1 or turns.many
        rows, tried = dialect_of(tx.dialect).claim(tx, search, turns.ahead)
        enough = len(rows) >= request.limit
        result = result_of(parameters, rows, tried, seen=Seen.ALL if enough or rows else Seen.NOTHING)
        result.window = 0
        if rows:
            turns.many = enough and len({row.group_key for row in result.rows}) == len(rows) and not weights
            turns.taken([(row.priority, row.group_key or "") for row in result.rows], asked, self.rules.weights)
        if not enough:
            result.seen = Seen.SOME if rows else Seen.NOTHING
        return result


def group_of(row: ClaimedRow | Any) -> str:
    """The group of a job; empty if it has none."""
    return row.group_key or ""
