"""The table of a database, the same in the page and in the terminal: the throughput of each row, and what it costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from queue_db.compare.report.advice import DEFAULT
from queue_db.compare.report.ratios import between
from queue_db.compare.report.wording import NOTHING, errors, milliseconds, number, percent, repeats, unfinished, wait
from queue_db.compare.results import Bench, Row


@dataclass(frozen=True)
class Column:
    """A column with figures."""

    heading: str
    cell: Callable[[Bench, Row], str]
    least: int = 130  #: width of a terminal that has it


def problems(row: Row) -> str:
    """Return the last column: what a throughput may not stand without."""
    if row.refused is not None:
        return f"not supported: {row.refused}"
    parts = (unfinished(row), errors(row) if row.faults else None, repeats(row) if row.repeats else None)
    return "; ".join(part for part in parts if part) or "none"


def _interval(bench: Bench, row: Row) -> str:
    return "–".join(number(round(bound)) for bound in row.rate.interval) if row.rate and row.rate.interval else NOTHING


def _beside(bench: Bench, row: Row) -> str:
    default = bench.row(DEFAULT, row.batch)
    # The article's rows have another table and other checks: they are no strategies to choose from.
    ratio = None if default is row or row.family == "article" else between(row, default)
    return NOTHING if ratio is None else f"{ratio.value:.2f}"


def _displaced(bench: Bench, row: Row) -> str:
    return f"{number(row.diff.mean)} / {number(row.diff.max)}" if row.diff.histogram else NOTHING


def _claims(bench: Bench, row: Row) -> str:
    found = [run.latency for run in row.runs if run.latency]
    if not found:
        return NOTHING
    middle = (statistics.median_high(values) for values in ([one.p50 for one in found], [one.p99 for one in found]))
    return " / ".join(map(milliseconds, middle))


def _wait(bench: Bench, row: Row) -> str:
    found = next((one for one in bench.arrivals if (one.name, one.batch) == (row.name, row.batch)), None)
    if found is None or row.family != "product":
        return NOTHING
    return wait(found, "p99") + ("" if found.kept_up else " (did not keep up)")


def _cpu(bench: Bench, row: Row) -> str:
    ran = [run for run in row.runs if run.left]
    both = ([(run.client_cpu, run.left) for run in ran], [(run.server_cpu, run.left) for run in ran])
    return " / ".join(map(_per_job, both))


def _per_job(spent: Sequence[tuple[float | None, int]]) -> str:
    found = [seconds / jobs for seconds, jobs in spent if seconds is not None and math.isfinite(seconds)]
    return number(statistics.fmean(found) * 1e6) if found else NOTHING


COLUMNS = (
    Column("jobs/s", lambda _, row: number(row.rate.median) if row.rate else NOTHING, least=0),
    Column("interval", _interval, least=0),
    Column(f"÷ {DEFAULT}", _beside),
    Column("misses", lambda _, row: percent(row.miss_ratio) if row.total("candidates") else NOTHING, least=0),
    Column("displacement: mean / max", _displaced),
    Column("claim, ms: p50 / p99", _claims),
    Column("wait, ms: p99", _wait),
    Column("CPU, µs/job: clients / server", _cpu),
    Column("state­ments per job", lambda _, row: number(row.statements_per_job), least=170),
)
