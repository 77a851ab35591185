"""The table of a database, the same in the page and in the terminal: the throughput of each row, and what it costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from queue_db.compare.report.advice import DEFAULT
from queue_db.compare.report.ratios import between
from queue_db.compare.report.wording import NOTHING, errors, known, milliseconds, number, percent, repeats, unfinished, wait
from queue_db.compare.results import Bench, Row, Run


@dataclass(frozen=True)
class Column:
    """A column with figures."""

    heading: str
    cell: Callable[[Bench, Row], str]
    wide: bool = True  #: whether only a wide terminal has it


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


def _cpu(seconds: Callable[[Run], float | None]) -> Callable[[Bench, Row], str]:
    def cell(bench: Bench, row: Row) -> str:
        spent = [value / run.left for run in row.runs if run.left and (value := seconds(run)) is not None and known(value)]
        return number(statistics.fmean(spent) * 1e6) if spent else NOTHING

    return cell


COLUMNS = (
    Column("jobs/s", lambda _, row: number(row.rate.median) if row.rate else NOTHING, wide=False),
    Column("interval", _interval, wide=False),
    Column(f"÷ {DEFAULT}", _beside),
    Column("misses", lambda _, row: percent(row.miss_ratio) if row.total("candidates") else NOTHING, wide=False),
    Column("displacement: mean / max", _displaced),
    Column("claim, ms: p50 / p99", _claims),
    Column("wait, ms: p99", _wait),
    Column("CPU, µs/job: clients", _cpu(lambda run: run.client_cpu)),
    Column("CPU, µs/job: server", _cpu(lambda run: run.server_cpu)),
    Column("state­ments per job", lambda _, row: number(row.statements_per_job)),
)
