"""The code in the documents runs, and the tables in them are what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_db import QueueDB
from queue_db.dialects import registered
from tests.conftest import KINDS
from tests.docs.tables import capability_table, statement_row

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: Languages whose blocks are run; the others are shown only, and are listed here so that a new one is a decision.
RUN = {"python", "console"}
#: The bash examples of cli.md are parsed by tests/cli.
SHOWN = {"sh", "bash", "sql", "text", "toml", "json", "ini", "yaml"}


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one namespace and one folder, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("__readme__")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look there
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    environment.pop("QUEUE_DB_URL", None)
    for number, (language, code) in enumerate(blocks(page), 1):
        assert language in RUN | SHOWN, f"{page.name}: a block of {language}: say in this test whether it runs"
        if language == "python":
            exec(compile(code, f"{page.name}, block {number}", "exec", dont_inherit=True), vars(module))  # noqa: S102 - that is the point
        elif language == "console":
            script = "\n".join(line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ "))
            done = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page.name}, block {number}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_readme_names_commands_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def between(page: str, name: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return text.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0].strip().splitlines()


def test_the_capability_table_is_printed_from_the_dialects() -> None:
    assert between("explanation.md", "capabilities") == capability_table(), "run: python -m tests.docs.tables"


@pytest.mark.parametrize("kind", KINDS, scope="session")
def test_the_statement_table_is_what_is_counted(kind: str, open_db: Callable[..., QueueDB], name: str) -> None:
    row = statement_row(kind, open_db(strategy="optimistic"), name)
    assert row in between("explanation.md", "statements"), f"counted: {row}"


def test_every_dialect_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(kind.title in readme for kind in registered().values() if kind.__module__.startswith("queue_db."))
