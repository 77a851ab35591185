"""``queue-db compare`` on one node of a cluster, on two and on three."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from queue_db import ConfigurationError
from queue_db.compare.laboratory import compare
from queue_db.compare.plan import Plan, ProgressListener
from queue_db.compare.report import write
from queue_db.compare.results import Comparison
from queue_db.compare.scratch import PREFIX
from tests.clusters.conftest import catch_up
from tests.compare.house import House
from tests.servers.cluster import Cluster, together


@pytest.fixture
def every(urls: list[str]) -> str:
    """The URL of all nodes."""
    return together(urls)


def plan(*strategies: str, **options: Any) -> Plan:
    return Plan(strategies, jobs=60, workers=3, repeat=1, kind="threads", batches=(1,), limit=60.0, **options)


def places(urls: list[str]) -> list[str]:
    """The laboratory's schemas on all nodes."""
    found: list[str] = []
    for url in urls:
        catch_up(url)
        found += House(make_url(url).get_backend_name(), url).places()
    return found


class Interruption(ProgressListener):
    """Does something when the first run on so many nodes has begun."""

    def __init__(self, nodes: int, deed: Any) -> None:
        self._moment, self._deed, self._here = f"{nodes} nodes", deed, False
        self.seen: list[str] = []

    def bench_started(self, server: str, rows: int, runs: int) -> None:
        self._here = server.endswith(self._moment)

    def run_progress(self, left: int, seconds: float) -> None:
        if self._here:
            self._here = False
            self._deed()


def test_each_strategy_is_measured_on_one_to_three_nodes_without_a_repeated_job(
    urls: list[str], every: str, tmp_path: Path
) -> None:
    found = compare([every], plan("skip_locked", "adaptive", "DBO-1", verify=True))
    assert [bench.nodes for bench in found.benches] == [1, 2, 3]
    for bench in found.benches:
        for row in bench.rows:
            assert row.finished, row
            assert row.repeats == 0, row
            assert row.total("executions") == 60, row
    assert {path.name.rpartition("-")[2] for path in write(found, tmp_path)} >= {"nodes.svg", "nodes.png"}
    assert places(urls) == []


def test_nothing_is_left_on_any_node_after_ctrl_c(urls: list[str], every: str) -> None:
    seen: list[str] = []

    def leave() -> None:
        seen.extend(places(urls))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare([every], plan("adaptive"), listener=Interruption(3, leave))
    assert len(seen) == 3
    assert all(name.startswith(PREFIX) for name in seen)
    assert places(urls) == []


@pytest.mark.parametrize("cluster", ["group-replication-single"], indirect=True)
def test_a_cluster_with_one_primary_is_refused_before_anything_is_measured(urls: list[str], every: str) -> None:
    kept: list[Comparison] = []
    with pytest.raises(ConfigurationError, match="read-only"):
        compare([every], plan("adaptive"), keep=kept.append)
    assert kept == []
    assert places(urls) == []


def test_a_row_fails_with_its_node_and_is_not_measured_on_the_others(cluster: Cluster, urls: list[str], every: str) -> None:
    try:
        # With jobs of 50 ms, so that no run has ended before.
        plan_of_a_second = plan("adaptive", "skip_locked", work_ms=50.0)
        found = compare([every], plan_of_a_second, listener=Interruption(2, lambda: cluster.kill(1)))
    finally:
        cluster.start(1)
        cluster.restore()
    one, *more = found.benches
    assert [row.finished for row in one.rows] == [True, True]
    assert [(bench.nodes, [row.finished for row in bench.rows]) for bench in more] == [(2, [False, False]), (3, [False, False])]
    assert places(urls) == []
