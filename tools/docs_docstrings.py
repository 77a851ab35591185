"""Griffe extension for the API reference: reads ``#:`` comments as docstrings of attributes, and docstrings as Markdown."""

import re
from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`(~?)([\w.]+)`")
_COMMENT = re.compile(r"#: ?(.*)")


class Docstrings(Extension):
    """Turns roles into links where the target is part of the reference, and ``::`` into a colon."""

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.lineno and isinstance(attr.filepath, Path):
            text = comment(attr.filepath.read_text(encoding="utf-8").splitlines(), attr.lineno, attr.endlineno or attr.lineno)
            if text:
                attr.docstring = Docstring(markdown(text), parent=attr)

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def comment(lines: list[str], first: int, last: int) -> str:
    """Return the ``#:`` comment at the end of a definition, or above it. ``first`` and ``last`` count from 1."""
    at_end = _COMMENT.search(lines[last - 1])
    if at_end:
        return at_end[1]
    above: list[str] = []
    for line in reversed(lines[: first - 1]):
        found = _COMMENT.match(line.strip())
        if found is None:
            break
        above.insert(0, found[1])
    return " ".join(above)


def markdown(docstring: str) -> str:
    """Return the text of a docstring as Markdown."""
    return re.sub(r"::$", ":", _ROLE.sub(_link, docstring), flags=re.MULTILINE)


def _link(role: re.Match[str]) -> str:
    short, path = role.groups()
    text = f"<code>{path.rpartition('.')[2] if short else path}</code>"
    if not path.startswith("queue_db."):
        return text
    return f'<autoref optional identifier="{path}">{text}</autoref>'
