"""What a comparison runs, and how it reports its progress."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queue_db import arguments
from queue_db.compare.worker_pool import START_LIMIT, STOP_LIMIT, Kind
from queue_db.errors import ArgumentError

if TYPE_CHECKING:
    from queue_db.compare.results import ArrivalRow, Row

#: Larger batches get more jobs per run, so that a run lasts: from this batch on, this many times as many.
_FACTORS = ((100, 10), (10, 5))

#: Seconds. The only idle time in a run is the article's lease; a run that takes longer than this will not end.
_DEFAULT_LIMIT = 300.0

# Most turns of a strategy under a fixed arrival rate.
_TURNS = 3


@dataclass(frozen=True)
class Plan:
    """What to run.

    :param jobs: jobs per run with a batch of 1; 5 times as many with batches from 10, 10 times as many from 100.
    :param workers: workers of each run.
    :param repeat: runs per row; the rows take turns.
    :param quick: a first impression: no figure counts as a win.
    :param work_ms: duration of a job, milliseconds.
    :param clone: probability that a job enqueues another one.
    :param batches: jobs per claim, for the rows that support batches.
    :param verify: write the protocol table.
    :param lease: lease of the article's rows (its ``retry_after``), whole seconds.
    :param limit: time limit of a run, seconds.
    :param start_limit: how long the workers may prepare a run, seconds: they connect and compile their statements.
    :param stop_limit: how long they may take to stop after its end, seconds.
    :param arrivals: seconds for which each strategy is measured under a fixed arrival rate, at most three times; 0: none is.
    :param rate: that rate, jobs per second; None: a quarter of what the default strategy has processed.
    :raises ArgumentError: a value is outside its range.
    """

    strategies: tuple[str, ...] = ("product", "peers")
    jobs: int = 10_000
    workers: int = 10
    repeat: int = 3
    quick: bool = False
    work_ms: float = 0.0
    clone: float = 0.0
    batches: tuple[int, ...] = (1, 10, 100)
    verify: bool = False
    lease: float = 4.0
    limit: float = _DEFAULT_LIMIT
    start_limit: float = START_LIMIT
    stop_limit: float = STOP_LIMIT
    kind: Kind = "processes"
    arrivals: float = 0.0
    rate: float | None = None

    def __post_init__(self) -> None:
        arguments.whole("jobs", self.jobs, 1, 100_000_000)
        arguments.whole("workers", self.workers, 1, 1000)
        arguments.whole("repeat", self.repeat, 1, 1000)
        for batch in self.batches:
            arguments.whole("batch", batch, 1, 10_000)
        if not self.batches:
            raise ArgumentError("batch: give at least one number of jobs per claim")
        if not 0.0 <= self.clone < 1.0:
            raise ArgumentError(f"clone={self.clone}: must be 0 to less than 1, otherwise the jobs never end")
        if not (math.isfinite(self.work_ms) and self.work_ms >= 0):
            raise ArgumentError(f"work_ms={self.work_ms}: must be 0 or more milliseconds")
        if not 1.0 <= arguments.seconds("lease", self.lease) / 1_000_000 == int(self.lease):
            raise ArgumentError(f"lease={self.lease}: must be whole seconds, 1 or more, as in the article's table")
        if not self.strategies:
            raise ArgumentError("strategies: give at least one name")
        if self.kind not in ("processes", "threads"):
            raise ArgumentError(f"kind={self.kind!r}: must be processes or threads")
        self._check_times()

    def _check_times(self) -> None:
        for name in ("limit", "start_limit", "stop_limit"):
            arguments.seconds(name, getattr(self, name), zero=False)
        arguments.seconds("arrivals", self.arrivals)
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise ArgumentError(f"rate={self.rate}: must be more than 0 jobs per second")

    def jobs_for(self, batch: int) -> int:
        """Return the number of jobs in a run with claims of ``batch`` jobs."""
        return self.jobs * next((factor for size, factor in _FACTORS if batch >= size), 1)

    @property
    def turns(self) -> int:
        """How often each strategy is measured under a fixed arrival rate."""
        return min(self.repeat, _TURNS)

    def options(self) -> dict[str, str]:
        """Return the plan by the names of the command's options, for people and files."""
        return {
            "strategies": ",".join(self.strategies),
            "jobs": str(self.jobs),
            "workers": f"{self.workers} {self.kind}",
            "repeat": str(self.repeat),
            "quick": "yes" if self.quick else "no",
            "work-ms": f"{self.work_ms:g}",
            "clone": f"{self.clone:g}",
            "batch": ",".join(map(str, self.batches)),
            "verify": "yes" if self.verify else "no",
            "lease": f"{self.lease:g} s",
            "arrivals": f"{self.turns} × {self.arrivals:g} s" if self.arrivals else "no",
        }


class ProgressListener:
    """Receives the progress of a comparison; this one ignores it."""

    def bench_started(self, server: str, rows: int, runs: int) -> None:
        """The measurement of a database begins."""

    def run_started(self, name: str, batch: int, number: int, jobs: int) -> None:
        """A run begins."""

    def run_progress(self, left: int, seconds: float) -> None:
        """``left`` jobs have left the queue after ``seconds``."""

    def run_finished(self) -> None:
        """A run has ended."""

    def row_finished(self, row: Row, skipped: int) -> None:
        """A row has ended; ``skipped`` of its runs did not take place."""

    def arrivals_started(self, name: str, rate: float) -> None:
        """The measurement of a strategy under a fixed arrival rate begins."""

    def arrivals_finished(self, row: ArrivalRow) -> None:
        """It has ended."""
