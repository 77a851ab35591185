"""Several servers of one database: how one of them is reached, and what it says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect

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


class Role(NamedTuple):
    """What a server of several says of itself."""

    standby: bool
    read_only: bool
    #: Why it takes no changes, if it takes none.
    refusal: str = "read-only"


class Nodes:
    """The servers of a database that has several addresses."""

    def connect_within(
        self, seconds: int, named: str, connect: Callable[[dict[str, Any]], Any], sql: SQLAlchemyDialect, options: dict[str, Any]
    ) -> Any:
        """Connect to one of several servers, within so many seconds also if it accepts the connection and says nothing.

        :param named: the driver's name for its timeout.
        """
        return connect(options | {named: seconds})

    def role(self, driver: Any) -> Role:
        """What the server of a new connection says of itself. Called only if there are several servers.

        :raises Exception: the driver's, if the server takes no statements.
        """
        raise NotImplementedError

    def keep_in_step(self, driver: Any) -> None:
        """Let a new connection see all that other nodes have committed before. Called if each connection goes to another one."""

    def outlive(self, connection: Connection) -> None:
        """Return when no failover can take back what this connection has read before. Called after a COMMIT without a reply."""


class PostgreSQLNodes(Nodes):
    """A primary and its standbys."""

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


class MySQLNodes(Nodes):
    """A source and its replicas, Group Replication, or Galera."""

    def connect_within(
        self, seconds: int, named: str, connect: Callable[[dict[str, Any]], Any], sql: SQLAlchemyDialect, options: dict[str, Any]
    ) -> Any:
        # The timeouts of these drivers end with the connection of the socket, before the server's first message.
        if sql.is_async:
            module = getattr(sql.loaded_dbapi, sql.driver)

            async def made(*arguments: Any, **given: Any) -> Any:
                return await asyncio.wait_for(module.connect(*arguments, **given), seconds)

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
        refuses = str(read_only) not in ("0", "OFF") or any(away)
        return Role(refuses, refuses, "not ready: it has no majority, or not yet its data" if any(away) else "read-only")

    def keep_in_step(self, driver: Any) -> None:
        with driver.cursor() as cursor:
            cursor.execute(_IN_STEP)
