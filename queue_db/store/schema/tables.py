"""The tables of a store, for any name and schema.

Column types are plain, and the server sets the defaults. So ``INSERT INTO jobs (queue, payload) VALUES (…)`` from any client
makes a valid job. All times are BIGINT microseconds since 1970, UTC, by the database's clock. The migrations also create the view
``jobs_state`` for people; the library does not read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import MetaData, Table

from queue_db.errors import ArgumentError
from queue_db.slices import slices
from queue_db.store.schema import IDENTIFIER, jobs, workers

#: The migration that this version of the package needs.
HEAD = "0018"


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one queue store."""

    metadata: MetaData
    jobs: Table
    dead: Table
    queues: Table
    workers: Table
    errors: Table
    finished: Table
    windows: Table
    #: The tables of each slice, by the name of the slice: see :mod:`queue_db.slices`.
    slices: Mapping[str, Any]
    #: The name of Alembic's version table. Each store has its own version table, so that several stores can share a database.
    version: str

    @property
    def name(self) -> str:
        return self.jobs.name

    @property
    def schema(self) -> str | None:
        return self.jobs.schema


def tables(name: str = "jobs", schema: str | None = None, *, unique_queue: bool = False) -> Tables:
    """The tables ``name``, ``name_dead`` and so on, in ``schema`` if it is given.

    :param unique_queue: as in the database's :class:`~queue_db.dialects.base.Dialect`.
    :raises ArgumentError: a name is not 1 to 40 characters long, starts with a digit, or has other characters than lower-case
        letters, digits and underscores.
    """
    for what, identifier in (("table", name), ("schema", schema)):
        if what == "schema" and identifier is None:
            continue
        if not isinstance(identifier, str) or not IDENTIFIER.match(identifier):
            raise ArgumentError(
                f"{what}={identifier!r:.60}: use 1 to 40 lower-case letters, digits and underscores, not starting with a digit"
            )
    return _tables(name, schema, unique_queue)


@lru_cache(maxsize=64)
def _tables(name: str, schema: str | None, unique_queue: bool) -> Tables:
    metadata = MetaData(schema=schema)
    return Tables(
        metadata,
        jobs.jobs(name, metadata, unique_queue=unique_queue),
        jobs.dead(name, metadata),
        workers.queues(name, metadata),
        workers.workers(name, metadata),
        workers.errors(name, metadata),
        workers.finished(name, metadata),
        jobs.windows(name, metadata),
        {slice_name: one.tables(name, metadata) for slice_name, one in slices().items() if one.tables is not None},
        f"{name}_schema_version",
    )
