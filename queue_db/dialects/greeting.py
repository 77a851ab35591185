"""Whether a PostgreSQL server takes connections at all, asked as ``pg_isready`` asks.

libpq reports a connection that could not be made without a code, whether the password is wrong or the server is down. The answer to
the first message of a connection has the code.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

# Version 3.0 of the protocol.
_PROTOCOL = 196_608

# Seconds for each server.
_PATIENCE = 3.0

# Codes of a server that takes no connections now: shutting down, crashed, starting, full.
_NOT_NOW = frozenset({"57P01", "57P02", "57P03", "53300"})


def nobody_answers(places: Iterable[tuple[str, int]], user: str, database: str) -> bool:
    """Whether none of these servers takes a connection now: none is there, or they are starting, stopping or full."""
    return all(_is_away(host, port, user, database) for host, port in places)


def _is_away(host: str, port: int, user: str, database: str) -> bool:
    try:
        with _reach(host, port) as reached:
            body = b"".join(part.encode() + b"\0" for part in ("user", user, "database", database)) + b"\0"
            reached.sendall(struct.pack("!ii", len(body) + 8, _PROTOCOL) + body)
            answer = reached.recv(4096)
    except OSError:
        return True
    # Nothing: a proxy without a server behind it. An error has fields, each a letter and a text that ends with NUL.
    fields = answer[5:].split(b"\0") if answer[:1] == b"E" else []
    codes = {field[1:].decode("ascii", "replace") for field in fields if field[:1] == b"C"}
    return not answer or bool(codes & _NOT_NOW)


def _reach(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), _PATIENCE)
    reached = socket.socket(socket.AF_UNIX)
    reached.settimeout(_PATIENCE)
    try:
        reached.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        reached.close()
        raise
    return reached
