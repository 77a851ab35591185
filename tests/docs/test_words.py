"""The glossary names what is in the code, troubleshooting has each error, and pages name commands and files that are there."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from queue_db import QueueDB, errors
from queue_db.aio import AsyncQueueDB
from queue_db.cli.app import app
from queue_db.store.schema.tables import tables
from queue_db.strategies import known_strategies

DOCS = Path(__file__).resolve().parents[2] / "docs"

#: Of all pages together, without their code. The bars of tables are no words.
MOST_WORDS = 38_100

#: Of README and docs with their code, as ``wc -w README.md docs/*.md`` counts them.
MOST_WITH_CODE = 44_500


def test_the_glossary_names_what_is_in_the_code() -> None:
    entries = re.findall(r"^- (.*)$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    rows = [re.fullmatch(r"\*\*([^*]+)\*\*: .* \((`[^()]+`)\)", entry) or entry for entry in entries]
    assert [row for row in rows if isinstance(row, str)] == [], "an entry is: - **word**: meaning (`name in the code`)"
    named = {row[1]: re.findall(r"`([^`]+)`", row[2]) for row in rows}
    assert named
    assert [f"{word}: there is no {name}" for word, names in named.items() for name in names or [""] if not found(name)] == []


@pytest.mark.parametrize("strategy", known_strategies())
def test_every_strategy_is_in_the_docs(strategy: str) -> None:
    for page in ("strategies.md", "reference.md"):
        assert re.search(rf"^\| [^\n]*`{strategy}`", (DOCS / page).read_text(), re.MULTILINE), (
            f"no table of docs/{page} has `{strategy}`"
        )
    for owner in (QueueDB, AsyncQueueDB):
        assert f"``{strategy}``" in (owner.__doc__ or ""), f"the docstring of {owner.__name__} does not name {strategy}"


def test_every_error_has_a_cause_and_a_fix() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    reference = (DOCS / "reference.md").read_text()
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.QueueDBError):
            assert f"\n- `{name}`: " in page, name
            assert f"`{name}`" in reference, name


def found(name: str) -> bool:
    """Whether this is a table, a column, a module, or an attribute or field of a class."""
    here = tables()
    table, _, column = name.partition(".")
    if table in here.metadata.tables:
        return not column or column in here.metadata.tables[table].columns
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if part in getattr(value, "__dataclass_fields__", {}):
                return True
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_every_place_that_contributing_names_is_there() -> None:
    text = (DOCS.parent / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`((?:queue_db|tests|migrations|tools)/[\w/.]*)`", text):
        assert (DOCS.parent / path).exists() or path == "queue_db/migrations", path


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_the_commands_that_a_page_shows_can_be_typed(page: Path) -> None:
    """Their names, arguments and options exist; capitals stand for a number or a name, and a required argument may be left out."""
    text = page.read_text()
    lines = re.findall(r"^(?:\$ )?(queue-db [^\n]*)$", text, re.MULTILINE)
    for code in [*lines, *re.findall(r"`(queue-db [^`]*)`", text)]:
        words = shlex.split(re.split(r"\s(?:\||\|\||&&|>)\s", code)[0].replace("…", "x"), comments=True)[1:]
        typed(["1" if word in {"ID", "N", "SECONDS"} else word for word in words], code)


def typed(words: list[str], code: str) -> None:
    command, path = COMMANDS, []
    while words and isinstance(command, dict):
        path.append(words.pop(0))
        if path[0].startswith("-") or path[-1] == "COMMAND":
            return
        assert path[-1] in command, code
        command = command[path[-1]]
    if isinstance(command, dict):
        return  # a group: `queue-db streams`
    for parameter in command.params:
        parameter.required = False
    command.make_context("queue-db", words)


def tree(group: Any) -> dict[str, Any]:
    return {name: tree(one) if hasattr(one, "commands") else one for name, one in group.commands.items()}


COMMANDS = tree(typer.main.get_command(app))


def test_all_pages_together_are_read_in_an_evening() -> None:
    root = DOCS.parent
    pages = [*DOCS.rglob("*.md"), root / "benchmarks" / "README.md", *(root / "spark_jobs").glob("*.md")]
    words = {page: len(re.findall(r"\S*\w\S*", prose(page.read_text()))) for page in [*pages, *root.glob("[A-Z]*.md")]}
    longest = sorted(words, key=words.__getitem__, reverse=True)[:8]
    together = sum(words.values())
    told = ", ".join(f"{page.relative_to(root)} {words[page]}" for page in longest)
    assert together <= MOST_WORDS, f"{together} words; the longest pages: {told}"
    assert sum(len(page.read_text().split()) for page in [root / "README.md", *DOCS.glob("*.md")]) <= MOST_WITH_CODE


def prose(text: str) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
