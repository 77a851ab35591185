"""Griffe extension for the API reference: the reStructuredText that our docstrings use, as Markdown."""

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`(~?)([\w.]+)`")


class Docstrings(Extension):
    """Turns roles into links where the target is part of the reference, and ``::`` into a colon."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    """Return the text of a docstring as Markdown."""
    return re.sub(r"::$", ":", _ROLE.sub(_link, docstring), flags=re.MULTILINE)


def _link(role: re.Match[str]) -> str:
    short, path = role.groups()
    text = f"<code>{path.rpartition('.')[2] if short else path}</code>"
    if not path.startswith("queue_db."):
        return text
    return f'<autoref optional identifier="{path}">{text}</autoref>'
