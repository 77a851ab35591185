"""The order in which a worker claims from its queues, and how many jobs of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# The most jobs by which a queue without due jobs may lag behind its share; the rest is forfeited.
_CREDIT = 20.0


class Turns:
    """Shares of jobs by weight: after any number of jobs each queue is within one job of its share, while all have jobs.

    Each queue has a clock that advances by ``1/weight`` for each of its jobs. The next job comes from the queue whose clock is
    furthest behind. Without weights the order is strict.
    """

    def __init__(self, queues: Sequence[str], weights: Mapping[str, int] | None) -> None:
        self._queues = list(queues)
        self._weights = weights
        self._clocks = dict.fromkeys(self._queues, 0.0)
        self._now = 0.0

    @property
    def strict(self) -> bool:
        """Whether no job of a queue may be claimed while one is due in a queue before it."""
        return self._weights is None

    def split(self, room: Mapping[str, int], free: int) -> dict[str, int]:
        """How many of the next ``free`` jobs to claim from each queue in ``room``, in the order of the claims."""
        names = [queue for queue in self._queues if queue in room]
        if self._weights is None:
            return {queue: min(room[queue], free) for queue in names}
        clocks = self._clocks
        for queue in names:
            clocks[queue] = max(clocks[queue], self._now - _CREDIT / self._weights[queue])
        wanted: dict[str, int] = {}
        for _ in range(free):
            names = [queue for queue in names if wanted.get(queue, 0) < room[queue]]
            if not names:
                break
            queue = min(names, key=clocks.__getitem__)
            self._now = max(self._now, clocks[queue])
            clocks[queue] += 1.0 / self._weights[queue]
            wanted[queue] = wanted.get(queue, 0) + 1
        return wanted

    def came(self, queue: str, wanted: int, number: int) -> None:
        """The claim of ``wanted`` jobs got only ``number``."""
        if self._weights is not None:
            self._clocks[queue] -= (wanted - number) / self._weights[queue]
