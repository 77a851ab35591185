"""The results of a comparison, as they are saved: plain data, JSON in and out.

A :class:`Comparison` holds one :class:`Bench` for each database, a bench one :class:`Row` for each contestant, a row one
:class:`Run` for each repeat. What can be computed from these is a property and is not saved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from queue_db import __version__
from queue_db.compare import theory
from queue_db.compare.history import History
from queue_db.compare.measures import (
    Displacement,
    Latency,
    Spread,
    attempts_per_claim,
    displacement,
    duplicates,
    miss_ratio,
)
from queue_db.errors import ArgumentError


@dataclass(frozen=True)
class Run:
    """One repeat of one row."""

    jobs: int  #: in the queue at the start
    added: int  #: enqueued while it ran (``--clone``)
    left: int  #: jobs that left the queue; jobs + added when it finished
    seconds: float  #: from letting the workers go until the last job had left
    first: float | None  #: seconds until the first job was begun
    executions: int  #: jobs begun, with repeats, without those added later
    unique: int  #: different jobs among them
    duplicates: dict[int, int]  #: {executions: jobs} of the jobs executed more than once
    displacement: dict[int, int]  #: {|position − index|: executions}
    per_worker: list[int]  #: executions of each worker
    latency: Latency | None  #: of claims that won something
    rounds: int
    candidates: int
    won: int
    empty: int
    lost: int  #: settles that came too late
    statements: int
    faults: dict[str, int]  #: deadlocks, serialization failures, lock timeouts, other errors
    client_cpu: float | None  #: seconds, all workers together
    server_cpu: float | None  #: seconds of the server's processes; None where they cannot be seen from here
    peak_memory: int  #: bytes, of the largest worker process
    window: float | None = None  #: an adaptive strategy's window at the end, in jobs, mean of the workers
    #: The asynchronous model's share of misses, from the rivals counted in each attempt; None without a window or such counts.
    predicted_miss: float | None = None

    @classmethod
    def of(cls, history: History, *, window: float | None, client_cpu: float | None, server_cpu: float | None) -> Run:
        """The measures of a run. ``window``: the width of the row's window, in jobs, if one of it is picked at random."""
        order = history.order()
        rivals = history.rivals()
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
            predicted_miss=(
                sum(theory.miss(count, window) for count in rivals) / len(rivals) if window is not None and rivals else None
            ),
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
        """Share of the tried jobs that somebody else was faster at."""
        return miss_ratio(self.candidates, self.won)

    @property
    def diff(self) -> Displacement:
        """The article's Diff."""
        return Displacement(self.displacement)


@dataclass(frozen=True)
class Row:
    """One contestant on one database, with all its repeats."""

    name: str
    family: str  #: article, product or peer
    batch: int  #: jobs per claim
    claim: str  #: how jobs are won, in words
    removal: str  #: how finished jobs leave
    index: str  #: which index the claim uses
    workers: int
    window: float | None = None  #: width of a fixed window, in jobs
    pick: str | None = None  #: how a job is drawn from it: head, uniform, geometric or slot
    refused: str | None = None  #: why it did not run here
    failed: str | None = None  #: what a worker said when it could not go on; the runs after that were left out
    configuration: dict[str, str] = field(default_factory=dict)  #: a peer's settings, as its own documents advise
    runs: list[Run] = field(default_factory=list)

    @property
    def rate(self) -> Spread | None:
        """Jobs per second over the finished runs."""
        return Spread.of([run.rate for run in self.runs if run.finished])

    @property
    def finished(self) -> bool:
        """Whether there is a run and every run came to its end."""
        return self.failed is None and bool(self.runs) and all(run.finished for run in self.runs)

    def total(self, name: str) -> int:
        """The sum of one of the runs' numbers."""
        return sum(getattr(run, name) for run in self.runs)

    @property
    def repeats(self) -> int:
        """Executions beyond the first of each job, all runs together."""
        return self.total("executions") - self.total("unique")

    @property
    def faults(self) -> dict[str, int]:
        """Errors of the driver by kind, all runs together."""
        kinds = sorted({kind for run in self.runs for kind in run.faults})
        return {kind: sum(run.faults.get(kind, 0) for run in self.runs) for kind in kinds}

    @property
    def miss_ratio(self) -> float:
        """Share of the tried jobs that somebody else was faster at, all runs together."""
        return miss_ratio(self.total("candidates"), self.total("won"))

    @property
    def attempts_per_claim(self) -> float | None:
        """Jobs tried for each job won."""
        return attempts_per_claim(self.total("candidates"), self.total("won"))

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
        """Round trips for each job that left; None where nobody counts them, as in peers."""
        left, statements = self.total("left"), self.total("statements")
        return statements / left if left and statements else None


@dataclass(frozen=True)
class Bench:
    """All rows on one database."""

    url: str  #: passwords masked
    title: str  #: PostgreSQL, MySQL, MariaDB, SQLite
    server: str  #: name and version
    facts: dict[str, str]  #: durability, isolation and the like, as the server tells them
    rows: list[Row] = field(default_factory=list)

    def row(self, name: str, batch: int = 1) -> Row | None:
        """The row of that name and batch."""
        return next((row for row in self.rows if row.name == name and row.batch == batch), None)


@dataclass(frozen=True)
class Comparison:
    """A whole comparison."""

    plan: dict[str, str]  #: the options of the command, as given
    machine: dict[str, str]  #: cores, memory, system, Python and driver versions
    began: str  #: ISO 8601, UTC
    version: str = __version__
    benches: list[Bench] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> Comparison:
        """Read what :meth:`save` wrote.

        :raises ArgumentError: when the file is no such thing.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise ArgumentError(f"cannot read {path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise ArgumentError(f"{path} is not a saved comparison: {error}") from error
