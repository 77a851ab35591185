"""The results of a comparison as plain data, saved as JSON.

A :class:`Comparison` has one :class:`Bench` per database, a bench one :class:`Row` per contestant, a row one :class:`Run` per
repeat. Computed values are properties and are not saved.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from queue_db import __version__
from queue_db.compare.history import History
from queue_db.compare.measures import (
    Displacement,
    Latency,
    Spread,
    displacement,
    duplicates,
    miss_ratio,
)
from queue_db.errors import ArgumentError

# Seconds after the last arrival within which its queue is empty if the workers keep up.
_LATE = 0.5


@dataclass(frozen=True)
class Run:
    """One repeat of one row."""

    jobs: int  #: in the queue at the start
    added: int  #: enqueued while it ran (``--clone``)
    left: int  #: jobs that left the queue; jobs + added if the run finished
    seconds: float  #: from the start signal until the last job left the queue
    first: float | None  #: seconds from the start signal to the first execution
    executions: int  #: executions, with repeats, without jobs added later
    unique: int  #: different jobs among the executions
    duplicates: dict[int, int]  #: {executions: jobs} of the jobs executed more than once
    displacement: dict[int, int]  #: {|position − index|: executions}
    per_worker: list[int]  #: executions of each worker
    latency: Latency | None  #: of claims that won at least one job
    rounds: int
    candidates: int
    won: int
    empty: int
    lost: int  #: completions after the lease had been lost
    statements: int
    faults: dict[str, int]  #: deadlocks, serialization failures, lock timeouts, other errors
    client_cpu: float | None  #: seconds, all workers together
    server_cpu: float | None  #: seconds of the server's processes; None if they are not visible
    peak_memory: int  #: peak resident memory of the largest worker process, bytes
    #: Window of an adaptive strategy at the end, jobs, mean of the workers that claim from one.
    window: float | None = None
    skip_locked: bool | None = None  #: whether an adaptive strategy claimed with SKIP LOCKED

    @classmethod
    def of(cls, history: History, *, client_cpu: float | None, server_cpu: float | None) -> Run:
        """Compute the measures of a run."""
        order = history.order()
        windows = [note.window for note in history.notes if note.window is not None]
        return cls(
            jobs=history.jobs,
            added=history.total("added"),
            left=history.total("left"),
            seconds=history.seconds,
            first=history.first,
            executions=len(order),
            unique=len(set(order)),
            duplicates=duplicates(order),
            displacement=dict(displacement(order).histogram),
            per_worker=[len(note.jobs) for note in history.notes],
            latency=Latency.of(history.latencies),
            rounds=history.total("rounds"),
            candidates=history.total("candidates"),
            won=history.total("won"),
            empty=history.total("empty"),
            lost=history.total("lost"),
            statements=history.total("statements"),
            faults=dict(sorted(history.faults.items())),
            client_cpu=client_cpu,
            server_cpu=server_cpu,
            peak_memory=max((note.peak_memory for note in history.notes), default=0),
            window=sum(windows) / len(windows) if windows else None,
            skip_locked=next((note.skip_locked for note in history.notes if note.skip_locked is not None), None),
        )

    @property
    def finished(self) -> bool:
        """Whether every job left the queue before the time limit."""
        return self.left >= self.jobs + self.added

    @property
    def rate(self) -> float:
        """Jobs per second that left the queue."""
        return self.left / self.seconds if self.seconds > 0 else 0.0

    @property
    def miss_ratio(self) -> float:
        """Share of the candidates that another worker won."""
        return miss_ratio(self.candidates, self.won)

    @property
    def diff(self) -> Displacement:
        """The article's Diff."""
        return Displacement(self.displacement)


@dataclass(frozen=True)
class Row:
    """One contestant on one database with all its runs."""

    name: str
    family: str  #: article, product or peer
    batch: int  #: jobs per claim
    claim: str  #: how jobs are claimed, for people
    removal: str  #: how finished jobs are removed, for people
    index: str  #: which index the claim uses
    workers: int
    window: float | None = None  #: width of a fixed window, in jobs
    refused: str | None = None  #: why it is not supported on this database
    failed: str | None = None  #: the error of a worker; later runs were skipped
    configuration: dict[str, str] = field(default_factory=dict)  #: settings of a peer
    runs: list[Run] = field(default_factory=list)
    quick: bool = False  #: measured with ``--quick``: the figures are indicative, however many runs there are

    @property
    def rates(self) -> tuple[float, ...]:
        """Jobs per second of each finished run."""
        return tuple(run.rate for run in self.runs if run.finished)

    @property
    def rate(self) -> Spread | None:
        """Jobs per second over the finished runs."""
        return Spread.of(self.rates)

    @property
    def finished(self) -> bool:
        """Whether there is at least one run and every run finished."""
        return self.failed is None and bool(self.runs) and all(run.finished for run in self.runs)

    def total(self, name: str) -> int:
        """Return the sum of one field of the runs."""
        return sum(getattr(run, name) for run in self.runs)

    @property
    def repeats(self) -> int:
        """Executions beyond the first of each job, over all runs."""
        return self.total("executions") - self.total("unique")

    @property
    def faults(self) -> dict[str, int]:
        """Driver errors by kind, over all runs."""
        kinds = sorted({kind for run in self.runs for kind in run.faults})
        return {kind: sum(run.faults.get(kind, 0) for run in self.runs) for kind in kinds}

    @property
    def miss_ratio(self) -> float:
        """Share of the candidates that another worker won, over all runs."""
        return miss_ratio(self.total("candidates"), self.total("won"))

    @property
    def skip_locked(self) -> bool | None:
        """Whether an adaptive strategy claimed with SKIP LOCKED; None of others."""
        return next((run.skip_locked for run in self.runs if run.skip_locked is not None), None)

    @property
    def diff(self) -> Displacement:
        """The article's Diff over all runs."""
        together: dict[int, int] = {}
        for run in self.runs:
            for distance, count in run.displacement.items():
                together[distance] = together.get(distance, 0) + count
        return Displacement(dict(sorted(together.items())))

    @property
    def statements_per_job(self) -> float | None:
        """Statements per job that left the queue; None if they are not counted, as for peers."""
        left, statements = self.total("left"), self.total("statements")
        return statements / left if left and statements else None


@dataclass(frozen=True)
class ArrivalTurn:
    """One turn of a strategy under a fixed arrival rate."""

    jobs: int  #: that arrived
    left: int  #: that left the queue before the time limit
    seconds: float  #: from the start signal until the last of them left the queue
    pickup: Latency | None  #: from the moment at which a job was due to arrive until a worker had it
    faults: dict[str, int]  #: driver errors by kind


@dataclass(frozen=True)
class ArrivalRow:
    """One strategy of queue_db under a fixed arrival rate."""

    name: str
    batch: int
    consumers: int  #: workers that claim; one more enqueues
    arrivals: float  #: jobs per second
    refused: str | None = None  #: why it is not supported on this database
    failed: str | None = None  #: the error that ended it
    turns: list[ArrivalTurn] = field(default_factory=list)
    quick: bool = False

    @property
    def faults(self) -> dict[str, int]:
        """Driver errors by kind, over all turns."""
        kinds = sorted({kind for turn in self.turns for kind in turn.faults})
        return {kind: sum(turn.faults.get(kind, 0) for turn in self.turns) for kind in kinds}

    @property
    def kept_up(self) -> bool:
        """Whether every turn ended soon after the last job had arrived."""
        return all(turn.left >= turn.jobs and turn.seconds - turn.jobs / self.arrivals < _LATE for turn in self.turns)

    def pickup(self, which: str) -> Spread | None:
        """Seconds until a worker had the job: ``p50``, ``p99`` or ``max`` over the turns."""
        return Spread.of([getattr(turn.pickup, which) for turn in self.turns if turn.pickup is not None])


@dataclass(frozen=True)
class Bench:
    """All rows on one database."""

    url: str  #: passwords masked
    title: str  #: PostgreSQL, MySQL, MariaDB, SQLite
    server: str  #: name and version
    facts: dict[str, str]  #: durability, isolation and similar settings of the server
    nodes: int = 0  #: number of nodes of a cluster that the workers were spread over; 0: they were not spread
    rows: list[Row] = field(default_factory=list)
    arrivals: list[ArrivalRow] = field(default_factory=list)  #: under a fixed arrival rate; none with ``--no-arrivals``

    def row(self, name: str, batch: int = 1) -> Row | None:
        """Return the row of that name and batch size."""
        return next((row for row in self.rows if row.name == name and row.batch == batch), None)


@dataclass(frozen=True)
class Comparison:
    """A whole comparison."""

    plan: dict[str, str]  #: the options of the command, as given
    machine: dict[str, str]  #: cores, memory, system, Python and driver versions
    began: str  #: ISO 8601, UTC
    version: str = __version__
    benches: list[Bench] = field(default_factory=list)
    interrupted: bool = False  #: it has not come to its end: rows lack runs, or databases are missing

    def save(self, path: Path) -> None:
        """Write the comparison as JSON. A file of this name is replaced at once: it is never half written."""
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Comparison:
        """Read a file that :meth:`save` wrote.

        :raises ArgumentError: the file cannot be read or is not a comparison.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise ArgumentError(f"{path} is not a saved comparison: {error}") from error
