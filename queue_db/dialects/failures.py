"""Driver errors: which are worth another try, and which exception of the library each becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from queue_db.dialects.transactions import Sender
from queue_db.errors import PermanentStorageError, StorageError, TransientStorageError
from queue_db.model import Fault

_MAKE_ROOM = "the database has no room: free space on its disk, or raise the limit of its size"


class Failures:
    """The error codes of a database. Errors are judged by their codes, never by their texts."""

    #: Error codes after which the same transaction may succeed.
    transient: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a server that takes no changes, such as a standby, or a node that has lost its cluster. The same transaction
    #: may succeed on another server.
    read_only: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a statement that took longer than the server allows. It may be faster later, but not at once: the library does
    #: not run the transaction again by itself.
    expired: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a full disk.
    full: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of collisions between transactions.
    faults: ClassVar[Mapping[str, Fault]] = {}

    def code(self, error: DBAPIError) -> str | None:
        """SQLSTATE, error number or result code of a driver's exception, as text."""
        return getattr(error.orig, "sqlstate", None)

    def fault(self, error: SQLAlchemyError) -> Fault:
        """The kind of collision that an error reports."""
        code = self.code(error) if isinstance(error, DBAPIError) else None
        return self.faults.get(code or "", Fault.OTHER)

    def translate(self, error: DBAPIError, statement_name: str) -> StorageError:
        """The library's exception for a driver's."""
        code = self.code(error)
        transient = error.connection_invalidated or (
            # A failed connection attempt has no SQLSTATE: the server may be restarting.
            isinstance(error, OperationalError) if code is None else self.is_transient(code)
        )
        away = error.connection_invalidated or (transient if code is None else self.is_away(code))
        kind = TransientStorageError if transient else PermanentStorageError
        detail = (self.detail(error).strip().splitlines() or [type(error.orig).__name__])[0]
        if code in self.full:
            detail += f" ({_MAKE_ROOM})"
        return kind(f"{statement_name}: {detail}", sqlstate=code, statement_name=statement_name, server_away=away)

    def detail(self, error: DBAPIError) -> str:
        """The message of the driver."""
        return str(error.orig)

    def is_down(self, engine: Engine) -> bool:
        """Whether no server accepts connections now; called after an error without a code. Default: unknown (False)."""
        return False

    def known_alive(self, tx: Sender) -> bool:
        """Whether this connection of the library is not broken, as far as can be known without asking the server. Then an insert
        may be sent without a transaction. If the connection breaks meanwhile, nobody knows what happened; with a transaction, an
        insert before the COMMIT can run again.

        Default: it is not known.
        """
        return False

    def is_idle(self, driver: Any) -> bool:
        """Whether no transaction is open, as far as the connection of this driver knows. Costs no round trip.

        Default: it knows nothing else (True).
        """
        return True

    def recover(self, driver: Any) -> bool:
        """End what was interrupted on this connection, where no reply can be outstanding; False: it must be closed. Default."""
        return False

    def is_transient(self, code: str) -> bool:
        """Whether the same transaction may succeed when it runs again."""
        return code in self.transient or code in self.read_only or code in self.expired

    def is_away(self, code: str) -> bool:
        """Whether the server is unavailable, so that every statement fails: no collision with another transaction."""
        return self.is_transient(code) and code not in self.faults and code not in self.expired

    def refuses_changes(self, code: str | None) -> bool:
        """Whether this is the error of a server or file that takes no changes at all, whatever the rights of the user."""
        return code in self.read_only

    def leads_astray(self, error: SQLAlchemyError) -> bool:
        """Whether the connection takes no changes, while a new one may: it leads to another server, or finds other settings."""
        return isinstance(error, DBAPIError) and self.refuses_changes(self.code(error))
