"""Count the statements that are sent to the database: round trips are the cost of a queue, so tests pin their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

_NOT_COUNTED = ("BEGIN", "COMMIT", "ROLLBACK", "PREPARE ", "DEALLOCATE ")


@contextmanager
def counted_statements(engine: Engine) -> Iterator[list[str]]:
    """The texts of the statements that run on ``engine`` inside the block; ``len()`` is their number.

    Not counted: BEGIN, COMMIT, ROLLBACK, and PREPARE, which each connection sends once.
    """
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(_NOT_COUNTED):
            seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)
