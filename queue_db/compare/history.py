"""The record of a run: which worker executed which job when, and how long each claim took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


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
