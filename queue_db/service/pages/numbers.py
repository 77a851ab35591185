"""The numbers of each queue for the pages, from samples: one read for all who look within two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

from queue_db.db import QueueDB
from queue_db.model import Controls
from queue_db.monitoring.insights import controlled
from queue_db.monitoring.metrics import QueueMetrics
from queue_db.service.live.kept import Clock, Kept
from queue_db.service.pages import words

# Points of a sparkline.
MINUTES = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One queue."""

    queue: str
    oldest: float | None = None  #: seconds since its oldest due job was due
    available: int = 0
    scheduled: int = 0
    blocked: int = 0
    running: int = 0
    held: int = 0
    dead: int = 0
    controls: Controls = field(default_factory=Controls)
    came: float | None = None  #: jobs a second, in the last minute
    done: float | None = None
    failed: float | None = None  #: attempts that failed a second, in the last minute
    failures: int = 0  #: attempts that failed in the last minute, also those after which the job was dead
    attempts: int = 0  #: attempts that ended in the last minute
    died: int = 0  #: since yesterday
    #: Due and running jobs, minute by minute, oldest first; None: unknown.
    depth: tuple[float | None, ...] = ()
    #: When the jobs were counted; None: not yet.
    at: datetime | None = None
    #: The states of which there may be more jobs.
    capped: tuple[str, ...] = ()

    def count(self, *states: str) -> str:
        """The jobs in these states together, with a plus where there may be more."""
        return counted([self], *states)


def counted(lines: Iterable[Line], *states: str) -> str:
    """The jobs in these states of all queues together, with a plus where there may be more."""
    some = list(lines)
    number = words.number(sum(getattr(line, state) for line in some for state in states))
    return f"{number}+" if any(state in line.capped for line in some for state in states) else number


@dataclass(frozen=True, slots=True)
class Race:
    """What the claims of one queue cost in the last hour."""

    queue: str
    completed: int
    missed: int
    lost: int
    failed: int  #: attempts that failed and were tried again
    died: int

    @property
    def ratio(self) -> float | None:
        """Candidates lost for each one that was won, as a share of both."""
        won = self.completed + self.failed + self.died
        return self.missed / (self.missed + won) if self.missed + won else None


class Numbers:
    """The numbers of one database."""

    def __init__(self, db: QueueDB, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self.forget()

    def lines(self) -> list[Line]:
        """All queues with samples, by name."""
        return self._lines.get()

    def line(self, queue: str) -> Line:
        """One queue."""
        found = next((one for one in self.lines() if one.queue == queue), Line(queue))
        # Its controls as they are now: somebody may just have changed them here.
        return replace(found, controls=self._db.queue(queue).controls())

    def races(self) -> list[Race]:
        """The last hour of each queue in which anything was claimed."""
        hour = self._hour.get()
        names = ("completed", "missed", "lost", "failed", "died")
        found = [Race(queue, **{name: sum(getattr(row, name) for row in rows) for name in names}) for queue, rows in hour.items()]
        return [race for race in found if any(getattr(race, name) for name in names)]

    def forget(self) -> None:
        """Read again at the next call: something was changed here."""
        self._hour = Kept(self._read_hour, 10.0)
        self._died = Kept(self._read_died, 60.0)
        self._lines = Kept(self._read_lines, 2.0)

    def _read_lines(self) -> list[Line]:
        latest = self._db.metrics.latest()
        found, now = controlled(self._db), self._clock.now()
        hour, died = self._hour.get(), self._died.get()
        depth = {queue: series(rows, waiting, MINUTES, 60, now) for queue, rows in hour.items()}
        return [
            _line(one, found.get(one.queue, Controls()), hour.get(one.queue, ()), died.get(one.queue, 0), depth.get(one.queue, ()))
            for one in latest
        ]

    def _read_hour(self) -> dict[str, tuple[QueueMetrics, ...]]:
        return _by_queue(self._db.metrics.history(since=since(MINUTES, 60, self._clock.now()), width=60))

    def _read_died(self) -> dict[str, int]:
        rows = _by_queue(self._db.metrics.history(since=self._clock.now() - timedelta(days=1), width=86_400))
        return {queue: sum(row.died for row in some) for queue, some in rows.items()}


def _by_queue(rows: Sequence[QueueMetrics]) -> dict[str, tuple[QueueMetrics, ...]]:
    return {queue: tuple(some) for queue, some in groupby(rows, attrgetter("queue"))}


# What a line has from the latest sample as it is.
_SAMPLED = ("queue", "oldest", "available", "scheduled", "blocked", "running", "held", "dead", "at", "capped")


def _line(now: QueueMetrics, controls: Controls, hour: Sequence[QueueMetrics], died: int, depth: tuple[float | None, ...]) -> Line:
    seconds = now.duration or None
    failures = now.failed + now.died
    return Line(
        **{name: getattr(now, name) for name in _SAMPLED},
        controls=controls,
        came=came(now, hour),
        done=now.completed / seconds if seconds else None,
        failed=failures / seconds if seconds else None,
        failures=failures,
        attempts=now.completed + failures,
        died=died,
        depth=depth,
    )


def waiting(row: QueueMetrics) -> float:
    """Jobs that are due or running."""
    return row.available + row.running + row.held


def everything(row: QueueMetrics) -> int:
    """Live jobs."""
    return row.available + row.scheduled + row.blocked + row.running + row.held


def came(now: QueueMetrics, hour: Sequence[QueueMetrics]) -> float | None:
    """Jobs that came in a second: what left, and how much the queue has grown since a minute ago; None: it is not known."""
    before = next((row for row in reversed(hour) if (now.at - row.at).total_seconds() >= 60), None)
    if before is None or now.capped:
        return None
    passed = (now.at - before.at).total_seconds() - before.duration / 2
    left = (now.completed + now.died) / now.duration if now.duration else 0.0
    return max(0.0, left + (everything(now) - everything(before)) / max(passed, 1.0))


def since(points: int, width: float, now: datetime) -> datetime:
    """The beginning of the first of so many steps of ``width`` seconds, the last of which has ended."""
    return datetime.fromtimestamp((now.timestamp() // width - points) * width, UTC)


def series(
    rows: Sequence[QueueMetrics],
    value: Callable[[QueueMetrics], float | None],
    points: int,
    width: float,
    now: datetime,
) -> tuple[float | None, ...]:
    """Values at equal distances of ``width`` seconds up to now; None where no row is.

    The step that has not ended is left out: what has been counted in it so far would look like a fall.
    """
    first = since(points, width, now).timestamp() // width
    values: list[float | None] = [None] * points
    for row in rows:
        place = int(row.at.timestamp() // width - first)
        if 0 <= place < points:
            values[place] = value(row)
    return tuple(values) if any(one is not None for one in values) else ()
