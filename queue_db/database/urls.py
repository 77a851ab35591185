"""Checks the URL of a database, and adds our driver if the URL names none."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.exc import ArgumentError as SQLAlchemyArgumentError
from sqlalchemy.exc import NoSuchModuleError

from queue_db.database import addresses
from queue_db.database.masking import has_stray_at, masked
from queue_db.dialects import registered
from queue_db.dialects.server import Drivers
from queue_db.errors import ConfigurationError

#: The environment variable in which the command line finds the database.
URL_VARIABLE = "QUEUE_DB_URL"

_ALIASES = {"postgres": "postgresql"}


def parse_url(url: str | URL, *, asynchronous: bool = False) -> URL:
    """Check the URL and return it, with our driver if it names none.

    :param asynchronous: choose and require a driver for asyncio.
    :raises ConfigurationError: the text is not a URL, the scheme is unknown, or the driver is not installed or of the wrong sort
        (for asyncio or not).
    """
    try:
        parsed = addresses.parsed(url)
    except (SQLAlchemyArgumentError, ValueError):  # ValueError: the port is not a number
        raise ConfigurationError(
            "this is not a database URL; write for example sqlite:///queue.db or postgresql+psycopg2://user:password@host/database"
        ) from None
    if has_stray_at(url, parsed):
        raise ConfigurationError(
            "the user or password in the database URL contains an @: write it as %40, and so each other @ after it"
        )
    if parsed.port is not None and not 0 < parsed.port < 2**16:
        raise ConfigurationError(f"cannot open {masked(parsed)}: its port must be 1 to 65,535")
    parsed = parsed.set(drivername=_ALIASES.get(parsed.drivername, parsed.drivername))
    family = parsed.get_backend_name()
    known = registered()
    if family not in known:
        raise ConfigurationError(
            f"unknown database scheme {parsed.drivername!r}; use one of: "
            + ", ".join(
                _with_driver(name, kind.drivers.named(asynchronous=asynchronous)[0]) for name, kind in sorted(known.items())
            )
        )
    parsed = addresses.completed(parsed, known[family].drivers.port)
    driver, extra = known[family].drivers.named(asynchronous=asynchronous)
    ours = _with_driver(family, driver)
    if "+" not in parsed.drivername:
        parsed = parsed.set(drivername=ours)
    try:
        dialect = parsed.get_dialect(_is_async=asynchronous)
        if dialect.is_async is not asynchronous:
            raise ConfigurationError(wrong_sort(parsed.drivername, f"{ours}://…", asynchronous=asynchronous))
        dialect.import_dbapi()
    except NoSuchModuleError:
        raise ConfigurationError(f"unknown driver in {parsed.drivername!r}; use {ours}") from None
    except ImportError:
        wish = _remedy(extra) if parsed.drivername == ours else f"install it, or use {ours}://…"
        raise ConfigurationError(f"the driver of {parsed.drivername!r} is not installed: {wish}") from None
    return parsed


def url_of(
    scheme: str,
    *,
    host: str | None = None,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    database: str | None = None,
) -> URL:
    """The URL of a database whose parts are settings of another program. Its text hides the password.

    Of SQLite the path is ``database``, or else ``host``, and the other parts are not used.

    :param scheme: the first word of a URL, with or without a driver: ``postgresql``, ``mysql+pymysql``.
    :raises ConfigurationError: the scheme is unknown, or SQLite has no path.
    """
    known = registered()
    scheme = _ALIASES.get(scheme, scheme)
    kind = known.get(scheme.partition("+")[0])
    if kind is None:
        raise ConfigurationError(f"unknown database scheme {scheme!r}; use one of: {', '.join(sorted(known))}")
    if kind().server.file(URL.create(scheme, database="a")) is None:
        return URL.create(scheme, host=host, database=database, port=port, username=user, password=password)
    # A file has neither a server nor a login. Others' settings have its path in either field.
    path = database or host
    if not path:
        raise ConfigurationError(
            f"a database of {kind().title} needs the path of its file; :memory: is lost with its one connection"
        )
    return URL.create(scheme, database=path)


def missing_file(url: URL) -> Path | None:
    """The file of the database, if it does not exist and a connection would create it; otherwise None."""
    file = registered()[url.get_backend_name()]().server.file(url)
    return file if file is not None and file.parent.is_dir() and not file.exists() else None


def for_asyncio(url: URL, drivers: Drivers) -> URL:
    """The URL of the same database with the driver for asyncio."""
    known = drivers.async_options
    query = {known.get(name, name): value for name, value in url.query.items()}
    return url.set(
        drivername=f"{url.get_backend_name()}+{drivers.asynchronous}",
        query={name: value for name, value in query.items() if name is not None},
    )


def url_for_threads(url: str | URL) -> URL:
    """The URL of the same database with the driver that is not for asyncio.

    :raises ConfigurationError: as of :func:`parse_url`.
    """
    parsed = parse_url(url, asynchronous=True)
    family = parsed.get_backend_name()
    drivers = registered()[family].drivers
    before = {name: threads for threads, name in drivers.async_options.items() if name is not None}
    query = {before.get(name, name): value for name, value in parsed.query.items()}
    return parsed.set(drivername=_with_driver(family, drivers.default), query=query)


def _remedy(extra: str | None) -> str:
    return f'pip install "queue-db[{extra}]"' if extra else "install it"


def wrong_sort(given: str, instead: str, *, asynchronous: bool) -> str:
    """The message that refuses a driver or engine of the wrong sort (for asyncio or not)."""
    if asynchronous:
        return f"{given} is not for asyncio: use {instead} here, or queue_db.QueueDB"
    return f"{given} is for asyncio: use {instead} here, or queue_db.aio.AsyncQueueDB"


def _with_driver(family: str, driver: str | None) -> str:
    return family if driver is None else f"{family}+{driver}"
