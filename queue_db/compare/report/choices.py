"""Which way the adaptive strategy chose, and why."""

from __future__ import annotations

from collections.abc import Iterator

from queue_db.compare.report.wording import number, percent
from queue_db.compare.results import Bench
from queue_db.compare.ways import Ways
from queue_db.strategies.ways import Way

_NAMES = {Way.SKIP_LOCKED: "SKIP LOCKED", Way.WINDOW: "windows"}


def findings(bench: Bench) -> Iterator[str]:
    """Yield a sentence for each row with an adaptive strategy."""
    for row in bench.rows:
        if row.family == "product" and (ways := row.ways) is not None:
            share = percent(ways.share_of(ways.most))
            yield f"With {row.batch} per claim, {row.name} took {_NAMES[ways.most]} for {share} of its claims: {why(ways)}."


def why(ways: Ways) -> str:
    """Why most claims took the way that they took."""
    cost = ways.cost
    if cost is None:
        rest = ways.window if ways.most is Way.SKIP_LOCKED else ways.skip_locked
        what = "compare the two ways" if rest else "try the other way"
        return f"it begins so on this database, and there were too few claims to {what}"
    locks = ways.most is Way.SKIP_LOCKED
    relative = cost if locks else 1 / cost
    missed = ways.miss_ratio
    where = "from windows" if locks else "with SKIP LOCKED"
    beside = f"; in windows {percent(missed)} of the candidates were missed" if missed is not None else ""
    close = "" if relative > 1 else ", which is not clearly less"
    return f"{where} a job cost {number(relative)} × as much{close}{beside}"
