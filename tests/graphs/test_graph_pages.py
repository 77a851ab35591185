"""Graphs over HTTP, in commands and in the dashboard: small ones are drawn node by node, large ones by layer."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from queue_db import NewGraph, QueueDB
from queue_db.service import Settings
from queue_db.service.pages import graph_drawing
from tests.cli.harness import Ask
from tests.patience import PATIENCE
from tests.service.conftest import serving


def _album(db: QueueDB, pages: int) -> int:
    graph: NewGraph
    with db.graph("album") as graph:
        resized = [graph.add("media", "resize", number, name=f"page <{number}>") for number in range(pages)]
        graph.add("mail", "tell", name="tell", after=resized)
    assert graph.id is not None
    return graph.id


@pytest.fixture
def db(tmp_path: Path) -> QueueDB:
    opened = QueueDB(f"sqlite:///{tmp_path}/queue.db")
    opened.migrate()
    return opened


def test_a_graph_is_drawn_and_listed(db: QueueDB) -> None:
    small, large = _album(db, 3), _album(db, graph_drawing.MOST_NODES)
    assert all(db.queue("media").complete_many(db.queue("media").claim(2)))
    with db, serving(db, Settings(closed=False)) as base, httpx2.Client(base_url=base, timeout=PATIENCE, verify=False) as client:
        page = client.get(f"/graphs/{small}").text
        assert page.count('<g class="node completed">') == 2
        assert page.count('<path class="edge done"') == 2
        assert page.count('<path class="edge open"') == 1
        assert "page &lt;0&gt;" in page
        assert "page <0>" not in page
        layers = client.get(f"/graphs/{large}").text
        assert re.findall(r">layer (\d)</text>", layers) == ["0", "1"]
        assert f"0 of {graph_drawing.MOST_NODES} done" in layers
        assert client.get("/graphs/99").status_code == 404
        found = client.get(f"/api/v1/graphs/{small}").json()
        assert (found["state"], found["counts"]) == ("open", {"completed": 2, "queued": 1, "waiting": 1})
        assert [layer["counts"] for layer in found["layers"]] == [{"completed": 2, "queued": 1}, {"waiting": 1}]
        first = client.get("/api/v1/graphs", params={"limit": 1}).json()
        assert [one["id"] for one in first["graphs"]] == [str(large)]
        rest = client.get("/api/v1/graphs", params={"after": first["after"]}).json()
        assert [one["id"] for one in rest["graphs"]] == [str(small)]
        nodes = client.get(f"/api/v1/graphs/{small}/nodes", params={"state": "waiting"}).json()["nodes"]
        assert [(node["name"], node["pending"], len(node["parents"])) for node in nodes] == [("tell", 1, 3)]
        assert client.get("/api/v1/graphs/99").json()["code"] == "graph_not_found"


def test_tokens_for_one_queue_see_only_graphs_within_it(db: QueueDB) -> None:
    graph = _album(db, 1)
    with db, serving(db, Settings(closed=True)) as base:
        token = db.tokens.create("one", ["read", "manage"], queues=["media"])
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=base, timeout=PATIENCE, verify=False, headers=headers) as client:
            assert client.get(f"/api/v1/graphs/{graph}").status_code == 404
            assert client.get("/api/v1/graphs").json()["graphs"] == []
            assert client.post(f"/api/v1/graphs/{graph}/cancel").status_code == 404


def test_the_commands(db: QueueDB, ask_at: Ask) -> None:
    graph = _album(db, 2)
    url = str(db.database.engine.url)
    assert "album" in ask_at(url, "graphs", "list").out
    assert "page <0>, page <1>" in ask_at(url, "graphs", "show", str(graph)).out
    ask_at(url, "graphs", "show", "99", status=1)
