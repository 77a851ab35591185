"""The options of a worker and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict, get_args

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.slices import slots
from queue_db.store.schema import QUEUE_LENGTH
from queue_db.verbs.claim import MAX_CLAIM
from queue_db.verbs.settle import UNKNOWN_GRACE
from queue_db.worker import resident
from queue_db.worker.interruptions import INTERRUPTIONS

#: The number of jobs in hand at once if neither ``concurrency`` nor ``queues`` sets a number.
CONCURRENCY = 10

#: The most slots of one queue and of one worker.
MOST_SLOTS = 1000

UnknownKinds = Literal["wait", "dead"]
"""What may become of jobs of a kind without a handler."""

Mode = Literal["at_least_once", "at_most_once"]
"""How often a job is delivered."""

UNKNOWN: tuple[UnknownKinds, ...] = get_args(UnknownKinds)

MODES: tuple[Mode, ...] = get_args(Mode)


class WorkerOptions(TypedDict, total=False):
    """The options of :class:`queue_db.worker.Worker` by name, for type checkers."""

    queues: str | Sequence[str] | Mapping[str, int] | None
    concurrency: int | None
    lease: float
    mode: Mode
    prefetch: int
    weights: Mapping[str, int] | None
    poll: float
    grace: float
    unknown: UnknownKinds
    unknown_grace: float
    exit_when_stuck: int | None
    max_interruptions: int
    max_jobs: int | None
    max_memory: float | None
    schedules: bool
    result_ttl: float | None
    dead_for: float | None
    dead_at_most: int | None
    feeds: Mapping[str, int]
    span: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a worker; :class:`queue_db.worker.Worker` documents them.

    :raises ArgumentError: a value is outside its allowed range.
    """

    queues: str | Sequence[str] | Mapping[str, int] | None = None
    concurrency: int | None = None
    lease: float = 60.0
    mode: Mode = "at_least_once"
    prefetch: int = 0
    weights: Mapping[str, int] | None = None
    poll: float = 0.5
    grace: float = 30.0
    unknown: UnknownKinds = "wait"
    unknown_grace: float = UNKNOWN_GRACE
    exit_when_stuck: int | None = None
    max_interruptions: int = INTERRUPTIONS
    max_jobs: int | None = None
    max_memory: float | None = None
    schedules: bool = True
    result_ttl: float | None = None
    dead_for: float | None = None
    dead_at_most: int | None = None
    #: The number of slots of each shared cursor, by ``feed:cursor``.
    feeds: Mapping[str, int] = field(default_factory=dict)
    #: The most messages that a slot claims at once.
    span: int = 100
    #: How many jobs of each queue may be in hand at once, in the order of the queues.
    limits: Mapping[str, int] = field(init=False)
    #: How many jobs of all queues may be in hand at once, without those that are claimed ahead.
    slots: int = field(init=False)

    def __post_init__(self) -> None:
        for name in ("result_ttl", "dead_for"):
            if (seconds := getattr(self, name)) is not None:
                arguments.seconds(name, seconds, zero=False)
        if self.dead_at_most is not None:
            arguments.whole("dead_at_most", self.dead_at_most, 0)
        arguments.whole("max_interruptions", self.max_interruptions, 0)
        if self.max_jobs is not None:
            arguments.whole("max_jobs", self.max_jobs, 1)
        if self.max_memory is not None:
            resident.check(self.max_memory)
        if self.unknown not in UNKNOWN:
            raise arguments.wrong("unknown", self.unknown, f": must be one of {', '.join(UNKNOWN)}")
        if self.mode not in MODES:
            raise arguments.wrong("mode", self.mode, f": must be {' or '.join(MODES)}")
        limits, total = _limits(self._queues(), self.concurrency, self.prefetch, self.weights)
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "slots", total)
        self._check_stuck(total + self.prefetch + sum(self.feeds.values()))
        if self.prefetch and self.at_most_once:
            raise ArgumentError(
                "prefetch and at_most_once exclude each other: a job claimed ahead would be lost if this process died"
            )
        for name, zero in (("lease", False), ("poll", False), ("grace", True), ("unknown_grace", True)):
            object.__setattr__(self, name, arguments.seconds(name, getattr(self, name), zero=zero) / 1_000_000)

    @property
    def names(self) -> str:
        """The queues and shared cursors, as text."""
        return ", ".join(map(repr, [*self.limits, *self.feeds]))

    @property
    def at_most_once(self) -> bool:
        """Whether jobs leave the queue when they are claimed."""
        return self.mode == "at_most_once"

    def _queues(self) -> str | Sequence[str] | Mapping[str, int]:
        """Check the feeds, and return the queues. With feeds, the default is the queues in which failed messages become jobs."""
        arguments.whole("span", self.span, 1, MAX_CLAIM)
        if not self.feeds:
            if self.queues is None:
                raise ArgumentError("queues=None: must be at least one name, unless feeds= names some")
            return self.queues
        feeds = slots("feeds")
        object.__setattr__(self, "feeds", feeds.checked(self.feeds))
        if self.at_most_once:
            raise ArgumentError("feeds and at_most_once exclude each other: a span of messages is completed after its handlers")
        return feeds.queues(self.feeds) if self.queues is None else self.queues

    def _check_stuck(self, slots: int) -> None:
        most = self.exit_when_stuck
        if most is None:
            return
        arguments.whole("exit_when_stuck", most, 1)
        if most > slots:
            never = f": this worker has {slots} slots, so that would never happen: at most {slots}"
            raise arguments.wrong("exit_when_stuck", most, never)


def _limits(
    queues: str | Sequence[str] | Mapping[str, int], concurrency: int | None, prefetch: int, weights: Mapping[str, int] | None
) -> tuple[dict[str, int], int]:
    """How many jobs of each queue, and of all together, may be in hand at once.

    :raises ArgumentError: a value is outside its allowed range.
    """
    if concurrency is not None:
        arguments.whole("concurrency", concurrency, 1, MOST_SLOTS)
    arguments.whole("prefetch", prefetch, 0, MAX_CLAIM)
    if not isinstance(queues, str | Sequence | Mapping):
        raise ArgumentError(f"queues={queues!r}: must be a queue's name, a list of names, or a mapping from names to numbers")
    names = [arguments.name("queue", queue, QUEUE_LENGTH) for queue in ([queues] if isinstance(queues, str) else queues)]
    if isinstance(queues, Mapping):
        most = {
            name: arguments.whole(f"queues[{name!r}]", number, 1, MOST_SLOTS)
            for name, number in zip(names, queues.values(), strict=True)
        }
        # More slots than the queues may fill would stay empty.
        total = min(sum(most.values()), MOST_SLOTS if concurrency is None else concurrency)
    else:
        total = CONCURRENCY if concurrency is None else concurrency
        most = dict.fromkeys(names, total)
    if not most:
        raise ArgumentError("queues is empty: name at least one")
    if weights is not None:
        _check_weights(weights, most)
    return most, min(total, MOST_SLOTS)


def _check_weights(weights: Mapping[str, int], queues: Mapping[str, int]) -> None:
    if not isinstance(weights, Mapping):
        raise ArgumentError(f"weights={arguments.shown(weights)}: must be a mapping from queues to numbers")
    if weights.keys() != queues.keys():
        raise ArgumentError(
            f"weights={dict(weights)!r}: must have a weight for each of {', '.join(map(repr, queues))}, and no other"
        )
    for queue, weight in weights.items():
        arguments.whole(f"weights[{queue!r}]", weight, 1)
