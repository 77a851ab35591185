"""The errors of a database, judged by their codes and never by their texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from queue_db.errors import PermanentStorageError, StorageError, TransientStorageError
from queue_db.model import Fault

_NONE: frozenset[str] = frozenset()
_COLLISIONS = (Fault.DEADLOCK, Fault.SERIALIZATION)
_MAKE_ROOM = "the database has no room: free space on its disk, or raise the limit of its size"


def _sqlstate(error: DBAPIError) -> str | None:
    """The SQLSTATE of a driver's exception, if the driver has an attribute for it."""
    return getattr(error.orig, "sqlstate", None)


def _message(error: DBAPIError) -> str:
    """The message of a driver's exception."""
    return str(error.orig)


@dataclass(frozen=True, slots=True)
class ErrorCodes:
    """The error codes of a database, as texts, and what they mean."""

    #: Returns the code of an exception: its SQLSTATE, error number or result code; None: the driver gives no code.
    code: Callable[[DBAPIError], str | None] = _sqlstate
    #: Returns the driver's message.
    message: Callable[[DBAPIError], str] = _message
    #: Codes of errors after which the same transaction may succeed if it runs again.
    transient: frozenset[str] = _NONE
    #: Codes that mean: the server or file refuses all changes, whatever the user's rights are. The server may be a standby.
    read_only: frozenset[str] = _NONE
    #: Codes that mean, at a COMMIT: it is unknown whether it took effect. The server's connection to other servers broke meanwhile.
    in_doubt: frozenset[str] = _NONE
    #: Codes that mean: the statement took longer than the server allows. The library does not run the transaction again by itself,
    #: because the statement would probably be slow again. An application may run it again.
    expired: frozenset[str] = _NONE
    #: Codes that mean: the disk is full.
    full: frozenset[str] = _NONE
    #: Codes that mean: a prepared statement does not exist, or exists already, because a pooler has changed the session.
    other_session: frozenset[str] = _NONE
    #: Code → the kind of collision between transactions.
    faults: Mapping[str, Fault] = field(default_factory=dict)

    def fault(self, error: SQLAlchemyError) -> Fault:
        """The kind of collision that an error reports."""
        code = self.code(error) if isinstance(error, DBAPIError) else None
        return self.faults.get(code or "", Fault.OTHER)

    def is_lock_timeout(self, error: StorageError) -> bool:
        """Whether another transaction held a lock for too long."""
        return self.faults.get(error.sqlstate or "") is Fault.LOCK_TIMEOUT

    def is_collision(self, error: StorageError) -> bool:
        """Whether the transaction lost to another one, and the database rolled it back."""
        return self.faults.get(error.sqlstate or "") in _COLLISIONS

    def translate(self, error: DBAPIError, statement_name: str) -> StorageError:
        """The library's exception for an exception of the driver."""
        code, away = self.code(error), error.connection_invalidated
        if code is None:
            # A failed connection attempt has no code. It counts as transient, because the server may be restarting.
            transient = away = away or isinstance(error, OperationalError)
        else:
            again = code in self.transient or code in self.other_session
            transient = away or again or code in self.expired
            # ``away``: the server is unavailable, so that every statement fails. After a collision of transactions it is available.
            away = away or (code in self.transient and code not in self.faults)
        kind = TransientStorageError if transient else PermanentStorageError
        detail = (self.message(error).strip().splitlines() or [type(error.orig).__name__])[0]
        if code in self.full:
            detail += f" ({_MAKE_ROOM})"
        translated = kind(detail, sqlstate=code, statement_name=statement_name, server_away=away)
        translated.place = f"{statement_name}: "
        return translated
