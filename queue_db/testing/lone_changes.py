"""Find transactions whose changes would commit one by one, because nothing has begun the transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from queue_db.dialects.transactions import Sender, own

_LOCK = re.compile(r"\bFOR (NO KEY )?UPDATE\b|\bFOR (KEY )?SHARE\b|\bLOCK IN SHARE MODE\b")
_CHANGE = re.compile(r"\b(INSERT|UPDATE|DELETE|REPLACE) |\bpg_notify\b")


@lru_cache(maxsize=1000)
def _kind(text: str) -> str | None:
    """What a statement does that belongs into a transaction with others."""
    if text.startswith(("PREPARE ", "DEALLOCATE ")):
        return None  # it is executed afterwards
    text, locks = _LOCK.subn("", text)
    return "change" if _CHANGE.search(text) else "lock" if locks else None


class LoneChanges:
    """Looks at the statements of transactions of the library that have not begun."""

    def __init__(self) -> None:
        #: A line for each transaction that has sent several changes, or has locked rows, without BEGIN; with its statements.
        self.found: list[str] = []
        self._changes: WeakKeyDictionary[Sender, list[str]] = WeakKeyDictionary()
        # The ids of the connections on which a method of a Sender is running. SQLAlchemy may send its statement.
        self._sending: set[int] = set()

    def sends(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of Sender that sends a statement, and looks at it afterwards."""

        def send(tx: Sender, statement: Any, *arguments: Any) -> Any:
            self._sending.add(id(tx.connection))
            try:
                answer = method(tx, statement, *arguments)
            finally:
                self._sending.discard(id(tx.connection))
            self._look(tx, statement)
            return answer

        return send

    def sends_beside(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a method of Connection."""

        def send(connection: Connection, statement: Any, *arguments: Any, **options: Any) -> Any:
            answer = method(connection, statement, *arguments, **options)
            if id(connection) not in self._sending and (tx := _current(connection)) is not None:
                self._look(tx, statement)
            return answer

        return send

    def leads(self, method: Callable[..., None]) -> Callable[..., None]:
        """``Sender.lead``: a transaction that runs again begins anew."""

        def lead(tx: Sender, *arguments: Any, **options: Any) -> None:
            self._changes.pop(tx, None)
            method(tx, *arguments, **options)

        return lead

    def _look(self, tx: Sender, statement: Any) -> None:
        while tx._block is not None:  # noqa: SLF001 - the transaction around this one
            tx = tx._block  # noqa: SLF001
        if tx.begun or not tx.autocommits:
            return
        text = statement if isinstance(statement, str) else str(statement.compile(dialect=tx.connection.dialect))
        kind = _kind(text)
        if kind is None:
            return
        changes = self._changes.setdefault(tx, [])
        changes.append(text)
        if len(changes) == (1 if _kind(changes[0]) == "lock" else 2):  # once for each transaction
            self.found.append(" | ".join(changes))


def _current(connection: Connection) -> Sender | None:
    try:
        return own(connection)
    except NotImplementedError:
        return None  # with this connection SQLAlchemy asks a server for its version


@contextmanager
def lone_changes() -> Iterator[list[str]]:
    """The transactions in the block that lack a ``tx.begin()``: each has sent two changes that commit alone, or has locked rows."""
    watch = LoneChanges()
    with (
        mock.patch.object(Sender, "lead", watch.leads(Sender.lead)),
        mock.patch.object(Sender, "fetch", watch.sends(Sender.fetch)),
        mock.patch.object(Sender, "execute", watch.sends(Sender.execute)),
        mock.patch.object(Sender, "execute_many", watch.sends(Sender.execute_many)),
        mock.patch.object(Connection, "execute", watch.sends_beside(Connection.execute)),
        mock.patch.object(Connection, "exec_driver_sql", watch.sends_beside(Connection.exec_driver_sql)),
    ):
        yield watch.found
