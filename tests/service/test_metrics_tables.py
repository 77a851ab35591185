"""The tables of metrics in the documentation have the names, types and labels of the real output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from queue_db import QueueDB
from queue_db.instrumentation import prometheus
from queue_db.service import Settings
from queue_db.worker import Worker

DOCS = Path(__file__).resolve().parents[2] / "docs"

#: Name → type and labels.
Metrics = dict[str, tuple[str, frozenset[str]]]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[QueueDB]:
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        yield db


def documented(page: str) -> Metrics:
    rows = re.findall(r"^\| `(queue_db_\w+)` \| (counter|gauge|histogram) \| ([^|]+) \|", (DOCS / page).read_text(), re.MULTILINE)
    assert rows
    assert len({name for name, _, _ in rows}) == len(rows)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def exported(text: str) -> Metrics:
    """All metrics but those that clients of Prometheus add, such as the time at which a counter began."""
    return {
        f"{one.name}_total" if one.type == "counter" else one.name: (
            one.type,
            frozenset(label for sample in one.samples for label in sample.labels if label != "le"),
        )
        for one in text_string_to_metric_families(text)
        if not one.name.endswith("_created")
    }


def test_the_table_of_the_service(db: QueueDB, serve: Callable[[Settings], httpx2.Client]) -> None:
    db.queue("mail").enqueue("send")
    db.feed("news").publish("n")
    with db.feed("news").cursor("mine"):
        pass
    assert db.metrics.take()  # before the service does
    client = serve(Settings(closed=False))
    assert documented("rest.md") == exported(client.get("/metrics").text)


def test_rules_of_alerts_name_metrics_that_are_there() -> None:
    text = (DOCS / "monitoring.md").read_text() + (DOCS / "monitoring" / "alerts.yml").read_text()
    named = set(re.findall(r"\bqueue_db_\w+", text))
    assert len(named) > 16
    assert named <= documented("rest.md").keys() | documented("monitoring.md").keys()


def test_the_table_of_workers(db: QueueDB) -> None:
    registry = CollectorRegistry()
    worker = Worker(db, {"mail": 1})
    prometheus.instrument(worker, registry, depth=False)

    @worker.handles("send")
    def reject(job: object) -> None:
        raise ValueError("no")

    db.queue("mail").enqueue("send", max_attempts=1)
    worker.run(until_empty=True)
    assert documented("monitoring.md") | only_counters(documented("rest.md")) == exported(generate_latest(registry).decode())


def only_counters(metrics: Metrics) -> Metrics:
    """Those of ``db.counters``: workers have them, too."""
    return {name: one for name, one in metrics.items() if one == ("counter", frozenset())}
