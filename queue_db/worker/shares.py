"""How many jobs of which queue a worker may have in hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.leased_job import LeasedJob
from queue_db.store.schema import CURSOR_LENGTH, FEED_LENGTH, QUEUE_LENGTH
from queue_db.verbs.claim import MAX_CLAIM

#: Jobs in hand at once where neither ``concurrency`` nor the queues set a number.
CONCURRENCY = 10

_MOST = 1000


@dataclass(frozen=True, slots=True)
class Shares:
    """How many jobs may be in hand at once.

    :param queues: how many of each queue, in the order of the queues.
    :param total: how many in all.
    :param ahead: how many more are claimed before a slot is free for them.
    :param weights: the share of each queue while all have jobs; None: strictly in order.
    """

    queues: Mapping[str, int]
    total: int
    ahead: int = 0
    weights: Mapping[str, int] | None = None

    @property
    def slots(self) -> int:
        """Jobs in hand at most, those claimed ahead included."""
        return self.total + self.ahead

    def urgency(self) -> Callable[[LeasedJob], tuple[int, int]]:
        """A key for the jobs in hand; the lowest begins first: by queue and priority, with weights in the order of the claims."""
        if self.weights is not None:
            return lambda job: (0, 0)
        ranks = {queue: rank for rank, queue in enumerate(self.queues)}
        return lambda job: (ranks[job.queue], job.priority)


def shares_of(
    queues: str | Sequence[str] | Mapping[str, int], concurrency: int | None, prefetch: int, weights: Mapping[str, int] | None
) -> Shares:
    """The shares that these options of a worker describe.

    :raises ArgumentError: a value is outside its allowed range.
    """
    if concurrency is not None:
        arguments.whole("concurrency", concurrency, 1, _MOST)
    arguments.whole("prefetch", prefetch, 0, MAX_CLAIM)
    if isinstance(queues, Mapping):
        most = {queue: arguments.whole(f"queues[{queue!r}]", number, 1, _MOST) for queue, number in queues.items()}
        total = sum(most.values()) if concurrency is None else concurrency
    else:
        if not isinstance(queues, str | Sequence):
            raise ArgumentError(f"queues={queues!r}: must be a queue's name, a list of names, or a mapping from names to numbers")
        names = [arguments.name("queue", queue, QUEUE_LENGTH) for queue in ([queues] if isinstance(queues, str) else queues)]
        total = CONCURRENCY if concurrency is None else concurrency
        most = dict.fromkeys(names, total)
    if not most:
        raise ArgumentError("queues is empty: name at least one")
    if weights is not None:
        _check_weights(weights, most)
    return Shares(most, min(total, _MOST), prefetch, weights)


def feed_slots(feeds: Mapping[str, int]) -> dict[str, int]:
    """How many slots each shared cursor has, by ``feed:cursor``.

    :raises ArgumentError: a value is outside its allowed range.
    """
    if not isinstance(feeds, Mapping):
        raise ArgumentError(f"feeds={arguments.shown(feeds)}: must be a mapping from feed:cursor to a number of slots")
    for name, number in feeds.items():
        feed, colon, cursor = name.rpartition(":") if isinstance(name, str) else ("", "", "")
        if not colon:
            raise ArgumentError(f"feeds: {arguments.shown(name)} must be feed:cursor, such as orders:mailers")
        arguments.name("feed", feed, FEED_LENGTH)
        arguments.name("cursor", cursor, CURSOR_LENGTH)
        arguments.whole(f"feeds[{name!r}]", number, 1, _MOST)
    return dict(feeds)


def _check_weights(weights: Mapping[str, int], queues: Mapping[str, int]) -> None:
    if not isinstance(weights, Mapping):
        raise ArgumentError(f"weights={arguments.shown(weights)}: must be a mapping from queues to numbers")
    if weights.keys() != queues.keys():
        raise ArgumentError(
            f"weights={dict(weights)!r}: must have a weight for each of {', '.join(map(repr, queues))}, and no other"
        )
    for queue, weight in weights.items():
        arguments.whole(f"weights[{queue!r}]", weight, 1)
