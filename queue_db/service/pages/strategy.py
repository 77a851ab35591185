"""The strategy panel: what claims cost here, and the last comparison of the strategies."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fastapi import Request, Response

from queue_db.errors import QueueDBError
from queue_db.service.http.requests import Db, Person, of
from queue_db.service.pages.board import board
from queue_db.service.pages.charts import RANGES, charts
from queue_db.service.pages.render import page
from queue_db.service.pages.routing import page_router
from queue_db.strategies.adaptive import Adaptive

log = logging.getLogger("queue_db.service")

router = page_router()

#: Rows of a comparison that are shown, fastest first.
ROWS = 25


@router.get("/strategy", name="strategy")
def show(request: Request, db: Db, who: Person, since: str = "hour") -> Response:
    """Misses, lost leases and windows by queue, and the last comparison."""
    who.check("read")
    since = since if since in RANGES else "hour"
    path = of(request).settings.report
    reports, began, problem = ([], "", None) if path is None else _reports(path)
    shared = board(request)
    races = [race for race in shared.numbers.races() if who.allows("read", race.queue)]
    return page(
        request,
        "strategy",
        strategy=db.strategy.name,
        removal=db.removal.name,
        counters=db.counters,
        races=sorted(races, key=lambda race: (-race.missed, race.queue))[:100],
        window=db.strategy.window if isinstance(db.strategy, Adaptive) else None,
        charts=[one for one in charts(db, None, RANGES[since], shared.clock.now()) if "lost" in one.title]
        if who.allows_all("read")
        else [],
        since=since,
        ranges=list(RANGES),
        configured=path is not None,
        reports=reports,
        began=began,
        problem=problem,
    )


def _reports(path: Path) -> tuple[list[dict[str, Any]], str, str | None]:
    """The comparison in a file; why it cannot be shown."""
    try:
        from queue_db.compare.results import Comparison

        found = Comparison.load(path)
    except ImportError:
        return [], "", 'Reading it needs the extra "compare": pip install "queue-db[compare]".'
    except QueueDBError as error:
        log.warning("the report of a comparison is not shown: %s", error)
        return [], "", "The file cannot be read, or it is not a saved comparison; the service's log says more."
    reports = [
        {"server": bench.server, "rows": sorted(map(_row, bench.rows), key=lambda row: -(row["rate"] or 0.0))[:ROWS]}
        for bench in found.benches
    ]
    return reports, found.began, None


def _row(row: Any) -> dict[str, Any]:
    """A contestant: jobs a second (median of the runs), share of candidates that were missed, seconds of a claim."""
    latencies = [run.latency for run in row.runs if run.latency]
    return {
        **{name: getattr(row, name) for name in ("name", "family", "batch", "workers", "repeats")},
        "rate": row.rate.median if row.rate else None,
        "misses": row.miss_ratio if row.total("candidates") else None,
        "p50": _middle([one.p50 for one in latencies]),
        "p99": _middle([one.p99 for one in latencies]),
        "errors": sum(row.faults.values()),
        # The error itself may have what pages must not show.
        "why": row.refused or ("An error ended it; the report of the comparison has it." if row.failed else None),
    }


def _middle(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
