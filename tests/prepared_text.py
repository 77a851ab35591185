"""What a statement that PostgreSQL has prepared does."""

from __future__ import annotations

from typing import Any


def text_of(cursor: Any, statement: str) -> str:
    """The statement, or what ``EXECUTE name (…)`` runs on this driver's cursor."""
    command, _, rest = statement.lstrip().partition(" ")
    if command != "EXECUTE":
        return statement
    with cursor.connection.cursor() as other:
        other.execute("SELECT statement FROM pg_prepared_statements WHERE name = %s", [rest.split()[0]])
        prepared: str = other.fetchone()[0]
    return prepared.partition(" AS ")[2]
