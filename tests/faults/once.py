"""An accident at a statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event


class Once:
    """Call ``act`` before the n-th statement of an engine that begins with ``start``, and never again."""

    def __init__(self, engine: Engine, start: str, act: Callable[[], object], at: int = 1) -> None:
        self.left = at
        self._start = start
        self._act = act
        event.listen(engine, "before_cursor_execute", self._count)

    def _count(self, connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(self._start):
            self.left -= 1
            if self.left == 0:
                self._act()

    @property
    def happened(self) -> bool:
        return self.left <= 0
