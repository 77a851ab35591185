"""Options of Spark's own JDBC source for the database of a SQLAlchemy URL."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import URL

from queue_db.database.masking import MASK, is_secret
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_for
from queue_db.spark.dialects import SparkDialect

# Rows in a written batch, and rows that are read at a time. Spark's defaults are 1000, and 0: the driver's, which is the whole
# table.
_ROWS = {"batchsize": "10000", "fetchsize": "10000"}


@dataclass(frozen=True)
class JDBC:
    """Arguments for ``spark.read.jdbc(url, table, properties=…)`` and ``df.write.jdbc(url, table, mode="append", properties=…)``.

    Its ``repr`` masks passwords; ``properties`` has them.
    """

    #: ``jdbc:…://host:port/database``, without user and password.
    url: str
    #: Class of the driver; also in ``properties``.
    driver: str
    #: User, password, driver, and options of the driver and of Spark. More may be added.
    properties: dict[str, str]

    def __repr__(self) -> str:
        shown = {name: MASK if is_secret(name) else value for name, value in self.properties.items()}
        return f"JDBC(url={self.url!r}, driver={self.driver!r}, properties={shown!r})"


def jdbc_options(url: str | URL, *, driver: str | None = None) -> JDBC:
    """The address, driver and properties with which Spark's own JDBC source reads and appends to the tables of ``url``.

    User and password are only in ``properties``. The properties write many rows in one statement (``batchsize`` 10,000; 1,000 with
    MySQL's driver), read them in portions (``fetchsize`` 10,000), keep payloads out of messages, and limit the time to connect to
    10 seconds. Options in the URL's query are translated to their JDBC names, TLS and timeouts among them; a file that one of them
    names must be on the driver and on every executor. MariaDB's driver uses TLS only if the URL asks for it (PyMySQL does whenever
    the server can): ``?ssl_check_hostname=false`` for any certificate, ``?ssl_ca=/ca.pem`` for a verified one. No connection is
    made.

    :param url: of PostgreSQL, MySQL or MariaDB, for SQLAlchemy.
    :param driver: another class than ``org.postgresql.Driver`` or ``org.mariadb.jdbc.Driver`` (for MySQL too):
        ``com.mysql.cj.jdbc.Driver``.
    :raises ArgumentError: a URL without a host, an option in it without a JDBC name, or an unknown ``driver``.
    :raises ConfigurationError: text that is not a URL, or an unknown scheme; UnsupportedError for SQLite.
    """
    parsed = parse_url(url)
    address, name, properties = SparkDialect.of(dialect_for(parsed.get_backend_name())).jdbc(parsed, driver)
    account = {"user": parsed.username, "password": parsed.password}
    given = {key: str(value) for key, value in account.items() if value is not None}
    return JDBC(address, name, {**given, "driver": name, **_ROWS, **properties})
