"""What ``queue-db doctor`` reads of a database beside the tables: rights, and transactions that are open for long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlalchemy import Connection, Table

#: Most transactions in one diagnosis, the oldest first.
MOST = 10


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of another connection that holds up the queue."""

    #: What its connection does, in the server's words.
    state: str
    #: None: the server shows none.
    user: str | None
    #: How long it has been open, seconds.
    age: float
    #: The statement that ends it.
    end: str


class Diagnosis:
    """What a database can be asked about itself, with defaults for one that cannot."""

    #: What to do where the database takes no changes.
    when_read_only: ClassVar[str] = "connect to a server that takes changes"

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        """Settings of the server and of the table that matter for performance."""
        return {}

    def grantee(self, connection: Connection) -> str:
        """The user of this connection, as a GRANT names it. Default: there are no users."""
        return "…"

    def closed_schema(self, connection: Connection, jobs: Table) -> str | None:
        """The schema of the tables, quoted, if the user has no right to use it. Default: schemas need no right (None)."""
        return None

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """The id sequences of these tables that the user has no right to use. Default: ids need no right of their own."""
        return []

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        """The transactions of other connections that hold up the queue and are open for more than ``age`` seconds, as far as the
        user may see them. Default: unknown (none).
        """
        return []

    def hidden_transactions(self, connection: Connection) -> str | None:
        """The GRANT without which the user does not see the transactions of other users; None: it sees them. Default."""
        return None
