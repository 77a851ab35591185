"""Broker URLs: ``queuedb+`` before the URL of the database."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from kombu import Connection
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError as UnreadableURLError

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


def masked(url: str, mask: str = "***") -> str:
    """The URL for people: with a mask for the password, and without the options, which may have one, too."""
    try:
        parts = make_url(url)
    except (UnreadableURLError, ValueError):
        return f"{url.partition('://')[0]}://{mask}"
    return parts.set(query={}).render_as_string(hide_password=True).replace(":***@", f":{mask}@", 1)


def hide_password(client: Connection[Any]) -> None:
    """Mask the host of a Kombu connection, which is the whole URL, and keep the URL as its password.

    Kombu and Celery show the host (``Connection.info()``, ``inspect stats``), and Celery leaves the password out. Copies of the
    connection, also in another process, are made of both. An alternate URL, which Kombu has taken apart, gets the same form.
    """
    url = database_url(client)
    client.transport_cls = client.uri_prefix = SCHEME
    client.hostname, client.password = masked(url), url
    client.userid = client.port = None
    client.virtual_host = "/"


def database_url(client: Connection[Any]) -> str:
    """The URL of the database of a Kombu connection."""
    scheme = str(client.transport_cls)
    if "+" not in scheme:
        kept = client.password
        return kept if isinstance(kept, str) and "://" in kept and masked(kept) == client.hostname else str(client.hostname)
    # Kombu has taken an alternate URL apart.
    kind = scheme.partition("+")[2]
    login = ":".join(quote(str(part), safe="") for part in (client.userid, client.password) if part)
    host = f"{client.hostname or ''}{f':{client.port}' if client.port else ''}"
    return f"{kind}://{login}{'@' if login else ''}{host}/{client.virtual_host or ''}"
