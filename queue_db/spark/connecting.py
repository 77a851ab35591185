"""The database, seen from the driver before the tasks see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL

from queue_db import QueueDB
from queue_db.database import parse_url
from queue_db.dialects import dialect_for


def checked(url: str | URL, settings: Mapping[str, Any]) -> URL:
    """The URL for the tasks, after a look at the database: what is wrong is said here, in one line, and not from within Spark.

    :raises ConfigurationError, StorageError: as :class:`queue_db.QueueDB` does, and for tables that are missing or out of date.
    """
    parsed = parse_url(url)
    # Tasks run in another folder than the driver.
    parsed = dialect_for(parsed.get_backend_name()).from_anywhere(parsed)
    with QueueDB(parsed, **settings) as db:
        db.check()
    return parsed
