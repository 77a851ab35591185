"""The blocks of docs/production.md, by their first words."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")


def block(language: str, begins: str) -> str:
    """The block of this language whose text begins so."""
    found = [code for code in re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL) if code.startswith(begins)]
    assert len(found) == 1, f"docs/production.md has {len(found)} blocks of {language} that begin with {begins!r}"
    return found[0]


def statements(begins: str) -> list[str]:
    """The statements of a block of SQL, without comments."""
    code = re.sub(r"--[^\n]*", "", block("sql", begins))
    return [" ".join(one.split()) for one in code.split(";") if one.strip()]


def commands(begins: str) -> str:
    """The commands of a block of a shell."""
    return block("sh", begins)
