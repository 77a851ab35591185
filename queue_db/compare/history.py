"""What a run leaves behind: who worked on which job when, and what each claim took. Plain lists: hand-made ones test well."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Race(NamedTuple):
    """One attempt to take a job that was read before. Times as in :class:`Notes`."""

    read: float  #: when the candidates were read
    tried: float  #: when the server came to the change that takes one of them
    shown: float  #: when everybody could see that it was taken
    won: bool

    @classmethod
    def timed(cls, asked: float, read: float, answered: float, *, won: bool, unflushed: bool) -> Race:
        """From what a worker sees: it asked for candidates, had read them, changed one at once, and got the answer.

        A reading waits for nobody: the server did it halfway between question and answer. The way there and back is as long for the
        change, which may wait for another's and for its own commit in between. Where others see it before it is on the disk
        (``unflushed``), they are taken to when it has been worked on for as long as that; nothing tells from outside.
        """
        way = (read - asked) / 2
        tried = read + way
        shown = max(answered - way, tried)
        return cls(asked + way, tried, min(tried + way, shown) if unflushed else shown, won)


@dataclass
class Notes:
    """One worker's own record of a run. Times are seconds of ``time.monotonic()``, which the processes of one machine share."""

    worker: int
    #: Jobs in the order in which this worker began to work on them, by number: 0 is the first in the queue, −1 one added later.
    jobs: list[int] = field(default_factory=list)
    #: When it began each of them.
    times: list[float] = field(default_factory=list)
    #: How long each claim took that won something.
    latencies: list[float] = field(default_factory=list)
    #: Each attempt that read first and took then.
    races: list[Race] = field(default_factory=list)
    rounds: int = 0  #: attempts: candidates read and taken once
    candidates: int = 0  #: jobs that an attempt tried to take
    won: int = 0  #: candidates that it got
    empty: int = 0  #: claims that found nothing
    left: int = 0  #: jobs that left the queue by this worker's doing
    added: int = 0  #: jobs that it enqueued while it worked
    lost: int = 0  #: settles that came too late
    statements: int = 0
    faults: Counter[str] = field(default_factory=Counter)  #: errors of the driver by kind: see ``queue_db.model.Fault``
    cpu: float = 0.0  #: seconds of the worker's process
    last: float = 0.0  #: when its last job left
    window: float | None = None  #: an adaptive strategy's window at the end
    windows: list[float] = field(default_factory=list)  #: the same in the course of the run, where somebody looked
    peak_memory: int = 0  #: bytes, resident, of the worker's process


@dataclass(frozen=True)
class History:
    """All workers' notes of one run.

    :param jobs: how many were in the queue at the start.
    :param began: when the workers were let go.
    :param protocol: the jobs in the order of the protocol table, where one was written (``--verify``).
    """

    jobs: int
    began: float
    notes: tuple[Notes, ...]
    protocol: tuple[tuple[int, int], ...] | None = None

    def order(self) -> list[int]:
        """Numbers of the jobs in the order in which they were begun, over all workers; with repeats, without jobs added later."""
        if self.protocol is not None:
            return [job for job, _ in self.protocol if job >= 0]
        begun = sorted(
            (when, note.worker, place)
            for note in self.notes
            for place, (when, _) in enumerate(zip(note.times, note.jobs, strict=True))
        )
        jobs = {note.worker: note.jobs for note in self.notes}
        return [job for _, worker, place in begun if (job := jobs[worker][place]) >= 0]

    def total(self, name: str) -> int:
        """The sum of one of the workers' numbers."""
        return sum(getattr(note, name) for note in self.notes)

    def rivals(self) -> list[int]:
        """For each attempt of :attr:`Notes.races`: how many claims by others could take its job from it.

        Those that nobody could see yet when it read, and that had begun before it tried: one that is being committed counts.
        """
        every = _Wins([race for note in self.notes for race in note.races])
        counts: list[int] = []
        for note in self.notes:
            own = _Wins(note.races)
            counts.extend(every.against(race) - own.against(race) for race in note.races)
        return counts

    @property
    def faults(self) -> Counter[str]:
        """Errors of the drivers, all workers together."""
        return sum((note.faults for note in self.notes), Counter())

    @property
    def latencies(self) -> list[float]:
        """Seconds of each claim that won something, sorted."""
        return sorted(seconds for note in self.notes for seconds in note.latencies)

    @property
    def first(self) -> float | None:
        """Seconds until the first job was begun; None if none was."""
        firsts = [note.times[0] for note in self.notes if note.times]
        return min(firsts) - self.began if firsts else None

    @property
    def seconds(self) -> float:
        """From letting the workers go until the last job had left."""
        return max((note.last for note in self.notes if note.left), default=self.began) - self.began


class _Wins:
    """The attempts among ``races`` that were won."""

    def __init__(self, races: Sequence[Race]) -> None:
        self._tried = sorted(race.tried for race in races if race.won)
        self._shown = sorted(race.shown for race in races if race.won)

    def against(self, race: Race) -> int:
        """How many of them had begun before ``race`` tried, and were not there for all to see when it read."""
        # What was shown before the reading had begun before the trying.
        return bisect_left(self._tried, race.tried) - bisect_right(self._shown, race.read)
