"""Whether the database is away: noticed by the first request that fails, and watched until it answers again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from queue_db.database.masking import mask, secrets_in
from queue_db.errors import ConfigurationError, QueueDBError, SchemaOutOfDateError, StorageError
from queue_db.service.incidents import Incidents, IncidentType

if TYPE_CHECKING:
    from queue_db.db import QueueDB

# Seconds between two tries while it is away.
_EVERY = 1.0


class Outage:
    """One incident when the database goes away, and one when it is back."""

    def __init__(self, db: QueueDB, incidents: Incidents) -> None:
        self._db = db
        self._incidents = incidents
        self._lock = threading.Lock()
        self._away = False
        self._closed = threading.Event()

    @property
    def away(self) -> bool:
        """Whether the database was away when it was asked last."""
        return self._away

    def note(self, error: Exception) -> None:
        """Something failed; if this is because the database is away, watch it until it is back."""
        if not isinstance(error, StorageError) or not error.server_away:
            return
        with self._lock:
            if self._away or self._closed.is_set():
                return
            self._away = True
        self._incidents.record(IncidentType.DATABASE_AWAY, mask(str(error), secrets_in(self._db.database.engine.url)))
        threading.Thread(target=self._watch, name="queue_db outage", daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_EVERY):
            try:
                self._db.check()
            except SchemaOutOfDateError:
                pass  # it answers
            except ConfigurationError:
                return  # the database object is closed
            except QueueDBError:
                continue
            with self._lock:
                self._away = False
            self._incidents.record(IncidentType.DATABASE_BACK, "requests are answered again")
            return
