"""Comparisons made by hand, so that a test sets only the figures that it is about."""

from __future__ import annotations

from typing import Any

from queue_db.compare.measures import Latency
from queue_db.compare.results import ArrivalRow, ArrivalTurn, Bench, Comparison, Row, Run


def run(rate: float = 1000.0, *, jobs: int = 1000, twice: int = 0, left: int | None = None, **others: Any) -> Run:
    """A run of ``jobs`` jobs at ``rate`` jobs/s, ``twice`` of them executed once more."""
    gone = jobs if left is None else left
    values: dict[str, Any] = {
        "jobs": jobs,
        "added": 0,
        "left": gone,
        "seconds": gone / rate,
        "first": 0.004,
        "executions": jobs + twice,
        "unique": jobs,
        "duplicates": {2: twice} if twice else {},
        "displacement": {0: jobs - 10, 3: 10 + twice},
        "per_worker": [jobs // 4 + twice, jobs // 4, jobs // 4 - 5, jobs // 4 + 5],
        "latency": Latency(count=jobs, p50=0.002, p99=0.011, max=0.05),
        "rounds": jobs,
        "candidates": jobs,
        "won": jobs,
        "empty": 3,
        "lost": 0,
        "statements": 3 * jobs,
        "faults": {},
        "client_cpu": 0.5,
        "server_cpu": 0.7,
        "peak_memory": 60 * 2**20,
    }
    return Run(**(values | others))


def row(
    name: str, rates: tuple[float, ...] = (990.0, 1000.0, 1010.0), *, batch: int = 1, family: str = "product", **others: Any
) -> Row:
    """A row with one run for each of ``rates``; ``others`` go to the row or, where it has no such field, to its runs."""
    own = {key: others.pop(key) for key in ("window", "refused", "configuration", "claim", "workers") if key in others}
    values = {"claim": "by hand", "removal": "DELETE", "index": "(queue)", "workers": 4} | own
    return Row(name=name, family=family, batch=batch, runs=[run(rate, **others) for rate in rates], **values)


def peer(name: str, rates: tuple[float, ...], **others: Any) -> Row:
    """Somebody else's queue."""
    return row(name, rates, family="peer", **({"configuration": {"prefetch": "100"}} | others))


def bench(*rows: Row, title: str = "PostgreSQL", **others: Any) -> Bench:
    """A database with these rows."""
    values: dict[str, Any] = {
        "url": f"{title.lower()}://me:***@localhost/db",
        "server": f"{title} 18.1",
        "facts": {"durability": "fsync on", "isolation": "read committed"},
    }
    return Bench(title=title, rows=list(rows), **(values | others))


def comparison(*benches: Bench) -> Comparison:
    """Of these databases."""
    return Comparison(
        plan={"jobs": "1000", "workers": "4 processes"},
        machine={"cores": "2", "system": "Linux x86_64"},
        began="2026-11-21T12:00:00+00:00",
        benches=list(benches),
    )


def article(db: str = "mariadb") -> list[Row]:
    """Rows of the article, with an original that deadlocks."""
    lost = {"twice": 150, "faults": {"deadlock": 160}, "displacement": {1: 900, 2400: 250}}
    return [
        row(f"DBP-{db}-0-1-1", (250.0, 240.0), family="article", **lost),
        row(f"DBP-{db}-0-0-5", (450.0, 452.0), family="article", faults={"deadlock": 140}),
        row(f"DBO-{db}-1", (640.0, 646.0), family="article", window=4.0, candidates=1500),
    ]


def arriving(name: str, *, p99: float = 0.009, turns: int = 3, **others: Any) -> ArrivalRow:
    """A strategy under a fixed arrival rate."""
    values: dict[str, Any] = {"batch": 1, "consumers": 9, "arrivals": 500.0} | others
    wait = Latency(count=1000, p50=p99 / 4, p99=p99, max=p99 * 3)
    return ArrivalRow(name, **values, turns=[ArrivalTurn(1000, 1000, 2.01, wait, {}) for _ in range(turns)])
