"""Broker URLs: ``queuedb+`` before the URL of the database."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from kombu import Connection

#: What a broker URL begins with.
SCHEME = "queuedb"

_DATABASES = {
    "sqlite": ("pysqlite",),
    "postgresql": ("psycopg2", "psycopg"),
    "mysql": ("pymysql", "mysqldb", "mysqlconnector"),
    "mariadb": ("pymysql", "mysqldb", "mariadbconnector"),
}

#: The names under which Kombu looks the transport up. It takes the whole scheme for an alternate URL of ``broker_url``.
SCHEMES = (
    SCHEME,
    *(f"{SCHEME}+{name}" for name in _DATABASES),
    *(f"{SCHEME}+{name}+{driver}" for name, drivers in _DATABASES.items() for driver in drivers),
)

#: The driver of a URL without one, where SQLAlchemy has another default.
DRIVERS = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}


def database_url(client: Connection[Any]) -> str:
    """The URL of the database of a Kombu connection."""
    scheme = str(client.transport_cls)
    if "+" not in scheme:
        return str(client.hostname)
    # Kombu has taken an alternate URL apart.
    kind = scheme.partition("+")[2]
    login = ":".join(quote(str(part), safe="") for part in (client.userid, client.password) if part)
    host = f"{client.hostname or ''}{f':{client.port}' if client.port else ''}"
    return f"{kind}://{login}{'@' if login else ''}{host}/{client.virtual_host or ''}"
