"""YugabyteDB 2025.1 and later (PostgreSQL 15). NOT RUN HERE: run the conformance suite on yours before you trust it.

URL: yugabytedb://user:password@a,b,c/shop?nodes=all

Known from https://docs.yugabyte.com/stable/ and from issues of yugabyte/yugabyte-db:
- api/ysql/the-sql-language/statements/cmd_listen_notify: early access from 2025.2.3 on; before it LISTEN fails.
- architecture/transactions/read-committed: needs yb_enable_read_committed_isolation=true on the servers; else the isolation is
  REPEATABLE READ, and a lost version check is an error 40001, which the queue takes for a conflict.
- explore/transactions/explicit-locking: row locks hold on all nodes, so each node takes changes.
- explore/going-beyond-sql/data-sharding: a primary key is spread by its hash, so reads in the order of ids are slow. For range
  sharding migrate with options=-c%20yb_use_hash_splitting_by_default%3Doff in the URL.
- issue 6782: a statement cannot change a row twice, in two parts of a WITH. Issue 24843: there is no ctid.

Guessed: the servers' settings for plans (enable_seqscan=off and others), lock_timeout, COPY and prepared statements work as on
PostgreSQL; options of tables are ignored with a notice; a sequence that is cached (ysql_sequence_cache_minval) gives each session
ids in ascending order.
"""

from dataclasses import replace
from typing import ClassVar

from sqlalchemy.dialects import registry

from queue_db.dialects.nodes import Nodes, PostgreSQLNodes
from queue_db.dialects.postgresql import PostgreSQL
from queue_db.dialects.postgresql_server import PostgreSQLServer
from queue_db.dialects.server import Drivers, Server
from queue_db.spark.dialects.base import SparkDialect
from queue_db.spark.dialects.postgresql import PostgreSQLForSpark

for _name in ("yugabytedb", "yugabytedb.psycopg2"):
    registry.register(_name, "sqlalchemy.dialects.postgresql.psycopg2", "PGDialect_psycopg2")
registry.register("yugabytedb.asyncpg", "sqlalchemy.dialects.postgresql.asyncpg", "PGDialect_asyncpg")


class _Nodes(PostgreSQLNodes):
    outlive = Nodes.outlive  # what can be read is on a majority


class _Server(PostgreSQLServer):
    nodes: ClassVar[Nodes] = _Nodes()


class YugabyteDB(PostgreSQL):
    """PostgreSQL without notifications, and without statements that change a table in two places."""

    names: ClassVar[tuple[str, ...]] = ("yugabytedb",)
    title: ClassVar[str] = "YugabyteDB"
    drivers: ClassVar[Drivers] = replace(PostgreSQL.drivers, port=5433)
    server_type: ClassVar[type[Server]] = _Server
    notifies: ClassVar[bool] = False
    deletes_on_claim: ClassVar[bool] = False
    changes_in_with: ClassVar[bool] = False


class YugabyteDBForSpark(PostgreSQLForSpark):
    """Streams find the jobs that they move by id, not by ctid."""

    names: ClassVar[tuple[str, ...]] = ("yugabytedb",)
    move_to_held = SparkDialect.move_to_held
