"""``queue-db doctor`` on the nodes of a cluster."""

from __future__ import annotations

import pytest

from tests.cli.harness import Ask
from tests.clusters.conftest import run
from tests.servers.galera import Galera

pytestmark = pytest.mark.parametrize("cluster", ["galera"], indirect=True, scope="session")


def test_it_shows_the_cluster_and_what_a_setting_may_lose(ask_at: Ask, urls: list[str]) -> None:
    for number, url in enumerate(urls):
        report = ask_at(url, "doctor", "--json").record
        assert f"of 3 nodes; this node: 'node{number}', Synced, Primary" in report["facts"]["cluster"]
        assert "several writers" in report["capabilities"]
    (before,) = [one for one in report["warnings"] if "innodb_flush" in one]
    assert "if all nodes fail within a second" in before


def test_it_warns_of_equal_ids(ask_at: Ask, urls: list[str]) -> None:
    run(urls[0], "SET GLOBAL wsrep_auto_increment_control = OFF", "SET GLOBAL auto_increment_increment = 1")
    try:
        warnings = ask_at(urls[0], "doctor", "--json").record["warnings"]
    finally:
        run(urls[0], "SET GLOBAL wsrep_auto_increment_control = ON")
    assert [one for one in warnings if "get the same id" in one]


def test_a_node_without_quorum_is_not_healthy(ask_at: Ask, cluster: Galera, urls: list[str]) -> None:
    cluster.pause(1, 2)
    try:
        cluster.wait(0, size=0)
        answer = ask_at(urls[0], "doctor", "--json", status=1)
    finally:
        cluster.resume(1, 2)
        cluster.wait()
    problem, *_ = answer.record["problems"]
    assert "non-Primary part of its cluster" in problem
    assert not answer.record["healthy"]
