"""Amazon Aurora. NOT RUN HERE: run the conformance suite on yours before you trust it.

URLs: aurorapostgresql://user:password@cluster-endpoint/shop and auroramysql://user:password@instance-1,instance-2/shop

Known from https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/:
- Aurora.Endpoints.Cluster: the cluster endpoint is a DNS name that follows the writer, and only the writer takes changes.
- AuroraMySQL.BestPractices: innodb_read_only is ON on a reader. read_only, which other servers are asked for, does not tell.
- Aurora.Overview.StorageReliability: the storage keeps six copies, not the readers. doctor knows nothing of them.

Guessed: pg_is_in_recovery() is true on a reader, so Aurora PostgreSQL differs in nothing: its URL may begin with postgresql:// too.
Connections to a writer that has become a reader end, or refuse changes with 25006, 1290 or 1836, which the queue knows.
"""

from typing import Any, ClassVar

from sqlalchemy.dialects import registry

from queue_db.dialects.mysql import MySQL
from queue_db.dialects.mysql_server import MySQLServer
from queue_db.dialects.nodes import MySQLNodes, Nodes, Role
from queue_db.dialects.postgresql import PostgreSQL
from queue_db.dialects.server import Server

for _name in ("aurorapostgresql", "aurorapostgresql.psycopg2"):
    registry.register(_name, "sqlalchemy.dialects.postgresql.psycopg2", "PGDialect_psycopg2")
registry.register("aurorapostgresql.asyncpg", "sqlalchemy.dialects.postgresql.asyncpg", "PGDialect_asyncpg")
for _name in ("auroramysql", "auroramysql.pymysql"):
    registry.register(_name, "sqlalchemy.dialects.mysql.pymysql", "MySQLDialect_pymysql")
registry.register("auroramysql.aiomysql", "sqlalchemy.dialects.mysql.aiomysql", "MySQLDialect_aiomysql")


class AuroraPostgreSQL(PostgreSQL):
    """PostgreSQL under another name."""

    names: ClassVar[tuple[str, ...]] = ("aurorapostgresql",)
    title: ClassVar[str] = "Aurora PostgreSQL"


class _Nodes(MySQLNodes):
    def role(self, driver: Any) -> Role:
        with driver.cursor() as cursor:
            cursor.execute("SELECT @@global.innodb_read_only")
            (reader,) = cursor.fetchone()
        return Role(bool(reader), bool(reader))


class _Server(MySQLServer):
    nodes: ClassVar[Nodes] = _Nodes()


class AuroraMySQL(MySQL):
    """MySQL, whose readers tell by another variable that they are readers."""

    names: ClassVar[tuple[str, ...]] = ("auroramysql",)
    title: ClassVar[str] = "Aurora MySQL"
    server_type: ClassVar[type[Server]] = _Server
