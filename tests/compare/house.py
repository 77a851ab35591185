"""A database as its user sees it, before and after a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import NullPool, create_engine, make_url, text

from queue_db.compare.scratch import PREFIX


class House:
    """A user's database: what is in it, and which places of the laboratory stand beside it."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url

    def places(self) -> list[str]:
        if self.kind == "sqlite":
            folder = Path(make_url(self.url).database or "").parent
            return sorted(path.name for path in folder.iterdir() if path.name.startswith(PREFIX))
        query = {"postgresql": "SELECT nspname FROM pg_namespace"}.get(self.kind, "SHOW DATABASES")
        return sorted(name for (name,) in self.ask(query) if name.startswith(PREFIX))

    def tables(self) -> list[str]:
        query = {
            "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
            "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
        }.get(self.kind, "SHOW TABLES")
        return sorted(name for (name,) in self.ask(query))

    def ask(self, query: str) -> list[Any]:
        engine = create_engine(self.url, poolclass=NullPool)
        with engine.connect() as connection:
            return list(connection.execute(text(query)))
