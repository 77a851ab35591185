"""The board for Grafana and the alert rules: each query names what the service exports, and a real Prometheus answers it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from queue_db import QueueDB
from queue_db.service import Settings
from tests.patience import PATIENCE, wait_for
from tests.servers.prometheus import Prometheus, program
from tests.service.conftest import serving
from tools import grafana_board

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "monitoring"
BOARD: dict[str, Any] = json.loads((PLACE / "grafana-board.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((PLACE / "alerts.yml").read_text())["groups"][0]["rules"]
TESTS = Path(__file__).with_name("alerts_test.yml")

PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[QueueDB]:
    """A database with something of everything that is measured."""
    with QueueDB(f"sqlite:///{tmp_path}/queue.db") as db:
        db.migrate()
        mail = db.queue("mail")
        mail.enqueue_many([("send", number, {"max_attempts": 1}) for number in range(9)])
        for job in mail.claim(2):
            job.fail("no")
        for job in mail.claim(3):
            job.complete()
        mail.claim()
        db.feed("news").publish("n")
        with db.feed("news").cursor("mine"):
            pass
        assert db.metrics.take()
        yield db


@pytest.fixture
def address(busy: QueueDB) -> Iterator[str]:
    with serving(busy, Settings()) as url:
        yield url


def named(queries: list[str]) -> set[str]:
    return set(re.findall(r"\bqueue_db_\w+", " ".join(queries)))


def test_the_board_is_what_its_program_writes() -> None:
    assert (PLACE / "grafana-board.json").read_text() == grafana_board.text(), "run: python -m tools.grafana_board"


def test_the_board_is_whole() -> None:
    assert BOARD["schemaVersion"] == 42
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for one in BOARD["panels"]:
        place = one["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
    for one, other in combinations(BOARD["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart, (one["title"], other["title"])
    variables = {one["name"] for one in BOARD["templating"]["list"]}
    for panel in PANELS:
        assert panel["description"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFG")[: len(panel["targets"])]
        used = {name for target in panel["targets"] for name in re.findall(r"\$\{?(\w+)", json.dumps(target))}
        assert used <= variables | {"__rate_interval"}, panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"


def test_units_are_those_of_the_metrics() -> None:
    for panel in PANELS:
        shown = panel["fieldConfig"]["defaults"]
        for target in panel["targets"]:
            (ending,) = {"s" if name.endswith("_seconds") else "" for name in named([target["expr"]])}
            assert shown["unit"] == (ending or ("cps" if "rate(" in target["expr"] else shown["unit"])), panel["title"]
            assert (shown["unit"] in {"none", "short"}) == (shown.get("decimals") == 0), panel["title"]
            assert (shown["unit"] == "s") == bool(ending), panel["title"]


def test_what_is_bad_can_be_seen() -> None:
    for panel in PANELS:
        shown = panel["fieldConfig"]["defaults"]
        red = "red" in [step["color"] for step in shown["thresholds"]["steps"]]
        by_colour = panel["type"] == "stat" and panel["options"]["colorMode"] == "value" and shown["color"]["mode"] == "thresholds"
        assert red <= (by_colour or shown["custom"]["thresholdsStyle"]["mode"] == "dashed"), panel["title"]


def test_every_metric_of_the_board_and_of_the_rules_is_exported_by_the_service(busy: QueueDB, address: str) -> None:
    token = busy.tokens.create("prometheus", ["read"])
    answer = httpx2.get(f"{address}/metrics", headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE, verify=False)
    exported = set(re.findall(r"^(queue_db_\w+)[ {]", answer.text, re.MULTILINE))
    assert len(exported) > 30
    assert named(QUERIES) <= exported
    assert named([rule["expr"] for rule in RULES]) <= exported


def test_the_alerts_of_the_page_are_those_of_the_file() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    told = re.findall(r"^\| `(Queue\w+)` \|", page, re.MULTILINE)
    assert told == [rule["alert"] for rule in RULES]
    for file in ("grafana-board.json", "alerts.yml", "keda-postgresql.yaml", "keda-mysql.yaml"):
        assert f"](monitoring/{file})" in page


def test_each_rule_is_tested_where_it_fires_and_where_it_does_not() -> None:
    cases = yaml.safe_load(TESTS.read_text())["tests"]
    tested = [test for case in cases for test in case["alert_rule_test"]]
    for rule in RULES:
        assert {bool(test["exp_alerts"]) for test in tested if test["alertname"] == rule["alert"]} == {True, False}, rule["alert"]


def promtool(tmp_path: Path, rules: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "alerts.yml").write_text(rules)
    (tmp_path / "alerts_test.yml").write_text(TESTS.read_text())
    command = [*program("promtool"), "test", "rules", "alerts_test.yml"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_promtool_agrees_with_the_tests_of_the_rules(tmp_path: Path) -> None:
    done = promtool(tmp_path, (PLACE / "alerts.yml").read_text())
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_that_never_fire_are_found(tmp_path: Path) -> None:
    """The control: promtool names each rule that is broken."""
    rules = [{**rule, "expr": "vector(0) > 1"} for rule in RULES]
    done = promtool(tmp_path, yaml.safe_dump({"groups": [{"name": "queue_db", "rules": rules}]}))
    assert done.returncode != 0
    missed = set(re.findall(r"alertname: (\w+), time: \S+,\s+exp:", done.stdout + done.stderr))
    assert missed == {rule["alert"] for rule in RULES}, done.stdout + done.stderr


@pytest.mark.rest("test_promtool_agrees_with_the_tests_of_the_rules, and the metrics are compared by name")
def test_a_prometheus_that_scrapes_the_service_answers_every_query(busy: QueueDB, address: str) -> None:
    token = busy.tokens.create("prometheus", ["read"])
    prometheus = Prometheus(address.removeprefix("http://"), token, [str(PLACE / "alerts.yml")])
    try:
        wait_for(_answered(prometheus, address))
        for panel in PANELS:
            legends = [
                legend(target["legendFormat"], series["metric"])
                for target in panel["targets"]
                for series in prometheus.query(filled(target["expr"]))
            ]
            assert len(legends) >= len(panel["targets"]), panel["title"]
            assert len(set(legends)) == len(legends), f"{panel['title']} has lines of the same name: {legends}"
        wait_for(lambda: set(prometheus.rules().values()) == {"ok"})
        assert prometheus.rules().keys() == {rule["alert"] for rule in RULES}
        assert prometheus.query("queue_db_absent") == []  # the control: what does not exist is empty
    finally:
        prometheus.remove()


def _answered(prometheus: Prometheus, address: str) -> Callable[[], bool]:
    def look() -> bool:
        httpx2.get(
            f"{address}/api/v1/queues", timeout=PATIENCE, verify=False
        )  # without a token: an incident, so that there is one to count
        return all(prometheus.query(filled(query)) for query in QUERIES)

    return look


def legend(given: str, labels: Mapping[str, str]) -> str:
    """The name of a line, whose labels must be there."""
    return re.sub(r"{{(\w+)}}", lambda label: labels[label[1]], given)


def filled(query: str) -> str:
    """A query as Grafana sends it."""
    return query.replace("$queue", ".*").replace("$__rate_interval", "30s")
