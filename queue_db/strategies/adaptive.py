"""The adaptive strategy: claims from a window that tunes itself, or with SKIP LOCKED where measurements showed that to be faster.

No setting is needed. The size *W* of the window follows the measured miss ratio *r*, by this model:

- Between our read and our update, other workers make *m* claims. So a pick from the window is lost with probability 1 − e^(−m/W).
- An attempt costs K + b·W. K is the fixed cost of its round trips, and b is the cost of one more candidate batch.
- So the measured ratio gives m = −W·ln(1 − r), and the cheapest window is W = (m + √(m² + 4·m·K/b)) / 2.

The window grows with the number of workers that *race*, not with the number of all workers. With real work between claims, or with
one worker, the window shrinks to 1, which is first come, first served.

In a cluster with several writers a lost race costs a whole transaction, and row locks do not reach the other nodes. There the
strategy starts with a window of :data:`FIRST_WINDOW`, and does not use SKIP LOCKED.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from queue_db import arguments
from queue_db.concurrency.forks import reset_after_fork
from queue_db.concurrency.keyed_cache import MOST
from queue_db.dialects import Dialect
from queue_db.errors import ArgumentError
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import lease
from queue_db.store.base import Transaction
from queue_db.strategies.base import named
from queue_db.strategies.optimistic import HEAD_EVERY, Slots, candidate_window, check_chance

#: The number of candidates over which the miss ratio is smoothed.
MEMORY = 150

#: The most candidates of one claim that count towards the miss ratio, since a batch is often won or lost as a whole. Without a
#: miss, the ratio is updated only after this many wins.
_MOST_AT_ONCE = 10

#: One update moves the window by the part `_STEP` of the way to the best window. Until `_FIRST` candidates are counted, an update
#: moves the window all the way.
_STEP, _FIRST = 0.25, 30

#: The lowest miss ratio in the formula, so that the logarithm is not zero.
LOWEST_RATIO = 1e-4

_HIGHEST_RATIO = 0.95

#: The capabilities of databases on which both windows and SKIP LOCKED can be used.
RACES_WITH_LOCKS = frozenset({Capability.CONCURRENT_WRITERS, Capability.SKIP_LOCKED})

#: The first window of a queue in a cluster with several writers, in batches.
FIRST_WINDOW = 16

#: Taking one more row costs a claim about as much as reading this many more candidates.
ROW_COST = 300.0


def best_window(window: float, ratio: float, cost_ratio: float) -> float:
    """The cheapest window, given the ``ratio`` of misses measured at ``window``.

    ``cost_ratio`` is K/b: the fixed cost of an attempt in units of one more candidate batch.
    """
    racing = -window * math.log(1.0 - min(max(ratio, LOWEST_RATIO), _HIGHEST_RATIO))
    return (racing + math.sqrt(racing * racing + 4.0 * racing * cost_ratio)) / 2.0


@dataclass
class _Control:
    """The window of one queue."""

    window: float = 1.0
    ratio: float = 0.0  #: the miss ratio in this window
    seen: float = 0.0  #: how many candidates the ratio is based on
    won: int = 0  #: candidates won since the last miss, not counted yet


@named("adaptive")
@dataclass(eq=False)
class Adaptive:
    """A window that tunes itself, at most ``max_window`` batches wide; SKIP LOCKED for batch sizes with which it is faster.

    ``skip_locked``: whether SKIP LOCKED may be used; False: windows only.

    ``cost_ratio``: K/b for a single job. Among 32 workers windows of 128 were as fast as windows of 32, so on
    PostgreSQL K/b is 3000 or more. The default is half of that: it costs at most 3 % and keeps jobs nearer to their order.
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
        # The windows of at most MOST queues. Changes of this mapping need the lock; reads do not.
        self._controls: dict[str, _Control] = {}
        self._slots = Slots(self.rng)
        self._turn: Callable[[], int] = itertools.count(1).__next__
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock: another thread of the parent process may have held it at the fork."""
        self._lock = threading.RLock()

    def window(self, queue: str) -> int:
        """The window in use for ``queue``, in batches."""
        control = self._controls.get(queue)
        return 1 if control is None else max(1, round(control.window))

    def locks(self, dialect: Dialect, capabilities: frozenset[Capability], limit: int) -> bool:
        """Whether a call of claim for ``limit`` jobs uses SKIP LOCKED. All rounds of the call do the same."""
        pays = self.skip_locked and limit in dialect.skip_locked_pays
        return pays and capabilities >= RACES_WITH_LOCKS and Capability.SEVERAL_WRITERS not in capabilities

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Take the head with SKIP LOCKED, or a slot of the window. Without SKIP LOCKED every sixteenth claim takes the head."""
        limit = request.call_limit or request.limit
        if limit in tx.dialect.skip_locked_pays and self.locks(tx.dialect, tx.store.capabilities, limit):
            return lease.claim(tx, request, lease.HEAD_UNLOCKED)
        control = self._controls.get(request.queue)
        if control is None and Capability.SEVERAL_WRITERS in tx.store.capabilities:
            control = self._new_control(request.queue, min(FIRST_WINDOW, self.max_window))
        width = 1 if control is None else round(control.window)
        # With one writer at a time there are no races, so claims always take the head.
        if width == 1 or Capability.CONCURRENT_WRITERS not in tx.store.capabilities:
            return lease.claim(tx, request, lease.HEAD)
        if self._turn() % HEAD_EVERY == 0:
            return lease.claim(tx, request, lease.CandidateWindow(width=width))
        return lease.claim(tx, request, candidate_window("slot", width, request, self.rng, self._slots))

    def observe(self, result: ClaimResult) -> None:
        """Adapt the window to the misses."""
        if not result.window or not (result.rows or result.missed):
            return  # claims do not race for locked candidates, and a claim without candidates teaches nothing
        if result.missed:
            self._slots.observe(result)
        control = self._controls.get(result.queue) or self._new_control(result.queue)
        control.won += len(result.rows)  # without the lock: a lost count only delays the next change of the window
        if result.missed or control.won >= _MOST_AT_ONCE:
            with self._lock:
                won, control.won = control.won, 0
                if result.missed or won:
                    self._adapt(control, result, won)

    def _new_control(self, queue: str, window: float = 1.0) -> _Control:
        with self._lock:
            if len(self._controls) >= MOST:
                self._controls.pop(next(iter(self._controls)), None)
            return self._controls.setdefault(queue, _Control(window))

    def _adapt(self, control: _Control, result: ClaimResult, won: int) -> None:
        """Update the miss ratio, and move the window towards the cheapest one."""
        tried = won + result.missed
        weight = min(tried, _MOST_AT_ONCE)
        control.seen = min(control.seen + weight, MEMORY)
        control.ratio += (result.missed / tried - control.ratio) * weight / control.seen
        # K/b of a batch: each further row adds `ROW_COST` to K, and b is the cost of `limit` more candidates.
        cost_ratio = (self.cost_ratio + ROW_COST * (result.limit - 1)) / result.limit
        wanted = best_window(control.window, control.ratio, cost_ratio)
        # The same racing claims have another miss ratio in the new window. It follows from the model.
        racing = -control.window * math.log(1.0 - min(control.ratio, _HIGHEST_RATIO))
        step = _STEP if control.seen >= _FIRST else 1.0
        control.window = min(max(1.0, control.window + (wanted - control.window) * step), float(self.max_window))
        control.ratio = 1.0 - math.exp(-racing / control.window)
