"""Numbers and rows as text, the same in the page, the plots and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from queue_db.compare.measures import ENOUGH, Spread
from queue_db.compare.results import ArrivalRow, Row

NOTHING = "–"

#: Load average per core above which the machine counts as busy.
LOADED = 0.5


def number(value: float | None) -> str:
    """Return a number with three significant digits or all integer digits, and commas: 12,345 · 12.3 · 0.12."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) < 100:
        value = float(f"{value:.3g}")
    if value == 0 or abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1g}"


def percent(share: float | None) -> str:
    """Return a share of 0 … 1 as a percentage."""
    if share is None or not math.isfinite(share):
        return NOTHING
    return "0 %" if share == 0 else "<0.1 %" if share < 0.001 else f"{share:.1%}".replace("%", " %")


def milliseconds(seconds: float | None) -> str:
    """Return seconds as milliseconds, without the unit."""
    return NOTHING if seconds is None else number(seconds * 1000)


def several(count: int, what: str) -> str:
    """Return ``1 deadlock`` or ``1,575 deadlocks``."""
    return f"{count:,} {what}" if count == 1 or what == "other" else f"{count:,} {what}s"


def errors(row: Row) -> str:
    """Return the driver errors of all runs by kind."""
    found = [several(count, "other error" if kind == "other" else kind) for kind, count in row.faults.items() if count]
    return ", ".join(found) or "no errors"


def repeats(row: Row) -> str:
    """Return the number of executions beyond the first of each job, in all runs."""
    return several(row.repeats, "repeated execution") if row.repeats else "no repeated executions"


def between_runs(spread: Spread | None, runs: int) -> str:
    """Return the interval of a median in words, with the number of runs."""
    if spread is None:
        return "no run finished"
    if spread.interval is None:
        return "one run" if runs == 1 else f"{runs} runs"
    low, high = (number(round(bound)) for bound in spread.interval)
    return f"{low}–{high} over {runs} runs"


def indicative(row: Row) -> bool:
    """Return whether the row's figures are only indicative: fewer than three runs, or measured with ``--quick``."""
    return row.quick or len(row.rates) < ENOUGH


def occasion(rows: Sequence[Row]) -> str:
    """Return where an indicative figure of these rows comes from."""
    fewest = min((len(row.rates) for row in rows), default=0)
    if fewest <= 1:
        return "in a single run"
    return f"in {fewest} short runs" if any(row.quick for row in rows) else f"in {fewest} runs"


def label(row: Row) -> str:
    """Return name and batch size."""
    return row.name if row.batch == 1 else f"{row.name}, batches of {row.batch}"


def caveats(rows: Sequence[Row], machine: Mapping[str, str]) -> list[str]:
    """Return warnings about the reliability of these rows' figures."""
    found = []
    fewest = min((len(row.runs) for row in rows), default=ENOUGH)
    if any(row.quick for row in rows):
        found.append("Indicative: --quick has few jobs and few runs, and any difference may be chance. Measure again without it.")
    elif fewest == 1:
        found.append(
            "Each row ran only once: the spread is unknown, and any difference may be chance. Measure again with --repeat 3."
        )
    elif fewest < ENOUGH:
        found.append(f"Indicative: only {fewest} runs per row, too few for an interval. Measure again with --repeat 3.")
    try:
        load, cores = float(machine["load before"].split()[0]), int(machine["cores"])
    except (KeyError, ValueError, IndexError):
        return found
    if load > LOADED * cores:
        found.append(
            f"This machine was busy before the comparison began (load {load:g} on {several(cores, 'core')}): "
            "the figures are too low and less reliable."
        )
    return found


def unfinished(row: Row) -> str | None:
    """Return why a row did not finish; None if it finished or is not supported."""
    if row.refused is not None or row.finished:
        return None
    if row.failed is not None:
        return f"failed: {(row.failed.strip().splitlines() or ['no message'])[-1]}"
    late = [run for run in row.runs if not run.finished]
    if not late:
        return "did not run"
    left, jobs = sum(run.left for run in late), sum(run.jobs + run.added for run in late)
    return f"did not finish: {len(late)} of {several(len(row.runs), 'run')}, {left:,} of {jobs:,} jobs left the queue"


def no_waits(row: ArrivalRow) -> str | None:
    """Return why there are no figures of a strategy under a fixed arrival rate; None if there are."""
    if row.refused is not None:
        return f"not supported: {row.refused}"
    if row.failed is not None:
        return f"failed: {(row.failed.strip().splitlines() or ['no message'])[-1]}"
    return None if row.pickup("p50") else "no job was executed"


def wait(row: ArrivalRow, which: str) -> str:
    """Return ``p50`` or ``p99`` of a job's wait, the median of the turns, or the largest (``max``), in ms."""
    found = row.pickup(which)
    return NOTHING if found is None else milliseconds(found.max if which == "max" else found.median)


def waiting(row: ArrivalRow) -> str:
    """Return how long jobs waited, in words."""
    if (missing := no_waits(row)) is not None:
        return missing
    p50, p99, most = (wait(row, which) for which in ("p50", "p99", "max"))
    return f"p50 {p50}, p99 {p99}, max {most} ms" + ("" if row.kept_up else ", did not keep up")
