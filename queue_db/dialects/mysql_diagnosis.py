"""What MySQL and MariaDB show of themselves: accounts, and transactions that are open for long."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from queue_db.dialects.diagnosis import MOST, Diagnosis, OpenTransaction

# The table has times of the server's zone, and NOW() has the session's. A transaction that has locked nothing, and reads what is
# committed, holds up nothing. Thread 0 is a transaction without a connection.
_OPEN = text(
    "SELECT t.trx_mysql_thread_id AS thread, p.user AS name, p.command AS state, "
    "TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')) AS age "
    "FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
    "WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID()) "
    "AND (t.trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE') OR t.trx_rows_locked + t.trx_rows_modified > 0) "
    "HAVING age >= :age ORDER BY age DESC LIMIT :most"
)

# The error of a user without the right PROCESS.
_NOT_ALLOWED = 1227


class MySQLDiagnosis(Diagnosis):
    """Accounts with their hosts, and ``information_schema.innodb_trx``."""

    when_read_only: ClassVar[str] = "connect to the primary, or switch read_only off"

    def grantee(self, connection: Connection) -> str:
        # The account that the server has chosen for this user. A GRANT to a name alone is one to its account for all hosts, which
        # need not exist.
        name, _, host = str(connection.execute(text("SELECT CURRENT_USER()")).scalar_one()).rpartition("@")
        return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))

    def open_transactions(self, connection: Connection, age: float) -> list[OpenTransaction]:
        if self.hidden_transactions(connection):
            return []
        rows = connection.execute(_OPEN, {"age": age, "most": MOST})
        return [OpenTransaction(row.state or "unknown", row.name, float(row.age), f"KILL {row.thread}") for row in rows]

    def hidden_transactions(self, connection: Connection) -> str | None:
        try:
            connection.execute(text("SELECT 1 FROM information_schema.innodb_trx LIMIT 1")).close()
        except DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] != _NOT_ALLOWED:
                raise
            return f"GRANT PROCESS ON *.* TO {self.grantee(connection)}"
        return None
