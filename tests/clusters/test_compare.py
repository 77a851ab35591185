"""``queue-db compare`` on one node of a cluster, on two and on three."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url

from queue_db.compare.laboratory import compare
from queue_db.compare.plan import Plan
from queue_db.compare.report import write


def test_each_strategy_is_measured_on_one_to_three_nodes_without_a_repeated_job(urls: list[str], tmp_path: Path) -> None:
    parsed = [make_url(url) for url in urls]
    every = (
        parsed[0]
        .set(host=None, port=None)
        .update_query_dict(
            {"host": ",".join(str(one.host) for one in parsed), "port": ",".join(str(one.port) for one in parsed), "nodes": "all"}
        )
    )
    plan = Plan(("skip_locked", "adaptive", "DBO-1"), jobs=60, workers=3, repeat=1, kind="threads", batches=(1,), limit=60.0)
    found = compare([every.render_as_string(hide_password=False)], plan)
    assert [bench.nodes for bench in found.benches] == [1, 2, 3]
    for bench in found.benches:
        for row in bench.rows:
            assert row.finished, row
            assert row.repeats == 0, row
            assert row.total("executions") == 60, row
    assert {path.name.rpartition("-")[2] for path in write(found, tmp_path)} >= {"nodes.svg", "nodes.png"}
