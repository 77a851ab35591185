"""For those who stay with Spark's own JDBC source: what it must be told to reach the database of a SQLAlchemy URL."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import URL

from queue_db.database.database import parse_url
from queue_db.database.masking import MASK, is_secret
from queue_db.dialects import dialect_for

# Rows in a batch, and rows that are read ahead. Spark's own are 1000, and 0: as the driver likes, which is all of the table.
_ROWS = {"batchsize": "10000", "fetchsize": "10000"}


@dataclass(frozen=True)
class JDBC:
    """Arguments for ``spark.read.jdbc(url, table, properties=…)`` and ``df.write.jdbc(url, table, mode="append", properties=…)``.

    Its ``repr`` shows no password; ``properties`` alone does.
    """

    #: ``jdbc:…://host:port/database``, without user and password.
    url: str
    #: Class of the driver; it is in ``properties`` too.
    driver: str
    #: User, password, driver, and options of the driver and of Spark. Add to it what else you want.
    properties: dict[str, str]

    def __repr__(self) -> str:
        shown = {name: MASK if is_secret(name) else value for name, value in self.properties.items()}
        return f"JDBC(url={self.url!r}, driver={self.driver!r}, properties={shown!r})"


def jdbc_options(url: str | URL, *, driver: str | None = None) -> JDBC:
    """The address, driver and properties with which Spark's own JDBC source reads and appends to the tables of ``url``.

    User and password are in ``properties`` alone. The properties make many rows travel in one statement (``batchsize`` 10,000;
    1,000 with MySQL's driver) and come back in portions (``fetchsize`` 10,000), keep payloads out of messages, and limit the time
    to connect to 10 seconds. Options in the URL's query are taken over under their names in JDBC, TLS and timeouts among them; a
    file that one of them names must be there on the driver and on every executor. MariaDB's driver uses TLS only if the URL asks
    for it (PyMySQL does whenever the server can): ``?ssl_check_hostname=false`` for any certificate, ``?ssl_ca=/ca.pem`` for one
    that is verified. Nothing is opened or looked up.

    :param url: of PostgreSQL, MySQL or MariaDB, for SQLAlchemy.
    :param driver: another class than ``org.postgresql.Driver`` or ``org.mariadb.jdbc.Driver`` (for MySQL too):
        ``com.mysql.cj.jdbc.Driver``.
    :raises ArgumentError: for a URL without a host, an option in it that has no name in JDBC, or an unknown ``driver``.
    :raises ConfigurationError: for text that is no URL, or an unknown scheme; an UnsupportedError for SQLite.
    """
    parsed = parse_url(url)
    address, name, properties = dialect_for(parsed.get_backend_name()).jdbc(parsed, driver)
    account = {"user": parsed.username, "password": parsed.password}
    given = {key: str(value) for key, value in account.items() if value is not None}
    return JDBC(address, name, {**given, "driver": name, **_ROWS, **properties})
