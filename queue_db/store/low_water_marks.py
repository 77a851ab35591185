"""Low-water marks: for each priority of one queue, the due time below which claims need not read.

A claim that reads from the beginning of the index steps over every dead index entry that an old open snapshot keeps there. After a
million jobs have come and gone, that takes 334 ms. A claim that starts at the due time of the first job that the last claim saw
takes 0.4 ms. So each process remembers this due time for each priority. It is the mark.

Jobs hardly ever appear below the mark, since enqueue, lease, retry and redrive all set ``available_at`` to now or later. The
exceptions are a producer's long transaction and an INSERT by hand with an old time. A *rescan*, which is a claim that starts at the
beginning, finds these jobs.

- The mark stays :data:`SLACK` behind the database's clock, so that claims do not miss jobs of transactions shorter than ``SLACK``.
- A priority without a job for :data:`REMEMBERED` seconds is dropped, so that only the priorities in use cost time. Claims find the
  next job of a dropped priority as they find a new priority.
- A worker rescans once a second, idle or busy. After a slow rescan it waits for ``50 ×`` the duration of this rescan, at most
  :data:`LONGEST_RESCAN_INTERVAL`. So the next rescan finds a late job within this interval.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from queue_db.model import ClaimResult, Range

#: Microseconds by which the mark stays behind the current time. Only a rescan finds the jobs of longer transactions.
SLACK = 2_000_000

#: Seconds between two rescans while rescans are cheap.
SHORTEST_RESCAN_INTERVAL = 1.0

#: The most seconds between two rescans.
LONGEST_RESCAN_INTERVAL = 30.0

# The pause after a rescan is this many times its duration, within the two limits above. So rescans of up to 0.6 s take at most
# one fiftieth of a worker's time.
_DUTY = 50

#: The most priorities of a queue that a claim reads one by one. If there are more, the claim reads one range over all priorities,
#: without marks.
MOST_RANGES = 32

#: Seconds for which a priority without a job is remembered.
REMEMBERED = 10.0

#: A time earlier than every due time.
BEGINNING = -(2**63)


class LowWaterMarks:
    """The low-water marks of one queue in one process. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The lock is reentrant, like all locks of verbs: a signal handler may call a verb while its thread holds the lock.
        self._lock = threading.RLock()
        # Begin with 0, the default priority. Most queues have only this one.
        self._floors: dict[int, int] = {0: BEGINNING}
        self._seen_at: dict[int, float] = {0: clock()}
        self._rescanned_at = clock()
        self._interval = SHORTEST_RESCAN_INTERVAL

    def ranges(self, rescan: bool = False) -> tuple[Range, ...]:
        """The ranges of the next claim, lowest priority number first; empty with more than :data:`MOST_RANGES` priorities."""
        floors = self._floors.copy()  # needs no lock: it is atomic
        if len(floors) > MOST_RANGES:
            return ()
        return tuple(sorted(dict.fromkeys(floors, BEGINNING).items() if rescan else floors.items()))

    @property
    def raised(self) -> bool:
        """Whether the mark of any priority is above the beginning."""
        with self._lock:
            return any(floor != BEGINNING for floor in list(self._floors.values()))

    def rescan_due(self) -> bool:
        """Whether a claim should start from the beginning now."""
        return self._clock() - self._rescanned_at >= self._interval  # needs no lock: a wrong answer only shifts a rescan

    def learn(self, result: ClaimResult, now: int | None, rescanned: bool, seconds: float) -> None:
        """Update the marks from the result of a claim.

        :param now: the database's time at the end of the claim, in microseconds; None: it is not known.
        :param rescanned: the claim was a rescan.
        :param seconds: the duration of the claim.
        """
        with self._lock:
            if result.new_priorities:
                self._see(result.new_priorities)
            if now is not None:
                seen_at = self._clock()
                looked_at = now - round(seconds * 1_000_000)  # the start of the claim, which may have waited for locks
                for priority, head in result.min_due.items():
                    self._seen_at[priority] = seen_at
                    self._floors[priority] = min(head, looked_at - SLACK)
            if rescanned:
                self._see({row.priority for row in result.rows})  # not every dialect returns min_due
                self._rescan_again_after(seconds)

    def nothing_due(self, ranges: Sequence[Range], now: int) -> None:
        """Raise the marks, because no job was due in ``ranges`` at ``now``, the database's time."""
        with self._lock:
            for priority, _ in ranges:
                floor = self._floors.get(priority)
                if floor is not None:
                    self._floors[priority] = max(floor, now - SLACK)

    def rescanned(self, seconds: float) -> None:
        """Record a rescan that took ``seconds`` and found no due job."""
        with self._lock:
            self._rescan_again_after(seconds)

    def _rescan_again_after(self, seconds: float) -> None:
        self._rescanned_at = self._clock()
        self._drop_old()
        self._interval = min(max(SHORTEST_RESCAN_INTERVAL, _DUTY * seconds), LONGEST_RESCAN_INTERVAL)

    def add(self, *priorities: int) -> None:
        """Remember that the queue has jobs of these priorities."""
        with self._lock:
            self._see(priorities)

    def _see(self, priorities: Iterable[int]) -> None:
        now = self._clock()
        for priority in priorities:
            self._seen_at[priority] = now
            if priority not in self._floors:
                self._floors[priority] = BEGINNING

    def _drop_old(self) -> None:
        """Drop priorities without a job for :data:`REMEMBERED` seconds. Keep the latest: a claim needs at least one range."""
        last = max(self._seen_at, key=self._seen_at.__getitem__)
        long_ago = self._rescanned_at - REMEMBERED
        for priority in [known for known, seen_at in list(self._seen_at.items()) if seen_at < long_ago and known != last]:
            self._floors.pop(priority, None)
            self._seen_at.pop(priority, None)
