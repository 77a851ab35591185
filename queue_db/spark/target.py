"""The database as Spark's driver and tasks use it: short transactions, no session state, one connection at a time."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from sqlalchemy import URL, create_engine
from sqlalchemy.pool import QueuePool

from queue_db import QueueDB
from queue_db.database import addresses
from queue_db.database.masking import masked
from queue_db.database.transaction import Run
from queue_db.database.urls import parse_url
from queue_db.dialects import dialect_for
from queue_db.errors import ConfigurationError
from queue_db.spark.dialects import SparkDialect

#: Runs of functions that may be repeated, whatever the outcome of the first time.
REPEATABLE = Run(repeatable=True)
REPEATABLE_READ = Run(write=False, repeatable=True)

#: Seconds that a connection waits for a failover, if the URL has several addresses: Spark tries a failed task again at once.
FAILOVER = 30.0


@dataclass(frozen=True, repr=False)
class Target:
    """What a task needs to open the database. It is pickled into tasks; its ``repr`` masks the password."""

    url: URL
    table: str = "jobs"
    schema: str | None = None
    local_infile: bool = False

    def __repr__(self) -> str:
        return f"<{masked(self.url)} table={self.table!r}>"

    @contextmanager
    def open(self, **settings: Any) -> Iterator[QueueDB]:
        """The database for this block, over one connection that is closed at its end.

        :param settings: keyword arguments of :class:`queue_db.QueueDB`.
        """
        database = dialect_for(self.url.get_backend_name())
        dialect = SparkDialect.of(database)
        options = dialect.short_lived_options(self.url, local_infile=self.local_infile)
        engine = create_engine(self.url, poolclass=QueuePool, pool_size=1, max_overflow=0, hide_parameters=True, **options)
        addresses.follow(engine, database, failover=FAILOVER, in_step=True)
        dialect.limit_waits(engine)
        try:
            with QueueDB(engine, table=self.table, schema=self.schema, **settings) as db:
                _keep_modules()
                yield db
        finally:
            engine.dispose()


@cache
def _keep_modules() -> None:
    """In a Python worker: let the garbage collector pass over all objects that there are now, most of them of modules.

    PySpark collects after each task. It then visits hundreds of thousands of objects: measured, 80 ms of CPU for each task.
    """
    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()


class DriverDatabase:
    """The database of a reader on the driver, by a call: open as long as the process, since Spark asks many times a second."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._open: tuple[ExitStack, QueueDB] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A connection is not pickled.
        return self.__dict__ | {"_open": None}

    def __call__(self) -> QueueDB:
        if self._open is None:
            stack = ExitStack()
            self._open = stack, stack.enter_context(self._target.open())
        return self._open[1]


def target_of(url: str | URL, table: str = "jobs", schema: str | None = None, *, local_infile: bool = False) -> Target:
    """A Target, checked as far as possible without a connection.

    :raises ConfigurationError: as :class:`queue_db.QueueDB` does.
    """
    parsed = parse_url(url)
    # Tasks run in another folder than the driver: relative paths become absolute here.
    if file := dialect_for(parsed.get_backend_name()).server.file(parsed):
        parsed = parsed.set(database=str(file.absolute()))
    return Target(parsed, table, schema, local_infile)


def resolve_url(url: str) -> str:
    """The database URL behind ``env:NAME`` or ``file:/path``, read on the driver; any other text is returned unchanged.

    :raises ConfigurationError: there is no such environment variable or file.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "env":
        found = os.environ.get(rest)
        if not found:
            raise ConfigurationError(f"url=env:{rest}: the driver has no environment variable {rest!r}")
        return found
    if scheme == "file":
        try:
            return Path(rest.removeprefix("//")).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigurationError(f"url=file:{rest}: {error.strerror}") from None
    return url
