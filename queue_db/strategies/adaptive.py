"""Adaptive: by version from a window, or by locks from the head, whichever costs less for each job; nothing to set.

:mod:`~queue_db.strategies.ways` compares the two. The window follows the measured share of misses: with *m* claims by others
between our read and our update, a pick from a window of *W* is lost with probability 1 − e^(−m/W), and an attempt costs K + b·W
(round trips, and one more candidate row). From the measured miss ratio *r*: m = −W·ln(1 − r), and the cheapest window is
W = (m + √(m² + 4·m·K/b)) / 2. It grows with the number of *racing* workers, not of all: with real work between claims, or with one
worker, it shrinks to 1, which is first come, first served.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from queue_db import arguments
from queue_db.concurrency import forks
from queue_db.concurrency.named import Named
from queue_db.errors import ArgumentError
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import lease
from queue_db.store.base import Transaction
from queue_db.strategies.base import named
from queue_db.strategies.optimistic import HEAD_EVERY, Pick, Slots, candidate_window, check_chance
from queue_db.strategies.ways import Choice, Way

#: Candidates over which the miss ratio is smoothed.
MEMORY = 150

#: Most candidates of one claim that count: a batch is lost or won as a whole more often than job by job. Wins without a miss are
#: taken in in groups of this size.
_MOST_AT_ONCE = 10

#: Share of the way to the best window that one claim goes; the first ones, with fewer candidates than this, go all of it.
_STEP, _FIRST = 0.25, 30

#: Keeps the logarithm above zero.
LOWEST_RATIO = 1e-4

_HIGHEST_RATIO = 0.95

# What two ways need.
_BOTH = frozenset({Capability.CONCURRENT_WRITERS, Capability.SKIP_LOCKED})

#: Each further row that a claim takes costs about as much as reading so many more candidates.
ROW_COST = 300.0


def best_window(window: float, ratio: float, cost_ratio: float) -> float:
    """The cheapest window, given the ``ratio`` of misses measured at ``window``.

    ``cost_ratio`` is K/b: the fixed cost of an attempt in units of one more candidate batch.
    """
    racing = -window * math.log(1.0 - min(max(ratio, LOWEST_RATIO), _HIGHEST_RATIO))
    return (racing + math.sqrt(racing * racing + 4.0 * racing * cost_ratio)) / 2.0


@dataclass(frozen=True)
class Usage:
    """Which ways the claims of a queue have taken, and why."""

    way: Way  #: of the latest claims
    skip_locked: int  #: calls of claim with SKIP LOCKED
    window: int  #: calls of claim from a window
    candidates: int  #: that claims in windows tried to take
    missed: int  #: candidates that other workers took first
    #: The cost of a job won from windows divided by that with SKIP LOCKED, in the latest trials; None without a trial.
    cost: float | None


@dataclass
class _Control:
    """The state of one queue."""

    #: By the size of the claims: a way can cost less for one job and more for a hundred.
    choices: dict[int, Choice] = field(default_factory=dict)
    latest: Choice | None = None
    calls: dict[Way, int] = field(default_factory=lambda: dict.fromkeys(Way, 0))
    candidates: int = 0  #: in windows
    missed: int = 0  #: of these

    window: float = 1.0
    ratio: float = 0.0  #: of misses, as it would be in this window
    seen: float = 0.0  #: candidates that the ratio rests on
    won: int = 0  #: candidates won since the last miss, not taken in yet

    def learn(self, tried: int, missed: int) -> None:
        """Update the ratio with the result of claims."""
        weight = min(tried, _MOST_AT_ONCE)
        self.seen = min(self.seen + weight, MEMORY)
        self.ratio += (missed / tried - self.ratio) * weight / self.seen

    def move(self, wanted: float, most: float) -> None:
        """Move towards the ``wanted`` window; the ratio, measured in the old one, follows the model."""
        racing = -self.window * math.log(1.0 - min(self.ratio, _HIGHEST_RATIO))
        step = _STEP if self.seen >= _FIRST else 1.0
        self.window = min(max(1.0, self.window + (wanted - self.window) * step), most)
        self.ratio = 1.0 - math.exp(-racing / self.window)


@named("adaptive")
@dataclass(eq=False)
class Adaptive:
    """A window that tunes itself, at most ``max_window`` batches wide, or SKIP LOCKED where that costs less.

    ``skip_locked``: False for windows only.

    ``cost_ratio``: K/b for a single job. Among 32 workers windows of 128 were as fast as windows of 32, so it is 3000 and more on
    PostgreSQL; half of that costs 3 % at most and keeps jobs nearer to their order.
    """

    max_window: int = 64
    cost_ratio: float = 1500.0
    rng: random.Random = field(default_factory=random.Random, repr=False)
    skip_locked: bool = True
    name: str = field(default="adaptive", init=False)
    needs: frozenset[Capability] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        arguments.whole("max_window", self.max_window, 1, 10_000)
        if arguments.number("cost_ratio", self.cost_ratio) <= 0:
            raise ArgumentError(f"cost_ratio={self.cost_ratio}: must be above 0")
        if not isinstance(self.skip_locked, bool):
            raise ArgumentError(f"skip_locked={arguments.shown(self.skip_locked)}: must be True or False")
        check_chance(self.rng)
        self._controls: Named[_Control] = Named(lambda _: _Control())
        self._slots = Slots(self.rng)
        self._turn: Callable[[], int] = itertools.count(1).__next__
        self.after_fork()
        forks.watch(self)

    def after_fork(self) -> None:
        """Another thread of the parent may have had the lock."""
        self._lock = threading.Lock()

    def window(self, queue: str) -> int:
        """The window in use for ``queue``, in batches; with SKIP LOCKED, the one of the next trial."""
        control = self._controls.get(queue)
        return 1 if control is None else max(1, round(control.window))

    def usage(self, queue: str) -> Usage | None:
        """Which ways the claims of ``queue`` have taken; None before the first, and where there is one way."""
        with self._lock:
            control = self._controls.get(queue)
            if control is None or control.latest is None:
                return None
            way, ratio = control.latest.way, control.latest.ratio
            if ratio is not None and way is Way.WINDOW:
                ratio = 1 / ratio
            calls = control.calls
            return Usage(way, calls[Way.SKIP_LOCKED], calls[Way.WINDOW], control.candidates, control.missed, ratio)

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Take the head with SKIP LOCKED; or a slot of the window, and every sixteenth time the head."""
        both = self.skip_locked and tx.store.capabilities >= _BOTH
        if both and self._way(tx.store.capabilities, request) is Way.SKIP_LOCKED:
            return lease.claim(tx, request, lease.CandidateWindow(lock=lease.Lock.SKIP, read=request.limit))
        # With one writer at a time there are no races: always the head.
        width = self.window(request.queue) if Capability.CONCURRENT_WRITERS in tx.store.capabilities else 1
        pick: Pick = "head" if self._turn() % HEAD_EVERY == 0 else "slot"
        return lease.claim(tx, request, candidate_window(pick, width, request, self.rng, self._slots))

    def _way(self, capabilities: frozenset[Capability], request: ClaimRequest) -> Way:
        """The way of a round: a whole call goes one way, so that its cost can be compared."""
        if request.locked_before is not None:
            return Way.SKIP_LOCKED if request.locked_before else Way.WINDOW
        with self._lock:
            control = self._controls[request.queue]
            size = _size(request.limit)
            choice = control.choices.get(size)
            if choice is None:
                # One statement that reads, locks and changes holds its locks shortly. Elsewhere locks need a transaction of
                # several statements, and hold up the others for as many round trips.
                shortly = Capability.UPDATE_RETURNING in capabilities
                choice = control.choices[size] = Choice(Way.SKIP_LOCKED if shortly else Way.WINDOW, self.rng)
            control.latest = choice
            # Only on the fast path is a call timed.
            way = choice.next() if request.fast_path else choice.way
            control.calls[way] += 1
            return way

    def observe(self, result: ClaimResult) -> None:
        """Follow the misses in windows, and what calls cost."""
        if not result.locked:
            self._slots.observe(result)
        found = len(result.rows) + result.missed
        if not found:
            return
        with self._lock:
            control = self._controls[result.queue]
            if not result.locked:
                self._follow(control, result)
            cost = result.cost
            if cost is not None and (choice := control.choices.get(_size(cost.limit))) is not None:
                way = Way.SKIP_LOCKED if result.locked else Way.WINDOW
                choice.learn(way, cost.seconds / cost.won if cost.won else math.inf)

    def _follow(self, control: _Control, result: ClaimResult) -> None:
        """Follow the misses with the window."""
        control.candidates += len(result.rows) + result.missed
        control.missed += result.missed
        control.won += len(result.rows)
        if not result.missed and control.won < _MOST_AT_ONCE:
            return
        control.learn(control.won + result.missed, result.missed)
        control.won = 0
        # An attempt costs its round trips and the rows that it takes; one more batch is `limit` more candidates.
        cost_ratio = (self.cost_ratio + ROW_COST * (result.limit - 1)) / result.limit
        wanted = best_window(control.window, control.ratio, cost_ratio)
        control.move(wanted, float(self.max_window))


def _size(limit: int) -> int:
    """Claims whose limits differ by less than four times are of one size."""
    return limit.bit_length() // 2
