"""``python -m benchmarks spans``: each section runs, and a row that does something twice or not at all says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import drains, spans
from benchmarks.drains import Spans, drain
from benchmarks.running import own_tables

pytestmark = pytest.mark.rest("a benchmark promises nothing: tests/feeds proves that spans are claimed, acknowledged and trimmed")


def test_sections_print_what_they_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    small = ["--scale", "0.0003", "--repeat", "1", "--processes", "1", "--deep", "300", "--trimmed", "200"]
    given = tmp_path / "pgmq.sql"
    given.write_text("CREATE FUNCTION pgmq.read()")
    assert spans.main(["--url", url, "--only", "drain,depth,snapshot", "--pgmq", str(given), *small]) == 0
    out, errors = capfd.readouterr()
    for row in ("spans of 100", "spans of 500", "jobs, 100 per claim"):
        assert re.search(rf"{row} *│[^│]*│[^│]*│ 0 *│ 0 *│ 0 ", out), out
    assert "claim with 300 messages waiting" in out
    assert "claim after 200 messages were trimmed under an old snapshot" in out
    assert "pgmq does not take part: it needs PostgreSQL" in errors
    assert "PgQue does not take part: its SQL is given with --pgque FILE" in errors


def test_a_drain_counts_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    fill = drains.fill_feed
    monkeypatch.setattr(drains, "fill_feed", lambda db, size: fill(db, size - 1))
    with own_tables(url, "jobs"):
        drained = drain(Spans("spans of 10", 10, trims=True), url, "jobs", 20, 1)
    assert (drained.lost, drained.repeated, drained.errors) == (1, 0, 0)
