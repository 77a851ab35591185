"""``python -m benchmarks fairness``: each section runs, and what is not kept is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import fairness

pytestmark = pytest.mark.rest("a benchmark promises nothing: tests/fairness proves that turns and limits hold")


def test_sections_print_what_they_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fairness.main(["--url", f"sqlite:///{tmp_path}/queue.db", "--quick", "--groups", "50", "--most", "1000"])
    lines = capsys.readouterr().out.splitlines()[1:]
    for line, words in zip(
        lines, ("plain", "1 group", "50 groups", *["weights 3 : 1"] * 2, *["one job"] * 2, "concurrency", "rate"), strict=True
    ):
        assert line[2:].startswith(words)
        assert line.endswith("twice 0")
    assert not [line for line in lines[:7] if line.startswith("✗")], lines
    most = re.search(r"at most (\d+) of 5 at once", lines[7])
    assert most is not None
    assert int(most[1]) <= fairness.CONCURRENCY


def test_a_share_that_is_not_kept_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fairness, "SHARE", -1.0)
    assert fairness.main(["--url", f"sqlite:///{tmp_path}/queue.db", "--quick", "--only", "weights"]) == 1
    assert "✗ weights 3 : 1" in capsys.readouterr().out
