"""The queue's database: the URL of a database of Django's settings, its ``QueueDB``, and transactions on Django's connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.pool import NullPool

from queue_db import QueueDB
from queue_db.contrib.django.settings import Settings
from queue_db.errors import SchemaOutOfDateError

APP = "queue_db"

# Parameters of Django's connections that are objects, or that Django itself understands.
_DJANGO_ONLY = frozenset(
    (
        *("cursor_factory", "context", "prepare_threshold", "client_encoding", "conv", "use_unicode", "client_flag"),
        *("check_same_thread", "detect_types", "uri", "transaction_mode", "isolation_level", "charset"),
    )
)

# The names that a driver's function has for parts of a URL.
_PARTS = {"dbname": "database", "database": "database", "db": "database", "user": "username", "password": "password"}
_PARTS |= {"passwd": "password", "host": "host", "port": "port"}

_opened: dict[tuple[Any, ...], QueueDB] = {}
_lock = threading.Lock()


def url_of(alias: str) -> URL:
    """The URL of a database of Django's settings, as it is now: in a test run, of the test database.

    :raises ImproperlyConfigured: the queue does not run on this kind of database, or the settings have what no URL can tell.
    """
    connection = connections[alias]
    parameters = dict(connection.get_connection_params())
    if connection.vendor == "sqlite":
        return _file(str(parameters["database"]))
    if connection.vendor not in ("postgresql", "mysql"):
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is {connection.display_name}: the queue runs on PostgreSQL, MySQL, MariaDB and SQLite"
        )
    if connection.settings_dict["OPTIONS"].get("assume_role"):  # Django sets it after the login
        raise ImproperlyConfigured(f"no URL can tell DATABASES[{alias!r}]['OPTIONS']['assume_role']: give OPTIONS['url'] in TASKS")
    parts = {_PARTS[name]: value for name, value in parameters.items() if name in _PARTS and value not in (None, "")}
    query = _query({name: value for name, value in parameters.items() if name not in _PARTS}, alias)
    if str(parts.get("host", "")).startswith("/"):  # the folder of a socket
        query["host"] = str(parts.pop("host"))
    if "port" in parts:
        parts["port"] = int(parts["port"])
    if "unix_socket" in query:
        parts.setdefault("host", "localhost")
    return URL.create(f"{connection.vendor}+{_driver(connection)}", **parts, query=query)


def _file(name: str) -> URL:
    if name == ":memory:":
        raise ImproperlyConfigured("the queue needs a database that other threads can open, not :memory:")
    if name.startswith("file:"):
        return make_url(f"sqlite:///{name}{'&' if '?' in name else '?'}uri=true")
    return URL.create("sqlite", database=name)


def _query(given: Mapping[str, Any], alias: str) -> dict[str, str]:
    """The parameters of the driver that are no part of a URL."""
    query: dict[str, str] = {}
    for name, value in given.items():
        if name in _DJANGO_ONLY or value is None:
            continue
        if name == "ssl" and isinstance(value, Mapping):
            query |= {f"ssl_{key}": str(each) for key, each in value.items()}
        elif isinstance(value, str | int | float):
            query[name] = str(value)
        else:
            raise ImproperlyConfigured(f"no URL can tell DATABASES[{alias!r}]['OPTIONS'][{name!r}]: give OPTIONS['url'] in TASKS")
    return query


def _driver(connection: Any) -> str:
    """The driver that Django uses."""
    if connection.vendor == "postgresql":
        from django.db.backends.postgresql.psycopg_any import is_psycopg3

        return "psycopg" if is_psycopg3 else "psycopg2"
    # pymysql.install_as_MySQLdb() puts its own module in the place of mysqlclient's.
    return "pymysql" if connection.Database.__name__ == "pymysql" else "mysqldb"


def url_for(settings: Settings) -> URL:
    """The URL of the queue's database; of ``OPTIONS["url"]`` all but the database, which a test run replaces."""
    if settings.url is None:
        return url_of(settings.database)
    return make_url(settings.url).set(database=str(connections[settings.database].settings_dict["NAME"]))


def queue_db(settings: Settings) -> QueueDB:
    """The ``QueueDB`` of this process. It keeps no connection open: tasks are enqueued on Django's connection.

    :raises ImproperlyConfigured: the driver is not installed, or the settings have what no URL can tell.
    :raises StorageError: the server does not answer or refuses the login.
    """
    url = url_for(settings)
    key = (url.render_as_string(hide_password=False), settings.table, settings.schema)
    with _lock:
        if key not in _opened:
            try:
                engine = create_engine(url, poolclass=NullPool, hide_parameters=True)
            except (NoSuchModuleError, ImportError) as error:
                raise ImproperlyConfigured(f"the driver {url.drivername} is not installed: {error}") from error
            _opened[key] = QueueDB(engine, table=settings.table, schema=settings.schema)
        return _opened[key]


def own_queue_db(settings: Settings, worker: str | None = None) -> QueueDB:
    """A ``QueueDB`` with a pool of connections, for a worker. The caller closes it.

    :raises ImproperlyConfigured: the database is in memory, as Django's test runner makes it for SQLite.
    """
    url = url_for(settings)
    if url.query.get("mode") == "memory":
        raise ImproperlyConfigured(
            "a worker needs a database in a file; for tests set DATABASES"
            f"[{settings.database!r}]['TEST'] = {{'NAME': BASE_DIR / 'test.sqlite3'}}"
        )
    return QueueDB(url, table=settings.table, schema=settings.schema, worker=worker)


@contextmanager
def joined(alias: str) -> Iterator[Any]:
    """Django's connection in a transaction: that of the caller, and where Django autocommits, one for this block.

    :raises SchemaOutOfDateError: the tables are missing or of another version; the message names the command of Django.
    """
    connection = connections[alias]
    try:
        if connection.in_atomic_block:
            yield connection
        else:
            with transaction.atomic(using=alias):
                yield connection
    except SchemaOutOfDateError as error:
        raise with_command(error, alias) from None


def migrate_command(alias: str) -> str:
    """The command that makes the tables."""
    return f"python manage.py migrate {APP}" + ("" if alias == DEFAULT_DB_ALIAS else f" --database {alias}")


def with_command(error: SchemaOutOfDateError, alias: str) -> SchemaOutOfDateError:
    """The same error with the command of Django in place of the library's."""
    if error.found is not None and error.found > error.required:  # the package is too old: no command helps
        return error
    what = str(error).partition("; ")[0]
    return SchemaOutOfDateError(f"{what}; run: {migrate_command(alias)}", found=error.found, required=error.required)
