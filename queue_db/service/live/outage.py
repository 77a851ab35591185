"""Whether the database is away, or takes no changes: noticed by the first request that fails, and watched until all is well."""

from __future__ import annotations

import threading
from enum import Enum, auto
from typing import TYPE_CHECKING

from sqlalchemy import false, update

from queue_db.database.masking import mask, secrets_in
from queue_db.errors import ConfigurationError, PermanentStorageError, QueueDBError, SchemaOutOfDateError, StorageError
from queue_db.service.live.incidents import Incidents, IncidentType
from queue_db.store import Transaction

if TYPE_CHECKING:
    from queue_db.db import QueueDB


class _State(Enum):
    WELL = auto()
    #: It answers, and takes no changes.
    READ_ONLY = auto()
    AWAY = auto()


# Seconds between two tries. A server logs each change that it refuses, and may do so for days.
_EVERY = {_State.AWAY: 1.0, _State.READ_ONLY: 5.0}

_INCIDENT = {
    _State.WELL: IncidentType.DATABASE_BACK,
    _State.READ_ONLY: IncidentType.DATABASE_READ_ONLY,
    _State.AWAY: IncidentType.DATABASE_AWAY,
}

_REFUSES = "changes are refused until the server, the file or the rights of this user allow them"


def takes_changes(db: QueueDB) -> bool:
    """Whether the database lets this user change jobs: not on a standby, in a read-only file, or without the right to.

    :raises StorageError: it does not answer.
    """
    try:
        db.database.run(_change_nothing, store=db.store, name="change_nothing", attempts=1)
    except PermanentStorageError:
        return False
    except StorageError as error:
        if error.sqlstate in db.database.dialect.errors.read_only:
            return False
        raise
    return True


def _change_nothing(tx: Transaction) -> None:
    """Update no job. The database refuses it where it would refuse an update of one."""
    jobs = tx.tables.jobs
    tx.connection.execute(update(jobs).values(id=jobs.c.id).where(false()))


class Outage:
    """One incident when the database goes away or takes no more changes, and one when reads and changes work again.

    :param changes: False: the service makes no changes, so it does not ask whether the database takes them.
    """

    def __init__(self, db: QueueDB, incidents: Incidents, *, changes: bool) -> None:
        self._db = db
        self._incidents = incidents
        self._changes = changes
        self._lock = threading.Lock()
        self._state = _State.WELL
        self._watched = False
        self._closed = threading.Event()

    @property
    def away(self) -> bool:
        """Whether the database was away when it was asked last."""
        return self._state is _State.AWAY

    @property
    def read_only(self) -> bool:
        """Whether the database answered when it was asked last, and took no changes."""
        return self._state is _State.READ_ONLY

    def look(self) -> None:
        """Ask whether the database takes changes, before there are requests; if not, watch it until it does.

        :raises StorageError: it does not answer.
        """
        if self._changes and not takes_changes(self._db):
            self._enter(_State.READ_ONLY, _REFUSES)

    def note(self, error: Exception) -> None:
        """Something failed; if this is because the database is away or takes no changes, watch it until that is over."""
        if not isinstance(error, StorageError):
            return
        if error.sqlstate in self._db.database.dialect.errors.read_only:
            if self._changes:
                self._enter(_State.READ_ONLY, str(error))
        elif error.server_away:
            self._enter(_State.AWAY, str(error))

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()

    def _enter(self, state: _State, why: str) -> None:
        with self._lock:
            # While it is away only the watch finds that it answers: a change may have been refused before.
            if self._closed.is_set() or self._state in {state, _State.AWAY}:
                return
            begins = self._state is _State.WELL
            self._state = state
        self._record(state, why)
        if begins:
            threading.Thread(target=self._watch, name="queue_db outage", daemon=True).start()

    def _watch(self) -> None:
        while not self._closed.wait(_EVERY[before := self._state]):
            try:
                found, why = self._asked()
            except ConfigurationError:
                return  # the database object is closed
            with self._lock:
                if found is before or self._state is not before:
                    continue  # as it was, or a request has found something else meanwhile
                self._state = found
            self._record(found, why)
            if found is _State.WELL:
                return

    def _asked(self) -> tuple[_State, str]:
        """How the database is now, and why."""
        try:
            self._db.check()
            if self._changes and not takes_changes(self._db):
                return _State.READ_ONLY, _REFUSES
        except SchemaOutOfDateError:
            pass  # it answers
        except ConfigurationError:
            raise
        except QueueDBError as error:
            return _State.AWAY, str(error)
        return _State.WELL, "requests are answered again"

    def _record(self, state: _State, why: str) -> None:
        self._incidents.record(_INCIDENT[state], mask(why, secrets_in(self._db.database.engine.url)))
