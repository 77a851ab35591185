"""Several servers of one database: how one of them is reached, and what it says of itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError

from queue_db.dialects import server_probe

# A member that has left its group, or that is not yet in it, is read-only. A node of Galera that has lost its cluster, or that has
# not yet its data, is not ready, and mostly refuses this statement with error 1047. Only MariaDB reads the comment; without Galera
# wsrep_on is off there.
_STATE = """\
SELECT @@global.read_only /*M! ,
    EXISTS (SELECT * FROM information_schema.global_status WHERE variable_name = 'wsrep_ready' AND variable_value <> 'ON')
    AND EXISTS (SELECT * FROM information_schema.global_variables WHERE variable_name = 'wsrep_on' AND variable_value = 'ON') */"""

# A node of Galera applies what another one has committed a moment later. Until then it says of a lease that was made there that
# it is lost. 3: BEGIN, reads, updates and deletes wait for it. MySQL must get a statement too.
_IN_STEP = "SET @in_step = 1 /*M! , SESSION wsrep_sync_wait = 3 */"

# A record in the log of the server, and a transaction. A standby refuses it as read-only.
_RECORD = text("SELECT pg_current_xact_id(), pg_logical_emit_message(true, 'queue_db', CAST('' AS text))")

# A standby that has replayed all that it has received is behind only if it receives nothing.
_LAG = text("""\
SELECT CASE WHEN NOT pg_is_in_recovery() THEN NULL
    WHEN pg_last_wal_receive_lsn() <= pg_last_wal_replay_lsn() AND EXISTS (SELECT * FROM pg_stat_wal_receiver) THEN 0
    ELSE EXTRACT(EPOCH FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END""")

# MySQL shows the replication from all sources. MariaDB shows one of them without ALL; it skips the second comment.
_REPLICA = text("SHOW /*M! ALL REPLICAS */ /*!80000 REPLICA */ STATUS")
# Any row: a node of Galera or Group Replication, or a server that takes no changes and gets them on a way of its own.
_MEMBER = text(
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name', 'innodb_read_only') "
    "AND Value NOT IN ('', 'OFF')"
)
_RECEIVES, _BEHIND = ("Replica_IO_Running", "Slave_IO_Running"), ("Seconds_Behind_Source", "Seconds_Behind_Master")


class Role(NamedTuple):
    """What a server of several says of itself."""

    standby: bool
    read_only: bool


class Nodes:
    """The servers of a database, which may have several addresses."""

    def is_down(self, engine: Engine) -> bool:
        """Whether no server accepts connections now; called after an error without a code. Default: unknown (False)."""
        return False

    def connect_within(
        self, seconds: int, named: str, connect: Callable[[dict[str, Any]], Any], sql: SQLAlchemyDialect, options: dict[str, Any]
    ) -> Any:
        """Connect to one of several servers, within so many seconds also if it accepts the connection and says nothing.

        :param named: the driver's name for its timeout.
        """
        return connect(options | {named: seconds})

    def role(self, driver: Any) -> Role:
        """What the server of a new connection says of itself. Called only if there are several servers.

        :raises OSError: the server is not ready.
        :raises Exception: the driver's, if the server takes no statements.
        """
        raise NotImplementedError

    def lag(self, connection: Connection) -> float:
        """Seconds that the server is behind; inf: it does not replicate; nan: the user may not know.

        A server that was promoted does not replicate: nobody knows whether it still has what the others have.
        """
        raise NotImplementedError

    def keep_in_step(self, driver: Any) -> None:
        """Let a new connection see all that other nodes have committed before. Called if other connections go to other nodes."""

    def outlive(self, connection: Connection) -> None:
        """Return when no failover can take back what this connection has read before. Called after a COMMIT without a reply."""


class PostgreSQLNodes(Nodes):
    """A primary and its standbys."""

    def is_down(self, engine: Engine) -> bool:
        _, options = engine.dialect.create_connect_args(engine.url)
        return server_probe.none_accepts(server_probe.targets(options), options)

    def outlive(self, connection: Connection) -> None:
        # A COMMIT whose session ended while it waited for the standby is seen by all, but a failover takes it back. The COMMIT of
        # any record after it waits for the standby too.
        connection.execute(_RECORD)

    def role(self, driver: Any) -> Role:
        with driver.cursor() as cursor:
            cursor.execute("SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'")
            found = Role(*cursor.fetchone())
        driver.rollback()
        return found

    def lag(self, connection: Connection) -> float:
        seconds = connection.execute(_LAG).scalar()
        return math.inf if seconds is None else float(seconds)


class MySQLNodes(Nodes):
    """A source and its replicas, Group Replication, or Galera."""

    def connect_within(
        self, seconds: int, named: str, connect: Callable[[dict[str, Any]], Any], sql: SQLAlchemyDialect, options: dict[str, Any]
    ) -> Any:
        # The timeouts of these drivers end with the connection of the socket, before the server's first message.
        if sql.is_async:
            module = getattr(sql.loaded_dbapi, sql.driver)

            async def made(*arguments: Any, **given: Any) -> Any:
                async with asyncio.timeout(seconds):
                    return await module.connect(*arguments, **given)

            return connect(options | {named: seconds, "async_creator_fn": made})
        if sql.driver != "pymysql":
            return connect(options | {named: seconds})
        driver = connect(options | {named: seconds, "read_timeout": seconds})
        driver._read_timeout = options.get("read_timeout")  # noqa: SLF001 - a dialect knows the driver
        return driver

    def role(self, driver: Any) -> Role:
        with driver.cursor() as cursor:
            cursor.execute(_STATE)
            read_only, *away = cursor.fetchone()
        if any(away):
            raise ConnectionError("it is not ready: it has no majority, or not yet its data")
        refuses = str(read_only) not in ("0", "OFF")
        return Role(refuses, refuses)

    def lag(self, connection: Connection) -> float:
        try:
            sources = connection.execute(_REPLICA).mappings().all()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            return math.nan
        if not sources:
            return 0.0 if connection.execute(_MEMBER).first() else math.inf
        found = [[next(of[name] for name in names if name in of) for names in (_RECEIVES, _BEHIND)] for of in sources]
        # MySQL says 0 of a replica that has lost its source and has applied what it had received.
        behind = (math.inf if receives != "Yes" or seconds is None else float(seconds) for receives, seconds in found)
        return max(behind)

    def keep_in_step(self, driver: Any) -> None:
        with driver.cursor() as cursor:
            cursor.execute(_IN_STEP)
