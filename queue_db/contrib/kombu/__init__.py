"""Celery and Kombu on a SQL database: ``import queue_db.contrib.kombu`` makes URLs such as ``queuedb+postgresql://…`` known.

The transport keeps messages as jobs, and the bindings of exchanges as routes. The result backend keeps results in Celery's own
tables in the same database. ``docs/integrations/celery.md`` is the guide.
"""

from __future__ import annotations

from contextlib import suppress

from kombu.transport import TRANSPORT_ALIASES

from queue_db.contrib.kombu.databases import NotPublishedError, close_all
from queue_db.contrib.kombu.urls import SCHEME, SCHEMES
from queue_db.publishing import publishing_in

__all__ = ["NotPublishedError", "close_all", "publishing_in", "register"]


def register() -> None:
    """Make the URLs known to Kombu, and to Celery if it is installed. The import of this package calls it."""
    for scheme in SCHEMES:
        TRANSPORT_ALIASES[scheme] = "queue_db.contrib.kombu.transport:Transport"
    with suppress(ImportError):
        from celery.app.backends import BACKEND_ALIASES

        BACKEND_ALIASES[SCHEME] = "queue_db.contrib.kombu.backend:Backend"


register()
