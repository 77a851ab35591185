"""Which tests are chosen for a mutant."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.mutate import Mutant, mutants
from tests.mutants.reached import Reached
from tests.mutants.score import interval

ROOT = Path(__file__).parents[2]

CODE = """
LIMIT = 3

def double(number):
    if number > LIMIT:
        return number * 4
    return number * 2

def unused(number):
    return number * 9
"""

TESTS = """
import threading
import pytest
from code_of_this import double

@pytest.mark.parametrize("number", [1, 2])
def test_low(number):
    assert double(number) == 2 * number

def test_high():
    assert double(4) == 16

def test_in_a_thread():
    thread = threading.Thread(target=double, args=(4,))
    thread.start()
    thread.join()

def test_fails():
    assert double(4) == 8

def test_nothing():
    pass
"""

PROGRAM = """
import sys
from pathlib import Path
import pytest
from tests.mutants.reached import Recorder
folder = Path(sys.argv[1])
recorder = Recorder(folder, ["code_of_this.py"], folder / "record.json")
pytest.main(["-q", "-n0", "-p", "no:cacheprovider", "test_it.py"], plugins=[recorder])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project, whose tests have been recorded."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in {"code_of_this.py": CODE, "test_it.py": TESTS, "pytest.ini": "[pytest]\npythonpath = .\n"}.items():
        (folder / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", PROGRAM, folder], cwd=folder, env=environment, check=True, capture_output=True)
    return folder


def chosen(folder: Path, old: str, budget: float = 60.0) -> list[str]:
    reached = Reached(folder / "record.json", folder)
    return [nodeid.partition("::")[2] for nodeid in reached.tests(mutant(old), budget)]


def mutant(old: str) -> Mutant:
    return next(one for one in mutants("code_of_this.py", CODE) if one.old == old)


def test_those_that_reach_the_line_and_pass(folder: Path) -> None:
    assert sorted(chosen(folder, "number * 4")) == ["test_high", "test_in_a_thread"]


def test_one_of_each_function_comes_first(folder: Path) -> None:
    found = chosen(folder, "number > LIMIT")
    assert len(found) == 4
    assert found[3].startswith("test_low[")


def test_those_that_reach_the_file_if_it_runs_at_import_or_not_at_all(folder: Path) -> None:
    assert sorted(chosen(folder, "3")) == sorted(chosen(folder, "number * 9")) == sorted(chosen(folder, "number > LIMIT"))
    reached = Reached(folder / "record.json", folder)
    assert [reached.reaches(mutant(old)) for old in ("3", "number * 9", "number * 2")] == [True, False, True]


def test_not_more_than_the_budget(folder: Path) -> None:
    assert chosen(folder, "number > LIMIT", budget=-1.0) == []


def test_a_record_of_other_code_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "code_of_this.py").write_text(CODE.replace("3", "4"))
    with pytest.raises(SystemExit, match="of another state of the code"):
        Reached(folder / "record.json", tmp_path)


def test_the_interval_of_a_share() -> None:
    low, high = interval(45, 50)
    assert (round(low, 3), round(high, 3)) == (0.786, 0.957)
