"""The figures of a bar: two sides of a run, the ratio of their medians, and whether the bar is met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from queue_db.compare.measures import Spread, miss_ratio
from queue_db.compare.results import Run

#: With fewer repeats a median is not meaningful.
FEWEST_REPEATS = 3


@dataclass(frozen=True)
class Side:
    """One side of a comparison: one figure per repeat, with its errors.

    :param errors: driver errors by kind, over all repeats.
    :param misses: share of the candidates that another worker won; None without competing workers.
    :param duplicates: executions beyond the first of each job; None if no job is executed.
    :param finished: whether every repeat finished.
    :param client_cpu: processor time of the workers, microseconds per job.
    :param server_cpu: the same for the server, if its processes are visible.
    :param skip_locked: whether an adaptive strategy claimed with SKIP LOCKED; None of others.
    """

    name: str
    unit: str
    values: list[float]
    errors: dict[str, int] = field(default_factory=dict)
    misses: float | None = None
    duplicates: int | None = None
    finished: bool = True
    client_cpu: float | None = None
    server_cpu: float | None = None
    skip_locked: bool | None = None

    @classmethod
    def of(cls, name: str, runs: Sequence[Run]) -> Side:
        """Return the jobs per second of the laboratory's runs."""
        kinds = sorted({kind for run in runs for kind in run.faults})
        candidates, won = sum(run.candidates for run in runs), sum(run.won for run in runs)
        return cls(
            name=name,
            unit="jobs/s",
            values=[run.rate for run in runs if run.finished],
            errors={kind: sum(run.faults.get(kind, 0) for run in runs) for kind in kinds},
            misses=miss_ratio(candidates, won) if candidates else None,
            duplicates=sum(run.executions - run.unique for run in runs),
            finished=all(run.finished for run in runs),
            client_cpu=_for_each_job(runs, [run.client_cpu for run in runs]),
            server_cpu=_for_each_job(runs, [run.server_cpu for run in runs]),
            skip_locked=next((run.skip_locked for run in runs if run.skip_locked is not None), None),
        )

    @property
    def per_server_second(self) -> float | None:
        """Jobs for each second of the server's processor time: clients can be added, the server is shared by all."""
        return 1e6 / self.server_cpu if self.server_cpu else None

    @property
    def spread(self) -> Spread | None:
        """Median, min and max; None if no repeat finished."""
        return Spread.of(self.values)


@dataclass(frozen=True)
class Line:
    """One line of the table.

    :param what: what is measured, for people.
    :param bound: target for the ratio (without ``theirs``, for the figure); None: no target.
    :param at_most: whether the bound is an upper one.
    :param without: kinds of errors that must not occur on the product's side.
    :param missing: why it was not measured.
    :param failed: whether the measurement failed; ``missing`` is the error.
    """

    what: str
    ours: Side | None = None
    theirs: Side | None = None
    bound: float | None = None
    at_most: bool = False
    without: tuple[str, ...] = ()
    missing: str | None = None
    failed: bool = False

    @property
    def ratio(self) -> float | None:
        """Median of ``ours`` divided by median of ``theirs``."""
        ours = self.ours.spread if self.ours else None
        theirs = self.theirs.spread if self.theirs else None
        return ours.median / theirs.median if ours and theirs and theirs.median > 0 else None

    @property
    def figure(self) -> float | None:
        """The value that is compared with the bound."""
        if self.theirs is not None:
            return self.ratio
        return self.ours.spread.median if self.ours and self.ours.spread else None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None if it was not measured or has no bound."""
        if self.failed:
            return False
        if self.bound is None or self.missing is not None or self.ours is None:
            return None
        if self.figure is None or not self.clean:
            return False
        return self.figure <= self.bound if self.at_most else self.figure >= self.bound

    @property
    def clean(self) -> bool:
        """Whether the side finished without executing a job twice."""
        side = self.ours
        return (
            side is not None and side.finished and not side.duplicates and not any(side.errors.get(kind) for kind in self.without)
        )

    def record(self) -> dict[str, Any]:
        """Return the line for JSON, with computed values."""
        return {
            "what": self.what,
            "ours": _side_record(self.ours),
            "theirs": _side_record(self.theirs),
            "ratio": self.ratio,
            "bound": self.bound,
            "bound_is": "at most" if self.at_most else "at least",
            "errors_not_allowed": list(self.without),
            "met": self.met,
            "missing": self.missing,
        }


def _for_each_job(runs: Sequence[Run], seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None and math.isfinite(one)]
    left = sum(run.left for run in runs)
    return 1e6 * sum(known) / left if left and len(known) == len(runs) else None


def _side_record(side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    spread = side.spread
    return {
        "name": side.name,
        "unit": side.unit,
        "values": side.values,
        "median": spread.median if spread else None,
        "min": spread.min if spread else None,
        "max": spread.max if spread else None,
        "errors": side.errors,
        "misses": side.misses,
        "duplicates": side.duplicates,
        "finished": side.finished,
        "client_cpu_us_per_job": side.client_cpu,
        "server_cpu_us_per_job": side.server_cpu,
        "jobs_per_s_of_server_cpu": side.per_server_second,
        "skip_locked": side.skip_locked,
    }
