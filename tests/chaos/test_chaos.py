"""Short rounds of chaos: one that holds, and one of a queue without its fence, which the checker must notice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import plan as plans
from tests.chaos.plan import Fault, Plan
from tests.chaos.rounds import Result, Round
from tests.conftest import server_of
from tests.databases import FILES

#: One after the other, as far as the database has them.
FAULTS = [
    Fault(0.1, "after commit", "", 0.0),
    Fault(0.2, "kill", "consumer-0", 0.0),
    Fault(0.3, "stop", "consumer-1", 1.5),
    Fault(0.4, "before commit", "", 0.0),
    Fault(0.5, "lock", "", 0.2),
    Fault(0.6, "kill", "producer-1", 0.0),
    Fault(0.8, "kill", "worker-0", 0.0),
]


def play(plan: Plan, url: str, folder: Path, broken: str = "") -> Result:
    server = None if plan.kind in FILES else server_of(plan.kind)
    return Round(plan, [url], server, folder, broken).run()


#: Some of a plan's clients, and all that it needs to notice a missing fence.
FEW = {f"{role}-0" for role in plans.CREW} | {"producer-1", "consumer-1"}
FEWEST = {"producer-0", "consumer-0", "overtaken-0"}


def test_a_round_holds(kind: str, fresh_url: str, tmp_path: Path) -> None:
    plan = plans.make(7, kind, operations=15, faults=0, private=False)
    known = [*plans.EVERYWHERE, *(() if kind in FILES else plans.SERVED)]
    clients = [client for client in plan.clients if client.name in FEW]
    faults = [fault for fault in FAULTS if fault.kind in known]
    plan = replace(plan, lease=1.0, pause=0.05, clients=clients, faults=faults)
    result = play(plan, fresh_url, tmp_path)
    assert [str(violation) for violation in result.violations] == []
    assert result.struck == plan.faults
    assert {one.name for one in result.operations if one.ok} >= {
        "enqueue",
        "claim",
        "settle",
        "step",
        "publish",
        "read",
        "acknowledge",
    }


def test_a_queue_without_its_fence_is_noticed(kind: str, fresh_url: str, tmp_path: Path) -> None:
    plan = plans.make(7, kind, operations=1, faults=0, private=False)
    clients = [client for client in plan.clients if client.name in FEWEST]
    result = play(replace(plan, clients=clients), fresh_url, tmp_path, broken="fence")
    assert {"fence", "doubled"} <= {violation.check for violation in result.violations}


def test_a_seed_is_a_plan() -> None:
    assert plans.make(7, "postgresql") == plans.make(7, "postgresql")
    assert plans.make(7, "postgresql") != plans.make(8, "postgresql")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_is_interrupted(kind: str) -> None:
    targets = {
        fault.target.partition("-")[0] for seed in range(50) for fault in plans.make(seed, kind).faults if fault.kind == "interrupt"
    }
    assert targets <= plans.INTERRUPTED
