"""Which way the adaptive strategy claims."""

from __future__ import annotations

from collections.abc import Iterator

from queue_db.compare.report.wording import percent
from queue_db.compare.results import Bench


def findings(bench: Bench) -> Iterator[str]:
    """Yield a sentence for each row with an adaptive strategy."""
    for row in bench.rows:
        if row.family != "product" or row.skip_locked is None:
            continue
        if row.skip_locked:
            yield f"With {row.batch} per claim, {row.name} claims with SKIP LOCKED here, which was measured to be faster."
        else:
            missed = percent(row.miss_ratio)
            yield f"With {row.batch} per claim, {row.name} claims from windows here; {missed} of the candidates were missed."
