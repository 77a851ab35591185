"""Which database a page is of, in few words: people have a tab of production open beside one of staging."""

from __future__ import annotations

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

# Characters in the head of a page; longer texts lose their middle, as hosts differ at their beginning and databases at their end.
_MOST = 60


def whereabouts(url: str) -> str:
    """Host, port and name of a database, or its file.

    :param url: masked.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url
    named = parsed.query.get("host", ())
    hosts = [parsed.host] if parsed.host else [named] if isinstance(named, str) else named
    servers = ",".join(host for host in hosts if not host.startswith("/"))  # others are folders of sockets
    port = "" if parsed.port is None else f":{parsed.port}"
    text = "/".join(part for part in (f"{servers}{port}", parsed.database) if part) or url
    half = (_MOST - 1) // 2
    return text if len(text) <= _MOST else f"{text[:half]}…{text[-half:]}"
