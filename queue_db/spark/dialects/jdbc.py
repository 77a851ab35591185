"""What the dialects share to turn a database URL into what a JDBC driver wants to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import URL

from queue_db.database.addresses import Address, several
from queue_db.errors import ArgumentError


def driver_for(wanted: str | None, known: Sequence[str]) -> str:
    """The driver's class: the first one that is known, if none is wanted.

    :raises ArgumentError: when another one is wanted.
    """
    if wanted is not None and wanted not in known:
        raise ArgumentError(f"driver={wanted!r} is not known for this database; use one of: {', '.join(known)}")
    return wanted or known[0]


def address(scheme: str, url: URL, port: int, database: str) -> str:
    """``scheme://host:port,…/database``; the port is always there, for without it a driver took 0 after an IPv6 address.

    :raises ArgumentError: for a URL without a host.
    """
    found = several(url) or ([Address(url.host, str(url.port or port))] if url.host else [])
    if not found:
        raise ArgumentError(f"the database URL names no host; JDBC connects by TCP alone: {url.drivername}://user@host/database")
    return f"{scheme}://{','.join(map(str, found))}/{database}"


def properties_of(url: URL, names: Mapping[str, str | None]) -> dict[str, str]:
    """The options in the URL's query under their ``names`` in JDBC; None is the name of one that JDBC does without.

    :raises ArgumentError: for one without a name: the connection might be less safe than the URL wants it.
    """
    found: dict[str, str] = {}
    ours = ("host", "port", "nodes", "target_session_attrs") if several(url) else ()
    for option, value in url.query.items():
        if option in ours:
            continue
        if option not in names or not isinstance(value, str):
            why = "stands there twice" if option in names else "has no name in JDBC that is known here"
            raise ArgumentError(f"{option!r} in the database URL {why}: take it out; what the driver calls it goes into properties")
        name = names[option]
        if name is not None:
            found[name] = value
    return found
