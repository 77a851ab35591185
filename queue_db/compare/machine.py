"""Facts about this machine, and the processor time of a database server that runs on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable

import psutil
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from queue_db.compare.dialects import Laboratory
from queue_db.compare.nodes import LOOPBACK
from queue_db.database.addresses import several
from queue_db.dialects import Dialect


def machine() -> dict[str, str]:
    """Return cores, memory, load, system, Python and driver versions, for people."""
    memory = psutil.virtual_memory()
    facts = {
        "cores": str(os.cpu_count()),
        "memory": f"{memory.total / 2**30:.0f} GiB",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    for package in ("sqlalchemy", "psycopg2-binary", "pymysql"):
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return facts


def server_clock(engine: Engine, dialect: Dialect) -> Callable[[], float | None] | None:
    """Return a function for the server's processor time so far, seconds; None if the server runs elsewhere or is not visible."""
    hosts = [address.host for address in several(engine.url)] or [engine.url.host or ""]
    if not set(hosts) <= set(LOOPBACK):
        return None
    with engine.connect() as connection:
        try:
            pid = Laboratory.of(dialect).process(connection)
        except SQLAlchemyError:
            return None  # the user lacks the right to read it
        if pid is None:
            return None
        try:
            # The connection names one of the server's processes; the topmost ancestor of the same name is the parent of all.
            server = psutil.Process(pid)
            while (parent := server.parent()) is not None and parent.name() == server.name():
                server = parent
            server.cpu_times()
        except psutil.Error:
            return None
    return lambda: _seconds(server)


def _seconds(server: psutil.Process) -> float | None:
    """Return the processor time of a process, its running children and its ended children."""
    try:
        times = server.cpu_times()
        total = times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        for child in server.children(recursive=True):
            try:
                own = child.cpu_times()
                total += own.user + own.system
            except psutil.NoSuchProcess:
                continue
    except psutil.Error:
        return None
    return float(total)
