"""Whether a PostgreSQL server accepts connections, checked as ``pg_isready`` does.

libpq reports a failed connection without an error code, so a wrong password and a stopped server look the same. This module itself
sends the first message of a connection, because the server's answer contains the error code.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

# The number of version 3.0 of PostgreSQL's protocol.
_PROTOCOL = 196_608

# Seconds to wait for each server.
_PATIENCE = 3.0

# Error codes of a server that accepts no connections now: shutting down, crashed, starting, full.
_NOT_NOW = frozenset({"57P01", "57P02", "57P03", "53300"})


#: The error code for a startup parameter that the server, or a pooler in front of it, refuses.
UNSUPPORTED = "08P01"

# The socket directories that libpq uses without a host: Debian's default and PostgreSQL's default.
_FOLDERS = "/var/run/postgresql,/tmp"

Target = tuple[str, int]


def targets(options: Mapping[str, Any]) -> list[Target]:
    """The servers in libpq's options or environment; empty if unknown."""
    elsewhere = any(options.get(name) or os.environ.get(f"PG{name.upper()}") for name in ("hostaddr", "service"))
    hosts = str(options.get("host") or os.environ.get("PGHOST") or ("" if elsewhere else _FOLDERS)).split(",")
    ports = str(options.get("port") or os.environ.get("PGPORT") or 5432).split(",")
    if not all(hosts) or not all(port.isdigit() for port in ports):
        return []
    return [
        (host, int(port)) for host, port in zip(hosts, ports if len(ports) == len(hosts) else ports[:1] * len(hosts), strict=True)
    ]


def none_accepts(servers: Sequence[Target], options: Mapping[str, Any]) -> bool:
    """Whether no server accepts a connection now: they are unreachable, starting, stopping or full."""
    return bool(servers) and all(_is_unavailable(server, options) for server in servers)


def refuses(server: Target, options: Mapping[str, Any]) -> bool:
    """Whether the server refuses a session because of the settings in ``options``, and accepts a session without settings."""
    # The settings of libpq are in ``options``, those of asyncpg in ``server_settings``.
    given = {"options": str(options["options"])} if options.get("options") else dict(options.get("server_settings", {}))
    try:
        return UNSUPPORTED in (_answer(server, options, given) or ()) and UNSUPPORTED not in (_answer(server, options) or ())
    except OSError:
        return False


def _is_unavailable(server: Target, options: Mapping[str, Any]) -> bool:
    try:
        codes = _answer(server, options)
    except OSError:
        return True
    return codes is None or bool(codes & _NOT_NOW)


def _answer(server: Target, options: Mapping[str, Any], given: Mapping[str, str] | None = None) -> set[str] | None:
    """The error codes in the answer to a session's first message; None: no answer, for example from a proxy without a server."""
    parts = {
        "user": str(options.get("user") or "queue_db"),
        "database": str(options.get("dbname") or options.get("database") or options.get("user") or "postgres"),
    } | dict(given or {})
    with _reach(*server) as reached:
        body = b"".join(part.encode() + b"\0" for pair in parts.items() for part in pair) + b"\0"
        reached.sendall(struct.pack("!ii", len(body) + 8, _PROTOCOL) + body)
        answer = reached.recv(4096)
    if not answer:
        return None
    # An error consists of fields. Each field is a letter and a text that ends with NUL. The field C is the error code.
    fields = answer[5:].split(b"\0") if answer[:1] == b"E" else []
    return {field[1:].decode("ascii", "replace") for field in fields if field[:1] == b"C"}


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
