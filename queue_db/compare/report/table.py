"""The full table of a database: one line per row, a group of columns per measure, predictions next to measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from queue_db.compare import theory
from queue_db.compare.measures import Latency
from queue_db.compare.report.findings import predicted_miss
from queue_db.compare.report.misses import slots
from queue_db.compare.report.wording import NOTHING, known, mebibytes, milliseconds, number, percent
from queue_db.compare.results import Row, Run


@dataclass(frozen=True)
class Group:
    """Columns with a common heading."""

    heading: str
    columns: tuple[tuple[str, Callable[[Row], str]], ...]


def lock_step(row: Row) -> float | None:
    """Return the predicted share of misses in lock-step; None without a window."""
    width = slots(row)
    return None if width is None else theory.lock_step_miss(width, row.workers)


def window(row: Row) -> float | None:
    """Return the width of the window in jobs; for adaptive at the end of the run."""
    width = slots(row)
    return None if width is None else width * row.batch


def _mean_of(row: Row, value: Callable[[Run], float | None]) -> float | None:
    values = [found for run in row.runs if (found := value(run)) is not None and known(found)]
    return sum(values) / len(values) if values else None


def _rate(which: str) -> Callable[[Row], str]:
    return lambda row: number(getattr(row.rate, which)) if row.rate else NOTHING


def _interval(row: Row) -> str:
    return " – ".join(map(number, row.rate.interval)) if row.rate and row.rate.interval else NOTHING


def _fault(kind: str) -> Callable[[Row], str]:
    return lambda row: number(row.faults.get(kind, 0))


def _latency(which: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found: list[Latency] = [run.latency for run in row.runs if run.latency]
        values = sorted(float(getattr(one, which)) for one in found)
        if not values:
            return NOTHING
        return milliseconds(values[-1] if which == "max" else values[len(values) // 2])

    return cell


def _per_job(seconds: Callable[[Run], float | None]) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        return milliseconds(
            _mean_of(row, lambda run: None if (spent := seconds(run)) is None or not run.left else spent / run.left)
        )

    return cell


def _uniform(formula: Callable[[Row, float], float]) -> Callable[[Row], str]:
    """Return a cell with a closed formula for uniform picks; it does not hold for geometric ones."""

    def cell(row: Row) -> str:
        width = window(row)
        return NOTHING if width is None or "geometric" in row.claim else number(formula(row, width))

    return cell


def _per_worker(row: Row) -> str:
    counts = [jobs for run in row.runs for jobs in run.per_worker]
    return f"{min(counts):,} – {max(counts):,}" if counts else NOTHING


def _duplicates(row: Row) -> str:
    return number(sum(sum(run.duplicates.values()) for run in row.runs))


def _most(row: Row) -> str:
    most = max((times for run in row.runs for times in run.duplicates), default=1 if row.total("executions") else 0)
    return number(most)


def _other(row: Row) -> str:
    named = {"deadlock", "serialization failure", "lock timeout"}
    return number(sum(count for kind, count in row.faults.items() if kind not in named))


GROUPS: tuple[Group, ...] = (
    Group(
        "jobs/s of the finished runs",
        (
            *((which, _rate(which)) for which in ("mean", "sd", "min", "median", "max")),
            ("interval of the median", _interval),
        ),
    ),
    Group(
        "executions, all runs",
        (
            ("all", lambda row: number(row.total("executions"))),
            ("unique", lambda row: number(row.total("unique"))),
            ("jobs executed repeatedly", _duplicates),
            ("of one job, max", _most),
        ),
    ),
    Group(
        "errors, all runs",
        (
            ("dead­locks", _fault("deadlock")),
            ("seriali­zation", _fault("serialization failure")),
            ("lock timeouts", _fault("lock timeout")),
            ("other", _other),
            ("lost leases", lambda row: number(row.total("lost"))),
        ),
    ),
    Group(
        "misses",
        (
            ("measured", lambda row: percent(row.miss_ratio) if row.total("candidates") else NOTHING),
            ("model, async.", lambda row: percent(predicted_miss(row))),
            ("model, lock-step", lambda row: percent(lock_step(row))),
            ("attempts per claim", lambda row: number(row.attempts_per_claim)),
        ),
    ),
    Group(
        "displacement, positions",
        (
            ("mean", lambda row: number(row.diff.mean) if row.diff.histogram else NOTHING),
            ("model", _uniform(lambda row, width: theory.mean_displacement(width))),
            ("p99", lambda row: number(row.diff.quantile(0.99)) if row.diff.histogram else NOTHING),
            ("largest", lambda row: number(row.diff.max) if row.diff.histogram else NOTHING),
            ("model", _uniform(lambda row, width: max(0.0, round(theory.largest_displacement(width, row.total("executions")))))),
        ),
    ),
    Group("claim latency, ms", (("p50", _latency("p50")), ("p99", _latency("p99")), ("max", _latency("max")))),
    Group("CPU, ms/job", (("clients", _per_job(lambda run: run.client_cpu)), ("server", _per_job(lambda run: run.server_cpu)))),
    Group(
        "",
        (
            ("state­ments per job", lambda row: number(row.statements_per_job)),
            ("first job after, ms", lambda row: milliseconds(_mean_of(row, lambda run: run.first))),
            ("jobs per worker, min – max", _per_worker),
            ("peak memory of a worker, MiB", lambda row: mebibytes(max((run.peak_memory for run in row.runs), default=0))),
        ),
    ),
)


def cells(row: Row) -> list[str]:
    """Return one text per column."""
    return [cell(row) for group in GROUPS for _, cell in group.columns]


def headings(groups: Sequence[Group] = GROUPS) -> list[tuple[str, int]]:
    """Return each group's heading and its number of columns."""
    return [(group.heading, len(group.columns)) for group in groups]
