"""The optimistic strategy: read a window of due jobs without locks, pick some, and take those that still have their version.

Without a window all workers would try the same first jobs, and most of them would lose. A window spreads the workers.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store import lease
from queue_db.store.base import Transaction
from queue_db.strategies.base import named

Pick = Literal["head", "slice", "slot"]
_PICKS: tuple[Pick, ...] = get_args(Pick)

#: One claim in this many takes the head, so that no job is passed over for long.
HEAD_EVERY = 16

#: The share of misses above which a thread gives up its slot, since another worker uses it.
_CROWDED = 0.3


def check_chance(rng: object) -> None:
    """Check a random number generator.

    :raises ArgumentError: ``rng`` is no ``random.Random``.
    """
    if not isinstance(rng, random.Random):
        raise ArgumentError(f"rng={arguments.shown(rng)}: must be a random.Random")


# The most queues for which a thread keeps its slots. A new slot copies the mapping, and copying a larger mapping would take longer
# than a claim.
_MOST_SLOTS = 100


class Slots:
    """The slots of threads and tasks. Each of them keeps its slot in the window of a queue until another worker uses the slot.

    A task of an event loop starts with the slots of the task that created it.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        # Each mapping is replaced, never changed, since tasks share the mapping of the task that created them.
        self._slots: ContextVar[Mapping[str, int]] = ContextVar("slots", default=MappingProxyType({}))

    def slot(self, queue: str, window: int) -> int:
        """The slot of the calling thread or task in a window of ``window`` batches."""
        slots = self._slots.get()
        slot = slots.get(queue)
        if slot is None or slot >= window:
            slot = self._rng.randrange(window)
            self._slots.set({**slots, queue: slot} if len(slots) < _MOST_SLOTS else {queue: slot})
        return slot

    def observe(self, result: ClaimResult) -> None:
        """Give up a slot in which other workers took too many candidates."""
        if result.missed > _CROWDED * (result.missed + len(result.rows)):
            self._slots.set({queue: slot for queue, slot in self._slots.get().items() if queue != result.queue})


def candidate_window(pick: Pick, width: int, request: ClaimRequest, rng: random.Random, slots: Slots) -> lease.CandidateWindow:
    """Choose the jobs to try from a window of ``width`` batches of ``request.limit`` jobs, which begins at the head of the queue.

    :param pick: ``head`` chooses the first batch. ``slice`` chooses consecutive jobs at a random offset. ``slot`` chooses one
        batch, and each thread keeps its batch until another worker uses that batch. ``slot`` has the fewest misses.
    """
    limit = request.limit
    start = 0
    if width > 1 and pick != "head":
        start = slots.slot(request.queue, width) * limit if pick == "slot" else rng.randrange((width - 1) * limit + 1)
    if start == 0:
        return lease.CandidateWindow(width=width)
    return lease.CandidateWindow(lease.Order.SLICE, read=start + limit, start=start, width=width)


@named("optimistic")
@dataclass
class Optimistic:
    """A window of fixed size: ``window`` batches. A good size is about the number of workers that race for one queue."""

    window: int = 10
    pick: Pick = "slot"
    rng: random.Random = field(default_factory=random.Random, repr=False)
    name: str = field(default="optimistic", init=False)
    needs: frozenset[Capability] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        arguments.whole("window", self.window, 1, 10_000)
        check_chance(self.rng)
        if self.pick not in _PICKS:
            raise ArgumentError(f"pick={arguments.shown(self.pick)}: must be one of {', '.join(_PICKS)}")
        self._turn: Callable[[], int] = itertools.count(1).__next__
        self._slots = Slots(self.rng)

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Take from the window; every sixteenth claim takes from the head."""
        pick: Pick = "head" if self._turn() % HEAD_EVERY == 0 else self.pick
        return lease.claim(tx, request, candidate_window(pick, self.window, request, self.rng, self._slots))

    def observe(self, result: ClaimResult) -> None:
        """Give up the slot if other workers use it. The window is fixed."""
        self._slots.observe(result)
