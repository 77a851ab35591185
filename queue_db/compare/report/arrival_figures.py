"""The waits under a fixed arrival rate as text, the same in the page, the plot and the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from queue_db.compare.measures import ENOUGH, Spread
from queue_db.compare.report.advice import AT_MOST_ONCE
from queue_db.compare.report.wording import NOTHING, milliseconds, several
from queue_db.compare.results import ArrivalRow, Bench

#: Headings of the table, after the name.
COLUMNS = ("p50, ms", "p99, ms", "max, ms", "turns", "kept up", "errors")


@dataclass(frozen=True)
class ArrivalLine:
    """A line of the table."""

    row: ArrivalRow
    cells: list[str]
    problem: str | None  #: why there are no figures


def lines(bench: Bench) -> list[ArrivalLine]:
    """Return the table."""
    return [ArrivalLine(row, _cells(row), problem(row)) for row in bench.arrivals]


def problem(row: ArrivalRow) -> str | None:
    """Return why there are no figures; None if there are."""
    if row.refused is not None:
        return f"not supported: {row.refused}"
    if row.failed is not None:
        return f"failed: {(row.failed.strip().splitlines() or ['no message'])[-1]}"
    return None if row.pickup("p50") else "no job was executed"


def waiting(row: ArrivalRow) -> str:
    """Return the wait of a row in words."""
    if (missing := problem(row)) is not None:
        return missing
    p50, p99, most = (_ms(row, which) for which in ("p50", "p99", "max"))
    return f"p50 {p50}, p99 {p99}, max {most} ms" + ("" if row.kept_up else ", did not keep up")


def finding(bench: Bench) -> str | None:
    """Return the shortest waits in words; None if nothing was measured."""
    rows = [row for row in bench.arrivals if problem(row) is None and row.kept_up]
    if not rows:
        return None
    # The one that may lose jobs is not named first, however short its waits.
    first = min(rows, key=lambda row: (row.name == AT_MOST_ONCE, _p99(row)))
    some = f"{first.arrivals:,.0f} jobs/s arrive and {claimers(first)}"
    indication = "Indicative: w" if weak(first) else "W"
    others = ", ".join(f"{row.name} {_ms(row, 'p99')}" for row in sorted(rows, key=_p99) if row is not first)
    return f"{indication}hen {some}, 99 % of the jobs wait at most {_ms(first, 'p99')} ms with {first.name}" + (
        f" ({others})." if others else "."
    )


def weak(row: ArrivalRow) -> bool:
    """Return whether the row's figures are only indicative."""
    return row.quick or len(row.turns) < ENOUGH


def claimers(row: ArrivalRow) -> str:
    """Return ``1 worker claims`` or ``9 workers claim``."""
    return f"{several(row.consumers, 'worker')} {'claims' if row.consumers == 1 else 'claim'}"


def _p99(row: ArrivalRow) -> float:
    found: Spread | None = row.pickup("p99")
    return found.median if found else float("inf")


def _ms(row: ArrivalRow, which: str) -> str:
    found = row.pickup(which)
    return NOTHING if found is None else milliseconds(found.max if which == "max" else found.median)


def _cells(row: ArrivalRow) -> list[str]:
    waits = [_ms(row, which) for which in ("p50", "p99", "max")]
    return [*waits, str(len(row.turns)), "yes" if row.kept_up else "no", str(sum(row.faults.values()))]
