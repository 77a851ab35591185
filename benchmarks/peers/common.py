"""Shared by all peers: names, packages, databases, and how a foreign worker loop uses the context."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import make_url

from queue_db.compare.contestant import Tally, Target, WorkerContext
from queue_db.compare.engines import autocommitting
from queue_db.compare.history import Notes

INSTALL = "pip install --group peers"

#: Polling interval of the context while a foreign worker loop runs, seconds.
POLL_INTERVAL = 0.005

#: Time limit for a peer to stop, seconds; less than the laboratory's own limit.
PATIENCE = 15.0

_TITLES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Peer(ABC):
    """A row of another queue. Subclasses import their package only in methods, because it may be missing."""

    name: str
    claim: str
    removal: str
    index: str
    batch: int = 1
    family: str = field(default="peer", init=False)

    #: Supported databases, by SQLAlchemy's names.
    databases: ClassVar[tuple[str, ...]] = ()
    #: Required packages, by their import names.
    packages: ClassVar[tuple[str, ...]] = ()

    def window(self, workers: int) -> float | None:
        """Return None: peers have no window."""
        return None

    def configuration(self) -> dict[str, str]:
        """Return settings to print with the figures."""
        return {}

    def refused(self, target: Target) -> str | None:
        """Return what is missing, for people."""
        if make_url(target.url).get_backend_name() not in self.databases:
            return f"{self.name} needs {' or '.join(_TITLES[name] for name in self.databases)}"
        missing = [name for name in self.packages if not installed(name)]
        if missing:
            return f"{self.name} is not installed ({', '.join(missing)}): {INSTALL}"
        return None

    @contextmanager
    def installed(self, target: Target) -> Iterator[None]:
        """Have in the database, for this block, what all runs share. Default: nothing."""
        yield

    @abstractmethod
    def set_up(self, target: Target, jobs: int) -> None:
        """Create tables with ``jobs`` due jobs."""

    @abstractmethod
    def work(self, target: Target, context: WorkerContext) -> None:
        """Run the peer's own worker until ``context.over``."""

    @abstractmethod
    def tear_down(self, target: Target) -> None:
        """Remove what ``set_up`` created."""


class PostgreSQLPeer(Peer):
    """A peer with tables in the target's schema, found by ``search_path`` or by its own option."""

    databases = ("postgresql",)

    def tear_down(self, target: Target) -> None:
        """Empty the laboratory's schema."""
        fresh_schema(target)


class SQLitePeer(Peer):
    """A peer with its own file next to the laboratory's, on the same disk."""

    databases = ("sqlite",)

    def refused(self, target: Target) -> str | None:
        """Refuse a database in memory: it has no folder."""
        refused = super().refused(target)
        if refused is None and make_url(target.url).database in (None, "", ":memory:"):
            return f"{self.name} needs a database in a file"
        return refused

    def file(self, target: Target) -> Path:
        """Path of its database."""
        database = Path(make_url(target.url).database or "")
        return database.with_name(f"{database.stem}.{self.name}.db")

    def tear_down(self, target: Target) -> None:
        """Delete the file and SQLite's files next to it."""
        file = self.file(target)
        for suffix in ("", "-wal", "-shm", "-journal"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:
        # It has been imported, and has replaced itself in sys.modules by an object without __spec__, as kombu does.
        return True


def libpq_address(target: Target) -> str:
    """Return the libpq URL of ``target``, with its schema as the search path and with timeouts."""
    url = make_url(target.url).set(drivername="postgresql")
    options = [str(url.query["options"])] if "options" in url.query else []
    if target.schema is not None:
        options.append(f"-csearch_path={target.schema}")
    limits = {"connect_timeout": "10", "keepalives_idle": "10", "tcp_user_timeout": "60000"}
    url = url.update_query_dict({name: value for name, value in limits.items() if name not in url.query})
    if options:
        url = url.update_query_dict({"options": " ".join(options)})
    # libpq does not decode a plus.
    return url.render_as_string(hide_password=False).replace("+", "%20")


def plain_address(target: Target) -> str:
    """Return the URL of ``target`` without a driver."""
    return make_url(target.url).set(drivername="postgresql").render_as_string(hide_password=False)


def fresh_schema(target: Target) -> None:
    """Drop and create the target's schema."""
    if target.schema is None:
        return
    with autocommitting(target.url) as engine, engine.connect() as connection:
        name = connection.dialect.identifier_preparer.quote(target.schema)
        connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")


def analyze(target: Target) -> None:
    """Update the planner's statistics of the filled tables, as the product's rows do."""
    with autocommitting(target.url) as engine, engine.connect() as connection:
        quote = connection.dialect.identifier_preparer.quote
        tables = (
            connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = %s", (target.schema,)).scalars().all()
        )
        for table in tables:
            connection.exec_driver_sql(f"ANALYZE {quote(target.schema or 'public')}.{quote(table)}")


def take_over_work(context: WorkerContext) -> float:
    """Take over the simulated work of a job, seconds, from the context, which would block an event loop."""
    seconds, context.work_seconds = context.work_seconds, 0.0
    return seconds


async def until_over(context: WorkerContext, running: asyncio.Task[Any], stop: Callable[[], object]) -> None:
    """Run a worker loop; when the run is over, call ``stop``, and cancel the loop if it does not end."""
    while not running.done() and not context.over:
        await asyncio.wait({running}, timeout=POLL_INTERVAL)
    if not running.done():
        stop()
        await asyncio.wait({running}, timeout=PATIENCE)
    if not running.done():
        running.cancel()
    with suppress(asyncio.CancelledError):
        await running


class ThreadContexts:
    """One context per thread, for peers with threads; their notes are merged at the end."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._local = threading.local()
        self._contexts: list[WorkerContext] = []

    @property
    def over(self) -> bool:
        """Whether to stop."""
        return self._context.over

    @property
    def context(self) -> WorkerContext:
        """Return the context of the calling thread."""
        mine: WorkerContext | None = getattr(self._local, "context", None)
        if mine is None:
            whole = self._context
            mine = WorkerContext(
                whole.number, _Locked(whole.tally, self._lock), whole.start, whole.work_seconds, whole.clone, self._protocol
            )
            self._local.context = mine
            with self._lock:
                self._contexts.append(mine)
        return mine

    @property
    def _protocol(self) -> Any:
        write = self._context.protocol
        if write is None:
            return None

        def locked(jobs: Any, times: Any) -> None:
            with self._lock:
                write(jobs, times)

        return locked

    def close(self) -> None:
        """Merge the notes of all threads into the worker's context."""
        notes, others = self._context.notes, [one.notes for one in self._contexts]
        begun = sorted((when, job) for other in others for when, job in zip(other.times, other.jobs, strict=True))
        notes.times.extend(when for when, _ in begun)
        notes.jobs.extend(job for _, job in begun)
        for other in others:
            _add(notes, other)


class _Locked:
    """A tally with a lock: several threads write for one worker."""

    def __init__(self, tally: Tally, lock: threading.Lock) -> None:
        self._tally, self._lock = tally, lock

    def add(self, worker: int, *, begun: int = 0, left: int = 0, added: int = 0) -> None:
        with self._lock:
            self._tally.add(worker, begun=begun, left=left, added=added)

    @property
    def over(self) -> bool:
        return self._tally.over


def _add(notes: Notes, other: Notes) -> None:
    notes.latencies.extend(other.latencies)
    notes.empty += other.empty
    notes.left += other.left
    notes.faults.update(other.faults)
    notes.last = max(notes.last, other.last)
