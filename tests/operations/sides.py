"""An operation on its three sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sides:
    """One operation: the function, its entry in the action log, and how each side asks for it.

    Texts may have names in braces: what the preparation of the database returned.
    """

    operation: str
    #: Word, target and number.
    entry: tuple[str, str, int | None]
    command: str
    #: Method, path under /api/v1, and the body.
    request: tuple[str, str] | tuple[str, str, Any]
    #: The page that has the form.
    page: str
    #: Where the form leads, and the fields that a person fills in; hidden ones are those of the page.
    form: tuple[str, dict[str, str]]

    def __str__(self) -> str:
        return f"{self.operation} {self.command}"
