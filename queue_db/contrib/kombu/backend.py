"""The result backend: Celery's own for SQLAlchemy, at the URL of the broker.

Celery creates and owns the tables ``celery_taskmeta`` and ``celery_tasksetmeta``. ``celery beat`` deletes results that are older
than ``result_expires``, by its task ``celery.backend_cleanup``. Chords wait by Celery's task ``celery.chord_unlock``.
"""

from __future__ import annotations

from typing import Any

from celery.backends.database import DatabaseBackend

from queue_db.contrib.kombu.databases import beside
from queue_db.contrib.kombu.urls import DRIVERS, masked


class Backend(DatabaseBackend):
    """Results in the database of ``queuedb+postgresql://…``, with the drivers that the broker uses."""

    def __init__(self, dburi: str | None = None, engine_options: Any = None, url: str | None = None, **kwargs: Any) -> None:
        found = url or dburi
        super().__init__(engine_options=engine_options, url=None if found is None else with_driver(found), **kwargs)

    def _create_tables(self) -> None:
        beside(super()._create_tables)

    def as_uri(self, include_password: bool = False) -> str:
        """The URL for people, with a mask for the password."""
        return str(self.url) if include_password else masked(str(self.url))


def with_driver(url: str) -> str:
    """The URL for SQLAlchemy, with a driver."""
    scheme, _, rest = url.removeprefix("queuedb+").partition("://")
    return f"{DRIVERS.get(scheme, scheme)}://{rest}"
