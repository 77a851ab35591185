"""How the test processes share the files."""

from __future__ import annotations

import re
from pathlib import Path

from tests import conftest

HERE = Path(__file__).parent


def test_every_file_that_uses_the_spark_session_runs_in_one_of_its_processes() -> None:
    uses = re.compile(r"^(?:def test_\w+|def \w+)\((?:[^)]*\W)?spark\W", re.MULTILINE)
    using = {f"tests/spark/{path.name}" for path in (HERE / "spark").glob("test_*.py") if uses.search(path.read_text())}
    assert using == set(conftest._SESSION_OF)


def test_the_files_that_begin_exist() -> None:
    missing = [path for path in conftest.LONGEST if not (HERE.parent / path).exists()]
    assert missing == []


def test_units() -> None:
    units = [conftest.unit_of(f"{path}::test_a[sqlite::x]") for path in conftest.LONGEST]
    assert len(set(units)) == len(units) - len(conftest._SESSION_OF) + len(conftest.SPARK_SESSIONS)
    assert conftest.unit_of("tests/test_servers.py::TestA::test_b[mysql]") == "tests/test_servers.py"
    (path,) = conftest.BY_DATABASE
    assert conftest.unit_of(f"{path}::TestA::test_b[mysql-adaptive-delete-connection]") == f"{path} on mysql"
    assert conftest.unit_of(f"{path}::TestA::test_b[1-sqlite-adaptive-delete]") == f"{path} on sqlite"
