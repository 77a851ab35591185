"""CockroachDB 24.1 and later, with psycopg2. NOT RUN HERE: run the conformance suite on yours before you trust it.

URL, with ids from a sequence: cockroachdb://user:password@host/shop?options=-c%20serial_normalization%3Dsql_sequence

Known from https://www.cockroachlabs.com/docs/stable/ and, where it says so, from the source:
- postgresql-compatibility: no LISTEN and NOTIFY; advisory locks have no effect (the queue uses none).
- read-committed: the isolation that the queue asks for is on by default; else it is SERIALIZABLE, with more errors 40001.
- select-for-update: SKIP LOCKED is there, and row locks hold on all nodes, so each node takes changes.
- serial: an id is unique_rowid() unless the URL says otherwise: beyond 2**53, which JavaScript rounds.
- The source: a table takes no options of autovacuum (table_storage_param.go); a session ignores settings unknown to it (pgwire).
- The error "multiple mutations of the same table": one statement changes a table once, so none completes and claims.

Guessed: SQLAlchemy cannot read the version, so the server counts as PostgreSQL 13; migrations run in one transaction; COPY is not
used. 40003: a COMMIT, or a statement alone, may have taken effect.
"""

from dataclasses import replace
from typing import Any, ClassVar

from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGDDLCompiler
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

from queue_db.dialects.base import ReturningDialect
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.inserts import Inserts
from queue_db.dialects.nodes import Nodes, PostgreSQLNodes
from queue_db.dialects.postgresql_inserts import PostgreSQLInserts
from queue_db.dialects.postgresql_server import ERRORS, PostgreSQLServer
from queue_db.dialects.server import Drivers, Server
from queue_db.model import Capability


class _Tables(PGDDLCompiler):
    def post_create_table(self, table: Any) -> str:
        return ""


class SQLAlchemyDialect(PGDialect_psycopg2):
    """PostgreSQL's, without options of tables. Its name stays postgresql, so the migrations are PostgreSQL's."""

    ddl_compiler = _Tables
    supports_statement_cache = True

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        return (13,)


for _name in ("cockroachdb", "cockroachdb.psycopg2"):
    registry.register(_name, __name__, "SQLAlchemyDialect")


class _Inserts(PostgreSQLInserts):
    load_new = Inserts.load_new


class _Nodes(PostgreSQLNodes):
    outlive = Nodes.outlive  # what can be read is on a majority


class _Server(PostgreSQLServer):
    nodes: ClassVar[Nodes] = _Nodes()


class CockroachDB(ReturningDialect):
    """Portable claims, which change the table once in a statement."""

    names: ClassVar[tuple[str, ...]] = ("cockroachdb",)
    title: ClassVar[str] = "CockroachDB"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability) - {Capability.SEVERAL_WRITERS}
    drivers: ClassVar[Drivers] = Drivers("psycopg2", "postgresql", port=26257)
    errors: ClassVar[ErrorCodes] = replace(ERRORS, transient=ERRORS.transient | {"40003"}, in_doubt=frozenset({"40003"}))
    inserts: ClassVar[Inserts] = _Inserts()
    server_type: ClassVar[type[Server]] = _Server
    autocommits: ClassVar[bool] = True
