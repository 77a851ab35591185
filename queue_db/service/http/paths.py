"""Names in URLs: each name is one segment of the path, and may contain ``/``, ``%`` and any other character.

Servers decode the whole path, so that ``a%2Fb`` becomes two segments. :class:`Paths` decodes it by segment and keeps ``%2F``
and ``%25`` as they are; the type :data:`Name` of an endpoint's parameter decodes those. The names ``.`` and ``..`` have no URL.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import Path
from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError
from starlette.types import ASGIApp, Receive, Scope, Send

# Letters of some languages and many emoji need them.
_JOINERS = "\u200c\u200d"

_KEPT = re.compile(rb"%(?=2[Ff]|25)")


def escaped(name: str) -> str:
    """A name as one segment of a path: ``request.url_for("queue", name=escaped(name))``."""
    return quote(name, safe="")


def unescaped(segment: Any) -> Any:
    """The name of a segment as :class:`Paths` leaves it."""
    return unquote(segment) if isinstance(segment, str) else segment


#: A parameter of an endpoint: one segment of the path as the name that it means.
Name = Annotated[str, Path(min_length=1, max_length=250), BeforeValidator(unescaped)]


def visible(name: str) -> str:
    """Refuse a new name with characters that nobody sees: it would look like another one."""
    for character in name:
        if unicodedata.category(character) in {"Cf", "Zl", "Zp"} and character not in _JOINERS:
            raise PydanticCustomError("invisible", "has the invisible character {code}", {"code": f"U+{ord(character):04X}"})
    return name


#: The name of something that the request may create.
NewName = Annotated[Name, AfterValidator(visible)]


def decoded(raw: bytes) -> str:
    """A path decoded, except ``%2F`` and ``%25``."""
    return unquote(_KEPT.sub(b"%25", raw.partition(b"?")[0]).decode("latin-1"), encoding="utf-8", errors="replace")


class Paths:
    """Let the application see paths with ``%2F`` and ``%25`` still escaped, and make URLs of its own routes, wherever mounted."""

    def __init__(self, app: ASGIApp, router: Any) -> None:
        self.app = app
        self.router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # ``raw_path`` is optional; without it nobody knows what was escaped, and a "/" divides.
            raw = scope.get("raw_path")
            path = decoded(raw) if raw else scope["path"].replace("%", "%25")
            root = scope.get("root_path", "")
            if root and not path.startswith(root):
                # The server, or a proxy, has cut the prefix off, or it has escaped characters itself.
                path = root + path if not scope["path"].startswith(root) else scope["path"].replace("%", "%25")
            # url_for() looks for a route by its name: in this application, not in the one that it is mounted in.
            scope = {**scope, "path": path, "router": self.router, "app_root_path": root}
        await self.app(scope, receive, send)
