"""A cluster is measured on one node, on two and so on; no database is needed here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from queue_db.compare.contestant import Target
from queue_db.compare.nodes import grown, hushed, of_each, on_one_machine
from queue_db.compare.report import drawing, growth, write
from queue_db.compare.report.advice import Advice
from queue_db.compare.report.growth_chart import chart
from queue_db.compare.results import Bench
from queue_db.database.addresses import parsed, several
from tests.compare.hand_made import bench, comparison, row

ALL = "mariadb+pymysql://me:p%40ss@a:1,b:2,c:3/db?nodes=all&ssl_disabled=true"


def hosts(url: str) -> list[str]:
    """The addresses that a connection may go to, the first one first."""
    found = parsed(url)
    assert found.password == "p@ss"
    assert found.query["ssl_disabled"] == "true"
    assert "nodes" not in found.query
    return [str(one) for one in several(found)] or [f"{found.host}:{found.port}"]


def test_workers_are_spread_evenly_over_the_nodes_and_stay_there():
    spread = {}
    for url, nodes in grown(ALL):
        target = Target(url, None, nodes=nodes)
        assert hosts(target.url) == ["a:1", "b:2", "c:3"][:nodes], "the laboratory itself goes to another node if the first is lost"
        spread[nodes] = [hosts(target.of_worker(number).url) for number in range(6)]
    assert spread == {1: [["a:1"]] * 6, 2: [["a:1"], ["b:2"]] * 3, 3: [["a:1"], ["b:2"], ["c:3"]] * 2}
    assert [hosts(each) for each in of_each(url)] == [["a:1"], ["b:2"], ["c:3"]]


@pytest.mark.parametrize("url", [ALL.replace("nodes=all", "nodes=first"), "sqlite:///queue.db", "mariadb+pymysql://a/db?nodes=all"])
def test_other_urls_are_measured_as_they_are(url):
    assert list(grown(url)) == [(url, 0)]
    assert Target(url, None).of_worker(5).url == url


@pytest.mark.parametrize(("addresses", "shared"), [("a,b,c", False), ("a,b:1,b:2", True), ("localhost,127.0.0.1:1", True)])
def test_nodes_that_share_a_machine_are_known(addresses, shared):
    assert on_one_machine(f"mariadb+pymysql://{addresses}/db?nodes=all") is shared
    alone = bench(row("adaptive"), facts={"nodes": "share one machine"} if shared else {})
    assert ("The nodes share one machine: more of them bring no more processors." in Advice.of(alone).caveats) is shared


def test_warnings_of_locks_come_back():
    log = logging.getLogger("queue_db.strategies.locking")
    with hushed():
        assert not log.isEnabledFor(logging.WARNING)
    assert log.isEnabledFor(logging.WARNING)


def on_nodes(*counts: int, locks: tuple[float, ...] = (600.0, 300.0, 150.0), **others: int) -> Iterator[Bench]:
    """A cluster on which the default strategy makes 200 jobs/s on each node, and SKIP LOCKED what ``locks`` says."""
    for nodes in counts:
        rows = row("skip_locked", (locks[max(0, nodes - 1)],) * 3, **others), row("adaptive", (200.0 * max(1, nodes),) * 3)
        article = row("DBO-1", (9_000.0,), family="article")
        yield bench(*rows, article, title="MariaDB", server=f"MariaDB 11.8, {nodes} nodes", nodes=nodes)


@pytest.mark.parametrize(
    ("locks", "where", "words"),
    [
        (
            (600.0, 300.0, 150.0),
            [(1.5, 3.3)],
            "locks are faster on up to 1 node, optimistic claims are as fast or faster from 2 nodes on",
        ),
        (
            (600.0, 500.0, 590.0),
            [(2.5, 3.3)],
            "locks are faster on up to 2 nodes, optimistic claims are as fast or faster from 3 nodes on",
        ),
        ((600.0, 300.0, 700.0), [], "locks are faster on up to 3 nodes"),
        ((100.0, 100.0, 100.0), [(0.7, 3.3)], "optimistic claims are as fast or faster from 1 node on"),
    ],
)
def test_the_chart_shows_where_locks_stop_to_pay(locks, where, words):
    (found,) = growth.clusters([bench(row("adaptive")), *on_nodes(1, 2, 3, locks=locks)])
    assert [one.nodes for one in found] == [1, 2, 3]
    assert growth.words(found).startswith(f"At 1 per claim, {words}; adaptive ÷ skip_locked: ")
    for width in (drawing.WIDE, drawing.NARROW):
        figure = chart(found, width)
        assert figure is not None
        (axes,) = figure.axes
        assert words in " ".join(" ".join(text.get_text() for text in figure.texts).split())
        shaded = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
        assert [(round(box.x0, 6), round(box.x1, 6)) for box in shaded] == where
        lines = {line.get_linestyle(): list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 3}  # type: ignore[arg-type]
        assert lines == {"--": list(locks), "-": [200.0, 400.0, 600.0]}


def test_the_ratio_is_said_for_each_number_of_nodes():
    found = list(on_nodes(1, 2, 3))
    assert growth.words(found).endswith("0.33 × (0.33–0.33) on 1, 1.33 × (1.33–1.33) on 2 and 4.00 × (4.00–4.00) on 3 nodes.")
    quick = [replace(one, rows=[replace(each, quick=True) for each in one.rows]) for one in found]
    assert growth.words(quick).startswith("At 1 per claim, indicative: locks are faster")


def test_nothing_is_said_of_rows_that_repeat_jobs():
    found = list(on_nodes(1, 2, twice=3))
    assert growth.turn(found, 1) is None
    assert growth.words(found) == "No strategies to compare."
    assert chart(found) is not None


def test_each_cluster_has_a_chart_and_one_database_has_none(tmp_path):
    benches = [*on_nodes(0, 1, 2), *on_nodes(1, 2, 3), *on_nodes(1)]
    assert [[one.nodes for one in found] for found in growth.clusters(benches)] == [[1, 2], [1, 2, 3]]
    drawn = {path.name for path in write(comparison(*on_nodes(0, 1, 2)), tmp_path) if "nodes" in path.name}
    assert drawn == {"mariadb-2-nodes.png", "mariadb-2-nodes.svg"}
    # For a desk and for a phone.
    assert (tmp_path / "index.html").read_text().count("optimistic claims pay</text>") == 2
    assert chart([bench(), bench()]) is None
