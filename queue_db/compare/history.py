"""The record of a run: which worker executed which job when, and how long each claim took."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Race(NamedTuple):
    """One attempt to take a job that had been read before. Times as in :class:`Notes`."""

    read: float  #: when the candidates were read
    tried: float  #: when the server began the update that takes one of them
    shown: float  #: when the update became visible to other workers
    won: bool

    @classmethod
    def timed(cls, asked: float, read: float, answered: float, *, won: bool, unflushed: bool) -> Race:
        """Estimate the server's times from the client's: when it sent the query, had the candidates, and had the update's answer.

        A query does not wait for locks, so the server is assumed to run it halfway between request and answer. The update has
        the same network delay, and may also wait for another update and for its commit. If updates are visible before they are on
        disk (``unflushed``), the update is assumed to be visible after as long a time as the query took.
        """
        way = (read - asked) / 2
        tried = read + way
        shown = max(answered - way, tried)
        return cls(asked + way, tried, min(tried + way, shown) if unflushed else shown, won)


@dataclass
class Notes:
    """One worker's own record of a run. Times are seconds of ``time.monotonic()``, which the processes of one machine share."""

    worker: int
    #: Numbers of the jobs that this worker executed, in order: 0 is the first in the queue, −1 a job added later.
    jobs: list[int] = field(default_factory=list)
    #: Start of each execution.
    times: list[float] = field(default_factory=list)
    #: Durations of the claims that won at least one job.
    latencies: list[float] = field(default_factory=list)
    #: Attempts that read candidates first and then took one.
    races: list[Race] = field(default_factory=list)
    rounds: int = 0  #: attempts of claims
    candidates: int = 0  #: jobs that attempts tried to take
    won: int = 0  #: candidates that were won
    empty: int = 0  #: claims that found nothing
    left: int = 0  #: jobs that this worker removed from the queue
    added: int = 0  #: jobs that it enqueued during the run
    lost: int = 0  #: completions after the lease had been lost
    statements: int = 0
    faults: Counter[str] = field(default_factory=Counter)  #: driver errors by kind, see ``queue_db.model.Fault``
    cpu: float = 0.0  #: processor time of the worker, seconds
    last: float = 0.0  #: when its last job left the queue
    window: float | None = None  #: an adaptive strategy's window at the end, if it claims from it
    skip_locked: bool | None = None  #: whether an adaptive strategy claimed with SKIP LOCKED
    windows: list[float] = field(default_factory=list)  #: the same during the run, if it was sampled
    peak_memory: int = 0  #: peak resident memory of the worker's process, bytes


@dataclass(frozen=True)
class History:
    """All workers' notes of one run.

    :param jobs: number of jobs in the queue at the start.
    :param began: time of the start signal.
    :param protocol: ``(job, worker)`` in the order of the protocol table, with ``--verify``.
    """

    jobs: int
    began: float
    notes: tuple[Notes, ...]
    protocol: tuple[tuple[int, int], ...] | None = None

    def order(self) -> list[int]:
        """Return the job numbers of all executions in order, over all workers: with repeats, without jobs added later."""
        if self.protocol is not None:
            return [job for job, _ in self.protocol if job >= 0]
        begun = sorted(
            (when, note.worker, index)
            for note in self.notes
            for index, (when, _) in enumerate(zip(note.times, note.jobs, strict=True))
        )
        jobs = {note.worker: note.jobs for note in self.notes}
        return [job for _, worker, index in begun if (job := jobs[worker][index]) >= 0]

    def total(self, name: str) -> int:
        """Return the sum of one field of the workers' notes."""
        return sum(getattr(note, name) for note in self.notes)

    def rivals(self) -> list[int]:
        """Return for each attempt of :attr:`Notes.races` how many claims of other workers could have taken its job.

        These are the claims that were not visible when it read its candidates and had begun before its attempt.
        """
        every = _Wins([race for note in self.notes for race in note.races])
        counts: list[int] = []
        for note in self.notes:
            own = _Wins(note.races)
            counts.extend(every.against(race) - own.against(race) for race in note.races)
        return counts

    @property
    def faults(self) -> Counter[str]:
        """Driver errors by kind, summed over the workers."""
        return sum((note.faults for note in self.notes), Counter())

    @property
    def latencies(self) -> list[float]:
        """Durations of the claims that won at least one job, sorted, seconds."""
        return sorted(seconds for note in self.notes for seconds in note.latencies)

    @property
    def first(self) -> float | None:
        """Seconds from the start signal to the first execution; None without executions."""
        firsts = [note.times[0] for note in self.notes if note.times]
        return min(firsts) - self.began if firsts else None

    @property
    def seconds(self) -> float:
        """Seconds from the start signal until the last job left the queue."""
        return max((note.last for note in self.notes if note.left), default=self.began) - self.began


class _Wins:
    """The won attempts among ``races``."""

    def __init__(self, races: Sequence[Race]) -> None:
        self._tried = sorted(race.tried for race in races if race.won)
        self._shown = sorted(race.shown for race in races if race.won)

    def against(self, race: Race) -> int:
        """Count those that began before the attempt of ``race`` and were not visible when it read its candidates."""
        # An update that was visible before the read also began before the attempt.
        return bisect_left(self._tried, race.tried) - bisect_right(self._shown, race.read)
