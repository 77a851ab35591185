"""The example of the conformance suite's page, as a user copies it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "api" / "testing.md"
MIGRATES = "        db.migrate()\n"


def run(folder: Path, module: str, *options: str) -> tuple[int, str]:
    """The exit status and the output of pytest on a module of a user."""
    (folder / "test_mine.py").write_text(module)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_mine.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def example() -> str:
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_example_runs(tmp_path: Path) -> None:
    status, output = run(tmp_path, example(), "-k", "TestOrder or TestLease")
    assert status == 0, output
    assert re.search(r"\d+ passed, \d+ deselected", output), output


@pytest.mark.rest("above it the suite runs as users run it")
def test_without_the_tables_it_ends_at_the_first_test_and_says_why(tmp_path: Path) -> None:
    assert MIGRATES in example()
    status, output = run(tmp_path, example().replace(MIGRATES, "        pass\n"))
    assert status == 4
    assert "open_db opens a database that is not migrated: " in output
    assert "migrate" in output.partition("not migrated: ")[2]
    assert " failed" not in output


@pytest.mark.rest("above it the suite runs as users run it")
def test_the_bound_of_a_strategy_is_its_own(tmp_path: Path) -> None:
    """Without the example's ``displacement`` its window is too wide: the suite judges what the example gives it."""
    module = example().replace("return 9  #", "return 0  #")
    status, output = run(tmp_path, module, "-k", "test_single_claims_skip_no_more_than_the_window")
    assert status == 1, output
    assert "the fixture `displacement` allows 0" in output
