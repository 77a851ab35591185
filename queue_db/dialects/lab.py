"""What a comparison of strategies needs of a database: a scratch schema, and facts about the server."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import URL, Connection, Table
from sqlalchemy.schema import CreateSchema, DropSchema


class Laboratory:
    """The verbs of ``queue-db compare`` and of diagnosis, with defaults that work on most databases."""

    #: Whether a commit is visible before it is on disk: InnoDB shows it first and flushes then, PostgreSQL the other way round.
    shows_unflushed: ClassVar[bool] = False

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        """Settings of the server and of the table that matter for performance."""
        return {}

    def process(self, connection: Connection) -> int | None:
        """The process id of the server or of one of its processes; None: unknown."""
        return None

    def scratch_schema(self, url: URL, name: str) -> tuple[URL, str | None]:
        """The URL and the schema of tables apart from all others. Default: a schema of that name."""
        return url, name

    def make_scratch_schema(self, connection: Connection, name: str) -> None:
        """Create the scratch schema."""
        connection.execute(CreateSchema(name))

    def drop_scratch_schema(self, connection: Connection, name: str) -> None:
        """Drop the scratch schema with its tables, if it exists."""
        connection.execute(DropSchema(name, cascade=True, if_exists=True))

    def analyze(self, connection: Connection, table: Table) -> None:
        """Update the planner's statistics of the table. Default: not needed."""
