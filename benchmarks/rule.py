"""By batch size: whether windows or SKIP LOCKED make more jobs. The rule of the strategy ``adaptive`` stands on these figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.figures import Line
from benchmarks.lab import Lab
from queue_db import Adaptive, Strategy
from queue_db.compare.product import PRODUCT

#: Jobs per claim.
SIZES = (1, 3, 5, 10, 30, 100)


def rule(lab: Lab) -> Iterator[Line]:
    """Compare windows that follow the misses with SKIP LOCKED, with the same calls, for each batch size."""
    rows = {row.name: row for row in PRODUCT}
    windows = replace(rows["adaptive"], name="windows", strategy=_windows)
    for size in SIZES:
        pair = [replace(row, batch=size) for row in (windows, rows["skip_locked"])]
        own, other = lab.turns([(row, lab.jobs_for(size)) for row in pair])
        yield Line(f"windows ×{size} against skip_locked", own, other)


def _windows(workers: int) -> Strategy:
    return Adaptive(skip_locked=False)
