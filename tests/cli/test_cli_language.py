"""Texts that users read are in plain technical English: words that were once used for other things do not come back."""

import ast
import re
from pathlib import Path

import pytest

import queue_db
from queue_db.cli.document import reference

PACKAGE = Path(queue_db.__file__).parent

#: Words that do not appear in texts of the command line, with what to write instead.
RETIRED = {
    r"tells?|told": "print, report, show",
    r"sa(id|ys?)": "state, set, specify",
    r"hears?|heard": "receive",
    r"forgets?|forgotten": "prune, discard",
    r"mends?|mended": "repair, fix",
    r"whom|whoever": "name the subject",
    r"somebody|nobody|everybody": "another worker, no worker, all workers",
    r"for ever": "permanently",
    r"so many": "N, at most N",
    r"of which": "a new sentence",
    r"handed|hands": "give, pass",
    r"took part|in hand at once": "running",
}


def retired(text: str) -> list[str]:
    found = [
        (match[0], instead) for word, instead in RETIRED.items() for match in re.finditer(rf"\b({word})\b", text, re.IGNORECASE)
    ]
    return [f"{word}: {instead}" for word, instead in found]


def texts(module: Path) -> list[str]:
    """All strings of a module, docstrings included."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_no_help_text_has_a_retired_word() -> None:
    assert retired(reference()) == []


@pytest.mark.parametrize("area", ["cli", "compare"])
def test_no_message_has_a_retired_word(area: str) -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {word}"
        for path in (PACKAGE / area).rglob("*.py")
        for text in texts(path)
        for word in retired(text)
    }
    assert found == set()


def test_the_report_has_no_retired_word() -> None:
    for template in (PACKAGE / "compare").rglob("*.jinja"):
        assert retired(template.read_text(encoding="utf-8")) == []


def test_retired_words_are_found() -> None:
    assert retired("Workers are told so many jobs.") == ["told: print, report, show", "so many: N, at most N"]
