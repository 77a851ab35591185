"""How the claims of a fair queue choose: by turns among the groups that have due jobs."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from queue_db.concurrency.forks import reset_after_fork
from queue_db.dialects import Dialect
from queue_db.dialects.claim_sql import read_new_priorities, result_of
from queue_db.fairness import first_turn, permits
from queue_db.fairness.dialects import Ahead, FairDialect, Search, Turn
from queue_db.fairness.dialects.base import FRESH, Rows
from queue_db.fairness.rules import Rules
from queue_db.model import ClaimRequest, ClaimResult, Range, Seen
from queue_db.store import lease
from queue_db.store.base import Transaction

#: One claim in this many takes the jobs that have been due longest, so that jobs without a group are not passed over for ever.
BY_TIME_EVERY = 64

#: How many looks a claim without turns takes. Each leaves out the groups that the looks before it found at their limits.
LOOKS = 16

_Strategy = Callable[[Transaction, ClaimRequest], ClaimResult]


@lru_cache(maxsize=64)
def dialect_of(dialect: Dialect) -> FairDialect:
    """Kept, since claims keep their statements by it."""
    return FairDialect.of(dialect)


class Turns:
    """Where the turns of one queue go on, for each priority. Threads may share it."""

    def __init__(self) -> None:
        #: Whether the last claim found fewer due jobs than it wanted. Then claims need not choose.
        self.quiet = False
        #: Whether the last claim found a group for each job that it wanted, so that the next one does not look for a second.
        self.many = False
        #: Whether the last claim found jobs of one group only, as did the one before it if it looked for one job.
        self.lone = False
        #: When to try the claim of a lone group again, by the monotonic clock.
        self.lone_from = 0.0
        #: Whether the next round of a call takes turns too, since the last one has lost its candidates.
        self.again = False
        #: Whether the last claim met groups at their limits, so that the next one reads more candidates than it wants.
        self.full = False
        self.count: Callable[[], int] = itertools.count(1).__next__
        self.ahead = Ahead()
        self._of: dict[int, Turn] = {}
        self._start = ""
        self._refused: dict[str, float] = {}
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock: another thread of the parent process may have held it at the fork."""
        self._lock = threading.Lock()

    def of(self, priority: int) -> Turn:
        """Where the turns of this priority go on."""
        return self._of.get(priority) or self._of.setdefault(priority, Turn(self._start, 0))

    def new(self, ranges: Sequence[Range]) -> bool:
        """Whether this process has not yet taken a turn of one of these priorities."""
        return any(priority not in self._of for priority, _ in ranges)

    def start(self, group: str) -> None:
        """Let the first turns follow this group."""
        self._start = group

    def taken(self, rows: Sequence[tuple[int, str]], asked: Mapping[int, Turn], weights: Mapping[str, int]) -> None:
        """Go on after a claim.

        :param rows: priority and group of each job that it took.
        :param asked: where the turns were when it read them.
        """
        if len(asked) == 1 and not weights and (groups := {group for _, group in rows}) and len(groups) == len(rows):
            (priority, turn), *_ = asked.items()
            if not turn.credit:  # as below, in a fraction of the time
                self._of[priority] = Turn(max([group for group in groups if group <= turn.group] or groups), 0)
                return
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

    def passed(self, priority: int, group: str) -> None:
        """Go on after a group, although no job was taken."""
        with self._lock:
            self._of[priority] = Turn(group, 0)

    def refused_at(self, now: float) -> list[str]:
        """The groups that were at their limits a moment ago."""
        return [group for group, until in list(self._refused.items()) if until > now]

    def wait(self) -> float:
        """Seconds after which to look again at the first group that was at its limits; infinite: there was none."""
        return max(0.0, min(list(self._refused.values()), default=0.0) - time.monotonic()) if self.full else math.inf

    def refuse(self, until: Mapping[str, float]) -> None:
        """Leave these groups out until these moments of the monotonic clock."""
        now = time.monotonic()
        with self._lock:
            self._refused = {group: end for group, end in self._refused.items() if end > now} | dict(until)

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
        if not turns.new(request.ranges):
            return self._claim(tx, request, strategy)
        # The first claim of a process from a priority begins after the group at which that of the last process has ended. With a
        # start at random, many short processes would favour a group whose name is far from that of the group before.
        tx.begin()
        start = first_turn.read(tx, request.queue)
        turns.start(start.group)
        result = self._claim(tx, request, strategy)
        ends = [turns.of(priority).group for priority, _ in request.ranges]
        if start.locked and (moved := [group for group in ends if group != start.group]):
            first_turn.write(tx, request.queue, moved[-1])
        return result

    def wait(self) -> float:
        """Seconds after which a group may be below its limits again; infinite: the last claim met none at its limits."""
        return self.turns.wait()

    def _claim(self, tx: Transaction, request: ClaimRequest, strategy: _Strategy) -> ClaimResult:
        turns = self.turns
        # The first look at a priority is by turns, also if an earlier round of the same call has found the priority.
        again, turns.again = turns.again, False
        in_turns = request.ranges and (request.first or again or turns.new(request.ranges))
        by_time = not in_turns or turns.count() % BY_TIME_EVERY == 0
        if self.rules.limited:
            return self._limited(tx, request, by_time=by_time)
        if by_time or turns.quiet:
            result = strategy(tx, request)
            turns.ahead.rows.clear()  # it may have taken some of them
            short = len(result.rows) + result.missed < request.limit
            turns.quiet = short and result.seen is Seen.ALL and not result.new_priorities
            return result
        search, asked = self._search(tx, request)
        search.one_each = request.limit == 1 or turns.many
        if request.delete_on_claim:
            tx.begin()  # more statements follow in this transaction
        fair = dialect_of(tx.dialect)
        if turns.lone and fair.reads_ahead and search.one_range and time.monotonic() >= turns.lone_from:
            rows = fair.take_lone(tx, search)
            result = self._result(search, asked, rows, len(rows))
            if not rows:
                turns.lone, turns.lone_from, turns.again = False, time.monotonic() + FRESH, request.first
            return result
        rows, tried = fair.claim(tx, search)
        turns.again = request.first and len(rows) < tried
        result = self._result(search, asked, rows, tried)
        groups = {row.group_key for row in result.rows}
        turns.many = len(rows) >= request.limit and len(groups) == len(rows) and not search.weights
        turns.lone = len(groups) == 1 and (not search.one_each or groups == {turn.group for turn in search.turns})
        return result

    def _limited(self, tx: Transaction, request: ClaimRequest, *, by_time: bool) -> ClaimResult:
        """Take what the limits allow."""
        turns, now = self.turns, time.monotonic()
        tx.begin()
        search, asked = self._search(tx, request, more=permits.MORE if by_time or turns.full else 0)
        search.refused = turns.refused_at(now)
        refused: dict[str, float] = {}
        # With turns one look meets each group once. By time a group with many jobs may hide the others.
        for _ in range(1 if request.ranges else LOOKS):
            search.refused = [*search.refused, *refused]
            taken = permits.claim(tx, dialect_of(tx.dialect), self.rules, search, request.limit, by_time=by_time)
            refused |= taken.refused
            if taken.rows or not taken.refused:
                break
        turns.full = bool(refused or search.refused)
        turns.refuse({group: now + wait for group, wait in refused.items()})
        result = self._result(search, asked, taken.rows, taken.tried)
        result.refused = len(refused)
        if not (taken.rows or by_time) and taken.last is not None:
            turns.passed(*taken.last)
        if by_time:
            result.seen = Seen.ALL  # no more rounds, but for new priorities: what is left may be at its limit
            if request.ranges:
                result.new_priorities = tuple(row[0] for row in tx.fetch(search.claim.made(read_new_priorities), search.parameters))
        return result

    def _search(self, tx: Transaction, request: ClaimRequest, more: int = 0) -> tuple[Search, dict[int, Turn]]:
        text, parameters = lease.asked(tx, request, lease.HEAD)
        priorities = [parameters[f"priority_{place}"] for place in range(text.shape.ranges)]
        asked = {priority: self.turns.of(priority) for priority in priorities}
        parameters["limit"] += more
        return Search(text, parameters, [asked[priority] for priority in priorities], self.rules.weights, self.turns.ahead), asked

    def _result(self, search: Search, asked: Mapping[int, Turn], rows: Rows, tried: int) -> ClaimResult:
        """The result of a round by turns, which then go on after the jobs that it took."""
        result = result_of(search.parameters, rows, tried)
        result.window = 0
        if len(rows) < search.limit:
            result.seen = Seen.SOME if rows else Seen.NOTHING
        if grouped := [(row.priority, row.group_key) for row in result.rows if row.group_key is not None and row.priority in asked]:
            self.turns.taken(grouped, asked, search.weights)
        return result
