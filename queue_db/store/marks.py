"""Where the claims of one queue start: the priorities that are in it, and below which due time there is nothing.

A claim that reads from the beginning of the index steps over every dead entry that an open old snapshot keeps there: 334 ms after a
million churned jobs, against 0.4 ms from the position where the last claim found the first job. So each process remembers, per
priority, the due time of the first job that it saw. Jobs hardly ever appear below it: enqueue, lease, retry and redrive all push
``available_at`` to now or later. Those that do (a producer's long transaction, an INSERT by hand with an old time) are found by a
*sweep*, a claim that starts from the beginning:

- the mark stays :data:`SLACK` behind the database's clock, so a transaction shorter than that is never overtaken;
- a priority of which no job has been seen for :data:`REMEMBERED` seconds is forgotten. When there is a job of it again, claims find
  it as they find any new priority. So what counts is how many are in the queue, and not how many have ever been;
- an idle worker sweeps once a second, a busy one too, unless a sweep is slow: then every ``50 ×`` its duration, at most
  :data:`LONGEST_SWEEP_INTERVAL` apart. That is the bound within which a late job is seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from queue_db.model import ClaimResult, Range

#: How far behind now the mark stays (microseconds): producers' transactions up to this long are not overtaken.
SLACK = 2_000_000

#: Seconds between two sweeps: as short as this while sweeps are cheap, …
SHORTEST_SWEEP_INTERVAL = 1.0

#: … and never longer than this.
LONGEST_SWEEP_INTERVAL = 30.0

#: A sweep may take one fiftieth of a worker's time.
_DUTY = 50

#: With more priorities than this in one queue a claim reads one plain range over all of them.
MOST_RANGES = 32

#: Seconds for which a priority is remembered without a job of it.
REMEMBERED = 10.0

#: Below every time.
BEGINNING = -(2**63)


class Marks:
    """The low-water marks of one queue in one process. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # 0 is the default priority: most queues have no other.
        self._floors: dict[int, int] = {0: BEGINNING}
        self._seen_at: dict[int, float] = {0: clock()}
        self._ranges: tuple[Range, ...] | None = None  # of the floors, until one of them moves
        self._swept_at = clock()
        self._interval = SHORTEST_SWEEP_INTERVAL

    def ranges(self, *, sweep: bool = False) -> tuple[Range, ...]:
        """Where the next claim looks, lowest priority number first; empty when there are too many priorities to keep."""
        with self._lock:
            if len(self._floors) > MOST_RANGES:
                return ()
            if sweep:
                return tuple(Range(priority, BEGINNING) for priority in sorted(self._floors))
            if self._ranges is None:
                self._ranges = tuple(Range(priority, floor) for priority, floor in sorted(self._floors.items()))
            return self._ranges

    @property
    def raised(self) -> bool:
        """Whether the next claim would start above the beginning."""
        with self._lock:
            return any(floor != BEGINNING for floor in self._floors.values())

    def sweep_due(self) -> bool:
        """Whether a claim should start from the beginning now."""
        with self._lock:
            return self._clock() - self._swept_at >= self._interval

    def learn(self, result: ClaimResult, *, now: int | None, swept: bool, seconds: float) -> None:
        """Take in what a claim saw. ``now``: the database's time at its end, microseconds, if it is known; it took ``seconds``."""
        with self._lock:
            self._ranges = None
            self._see(result.unseen)
            if now is not None:
                self._see(result.heads)
                looked_at = now - round(seconds * 1_000_000)  # it may have waited for locks since
                for priority, head in result.heads.items():
                    self._floors[priority] = min(head, looked_at - SLACK)
            if swept:
                self._see({row.priority for row in result.rows})  # not every database tells of heads
                self._sweep_again_after(seconds)

    def nothing_due(self, ranges: Sequence[Range], now: int) -> None:
        """No job was due in these ranges at ``now``, the database's time: others that ask step over no dead entries there."""
        with self._lock:
            self._ranges = None
            for known in ranges:
                if known.priority in self._floors:
                    self._floors[known.priority] = max(self._floors[known.priority], now - SLACK)

    def swept(self, seconds: float) -> None:
        """A look from the beginning took so long and found nothing due."""
        with self._lock:
            self._sweep_again_after(seconds)

    def _sweep_again_after(self, seconds: float) -> None:
        self._swept_at = self._clock()
        self._forget()
        self._interval = min(max(SHORTEST_SWEEP_INTERVAL, _DUTY * seconds), LONGEST_SWEEP_INTERVAL)

    def add(self, *priorities: int) -> None:
        """There are jobs of these priorities in the queue."""
        with self._lock:
            self._see(priorities)

    def _see(self, priorities: Iterable[int]) -> None:
        now = self._clock()
        for priority in priorities:
            self._seen_at[priority] = now
            if priority not in self._floors:
                self._floors[priority] = BEGINNING
                self._ranges = None

    def _forget(self) -> None:
        """Forget priorities of which nothing was seen for long; the last one stays, or claims would read one range over all."""
        last = max(self._seen_at, key=self._seen_at.__getitem__)
        gone = [one for one, seen_at in self._seen_at.items() if self._swept_at - seen_at > REMEMBERED and one != last]
        for priority in gone:
            del self._floors[priority], self._seen_at[priority]
            self._ranges = None
