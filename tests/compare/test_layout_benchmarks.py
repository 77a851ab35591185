"""``python -m benchmarks layouts``: each layout executes each job once and keeps its fence; a layout that does not is reported."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, inspect

from benchmarks import layouts
from benchmarks.layouts.portable import PortableStatements
from benchmarks.layouts.postgresql import PostgreSQLStatements

pytestmark = [
    pytest.mark.parametrize("kind", ["postgresql", "mariadb"]),
    pytest.mark.rest("layouts that are not the product's: tests/negative takes the fence away from its own"),
]

SMALL = ["--scale", "0.001", "--repeat", "1", "--processes", "2", "--batches", "10"]
TRIED = ("today", "leases", "moving", "narrow", "unpadded", "fixed")


def test_each_layout_executes_each_job_once(kind: str, fresh_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert layouts.main(["--url", fresh_url, "--layouts", ",".join(TRIED), "--only", "drain,standing,costs,steady", *SMALL]) == 0
    out = capfd.readouterr().out
    for name in TRIED:
        # Two drains and the steady state end with two zeros: jobs that went wrong, errors.
        assert len(re.findall(rf"^│ {name} .*│ 0 *│ 0 *│$", out, re.MULTILINE)) == 3, out
    assert "a claim behind 20 leases that last" in out
    engine = create_engine(fresh_url, poolclass=NullPool)
    assert inspect(engine).get_table_names() == []


@pytest.mark.parametrize("layout", ["today", "moving"])
def test_a_completion_without_a_fence_is_reported(kind: str, fresh_url: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = PostgreSQLStatements if kind == "postgresql" else PortableStatements
    complete = statements.complete

    def unfenced(self: Any, connection: Any, pairs: Any) -> int:
        # With the versions that the rows have now.
        held = connection.execute(self.layout.leased.select()).all()
        now = {row.id: row.version for row in held}
        return complete(self, connection, [(job_id, now.get(job_id, version)) for job_id, version in pairs])

    monkeypatch.setattr(statements, "complete", unfenced)
    with pytest.raises(AssertionError, match="a lease that has ended completed a job"):
        layouts.main(["--url", fresh_url, "--layouts", layout, "--only", "costs", *SMALL])
