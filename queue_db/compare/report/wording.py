"""Numbers and rows in words, the same in the page, the pictures and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from queue_db.compare.results import Row

NOTHING = "–"

#: Runs of a row from which on its spread says something.
ENOUGH = 3

#: Processes that run or wait to run, for each core, above which a machine has other things to do.
LOADED = 0.5


def known(value: float | None) -> bool:
    """Whether there is a number; a server that hides its processor time leaves None or NaN."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> str:
    """With three significant digits or all before the point, and commas: 12,345 · 12.3 · 0.12."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) < 100:
        value = float(f"{value:.3g}")
    if value == 0 or abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1g}"


def percent(share: float | None) -> str:
    """A share of 0 … 1 as per cent."""
    if share is None or not math.isfinite(share):
        return NOTHING
    return "0 %" if share == 0 else "<0.1 %" if share < 0.001 else f"{share:.1%}".replace("%", " %")


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds, without the unit."""
    return NOTHING if seconds is None else number(seconds * 1000)


def mebibytes(size: float) -> str:
    """Bytes as MiB, without the unit."""
    return number(round(size / 2**20)) if size > 0 else NOTHING


def several(count: int, what: str) -> str:
    """``1 deadlock``, ``1,575 deadlocks``."""
    return f"{count:,} {what}" if count == 1 or what == "other" else f"{count:,} {what}s"


def errors(row: Row) -> str:
    """The driver's errors of a row by kind, all runs together."""
    found = [several(count, "other error" if kind == "other" else kind) for kind, count in row.faults.items() if count]
    return ", ".join(found) or "no errors"


def repeats(row: Row) -> str:
    """Executions beyond the first of each job, all runs together."""
    return several(row.repeats, "repeated execution") if row.repeats else "no job twice"


def label(row: Row) -> str:
    """Name and batch."""
    return row.name if row.batch == 1 else f"{row.name}, batches of {row.batch}"


def caveats(rows: Sequence[Row], machine: Mapping[str, str]) -> list[str]:
    """What makes the figures of these rows less certain than they look."""
    found = []
    fewest = min((len(row.runs) for row in rows), default=ENOUGH)
    if fewest == 1:
        found.append(
            "Each row ran only once: its spread is not known, and any difference may be chance. Repeat it with --repeat 10."
        )
    elif fewest < ENOUGH:
        found.append(f"Only {fewest} runs of each row: their spread is a guess. Repeat it with --repeat 10.")
    try:
        load, cores = float(machine["load before"].split()[0]), int(machine["cores"])
    except (KeyError, ValueError, IndexError):
        return found
    if load > LOADED * cores:
        found.append(
            f"This machine was busy with something else before the comparison began (load {load:g} on {several(cores, 'core')}): "
            "the figures are of what was left."
        )
    return found


def unfinished(row: Row) -> str | None:
    """What is missing of a row that did not come to its end; None when nothing is, or it was refused."""
    if row.refused is not None or row.finished:
        return None
    if row.failed is not None:
        return f"failed: {(row.failed.strip().splitlines() or ['without a word'])[-1]}"
    late = [run for run in row.runs if not run.finished]
    if not late:
        return "did not run"
    left, jobs = sum(run.left for run in late), sum(run.jobs + run.added for run in late)
    return f"did not finish: {len(late)} of {several(len(row.runs), 'run')}, {left:,} of {jobs:,} jobs left the queue"


def short_name(row: Row) -> str:
    """An article's row without the database, as ``DBO-1`` or ``DBP-0-1-1``; the others' names as they are."""
    if row.family != "article":
        return row.name
    first, _, rest = row.name.partition("-")
    return f"{first}-{rest.partition('-')[2]}"
