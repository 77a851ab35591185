"""A cluster is measured on one node, on two and so on; no database is needed here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from queue_db.compare.contestant import Target
from queue_db.compare.nodes import grown, of_each
from queue_db.compare.report import drawing
from queue_db.compare.report.growth import chart, clusters, fastest
from queue_db.compare.results import Bench
from queue_db.database.addresses import parsed, several
from tests.compare.hand_made import bench, row

ALL = "mariadb+pymysql://me:p%40ss@a:1,b:2,c:3/db?nodes=all&ssl_disabled=true"


def first(url: str) -> str:
    found = parsed(url)
    assert found.password == "p@ss"
    assert found.query["ssl_disabled"] == "true"
    assert "nodes" not in found.query
    return str(several(found)[0]) if several(found) else f"{found.host}:{found.port}"


def test_workers_are_spread_evenly_over_the_nodes():
    spread = {}
    for url, nodes in grown(ALL):
        target = Target(url, None, nodes=nodes)
        assert first(target.url) == "a:1", "the laboratory itself stays on one node"
        spread[nodes] = [first(target.of_worker(number).url) for number in range(6)]
    assert spread == {1: ["a:1"] * 6, 2: ["a:1", "b:2"] * 3, 3: ["a:1", "b:2", "c:3"] * 2}
    assert [first(each) for each in of_each(url)] == ["a:1", "b:2", "c:3"]


@pytest.mark.parametrize("url", [ALL.replace("nodes=all", "nodes=first"), "sqlite:///queue.db", "mariadb+pymysql://a/db?nodes=all"])
def test_other_urls_are_measured_as_they_are(url):
    assert list(grown(url)) == [(url, 0)]
    assert Target(url, None).of_worker(5).url == url


def on_nodes(*counts: int) -> Iterator[Bench]:
    for nodes in counts:
        rows = row("skip_locked", (300.0,)), row("adaptive", (200.0 * max(1, nodes),)), row("DBO-1", (9_000.0,), family="article")
        yield replace(bench(*rows, title="MariaDB"), server=f"MariaDB 11.8, {nodes} nodes", nodes=nodes)


def test_the_chart_shows_where_locks_stop_to_pay():
    (found,) = clusters([bench(row("adaptive")), *on_nodes(1, 2, 3)])
    assert [one.nodes for one in found] == [1, 2, 3]
    assert fastest(found) == (
        "Indicative. Fastest: skip_locked on 1 node (300), adaptive on 2 nodes (400) and adaptive on 3 nodes (600) at 1 per claim."
    )
    for width in (drawing.WIDE, drawing.NARROW):
        figure = chart(found, width)
        assert figure is not None
        (axes,) = figure.axes
        lines = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]  # type: ignore[arg-type]
        assert lines == [([1, 2, 3], [300.0] * 3), ([1, 2, 3], [200.0, 400.0, 600.0])]


def test_each_cluster_has_a_chart_and_one_database_has_none():
    benches = [*on_nodes(0, 1, 2), *on_nodes(1, 2, 3), *on_nodes(1)]
    assert [[one.nodes for one in found] for found in clusters(benches)] == [[1, 2], [1, 2, 3]]
    assert chart([bench(), bench()]) is None
