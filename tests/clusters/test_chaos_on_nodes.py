"""Short rounds of chaos on three nodes: one with a node killed, and one of a queue without its fence, which must be noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import plan as plans
from tests.chaos.plan import Fault
from tests.chaos.rounds import Round
from tests.servers.cluster import Cluster


@pytest.mark.parametrize(
    ("cluster", "fault"),
    [
        ("galera", "one killed"),
        ("group-replication-single", "primary killed"),
        ("postgresql-ha", "primary killed after lost replies"),
    ],
    indirect=["cluster"],
)
def test_a_round_holds_with_a_node_killed(cluster: Cluster, fault: str, tmp_path: Path) -> None:
    plan = replace(plans.make(7, "galera", seconds=10.0), faults=[Fault(0.2, fault, "0", 0.0)])
    result = Round(plan, cluster.create_database(), cluster, tmp_path).run()
    assert [str(violation) for violation in result.violations] == []
    assert len(result.without_a_claim) == 1


@pytest.mark.parametrize("cluster", ["galera"], indirect=True)
def test_a_queue_without_its_fence_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    plan = plans.make(7, "galera", operations=1, faults=0, private=False)
    few = {"producer-0", "consumer-0", "overtaken-0"}
    plan = replace(plan, clients=[client for client in plan.clients if client.name in few])
    result = Round(plan, cluster.create_database(), cluster, tmp_path, broken="fence").run()
    assert {"fence", "doubled"} <= {violation.check for violation in result.violations}
