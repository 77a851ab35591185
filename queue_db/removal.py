"""Removal: how a completed job leaves the table. The third axis of a comparison, beside strategy and database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from queue_db import arguments
from queue_db.dialects.statements import Pairs
from queue_db.errors import ConfigurationError
from queue_db.model import Capability
from queue_db.store import settle
from queue_db.store.base import Transaction


@runtime_checkable
class Removal(Protocol):
    """How completed jobs leave the table."""

    @property
    def name(self) -> str:
        """Its name in options and reports."""
        ...

    @property
    def needs(self) -> frozenset[Capability]:
        """Required capabilities of the database."""
        ...

    @property
    def retries(self) -> int:
        """How often the transaction runs again after a deadlock or another transient error."""
        ...

    @property
    def marks(self) -> bool:
        """Whether jobs stay in the table, marked by :func:`queue_db.store.settle.mark`, until a worker sweeps them away."""
        ...

    def remove(self, tx: Transaction, pairs: Pairs) -> set[int]:
        """Remove the jobs that are still at their ``(id, version)``; return their ids.

        The connection may commit each statement by itself: call ``tx.begin()`` before several that belong together.
        The functions of :mod:`queue_db.store.settle` do so where needed.
        """
        ...


def _check_retries(retries: int) -> None:
    arguments.whole("retries", retries, 0, 100)


@dataclass(frozen=True)
class Delete:
    """One fenced DELETE, repeated after a deadlock."""

    retries: int = 5
    name: str = field(default="delete", init=False)
    marks: bool = field(default=False, init=False, repr=False)
    needs: frozenset[Capability] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        _check_retries(self.retries)

    # The function itself: a method around it would be one more call for each completion.
    remove = staticmethod(settle.delete)


@dataclass(frozen=True)
class LockThenDelete:
    """SELECT … FOR UPDATE, then DELETE, as frameworks that load a row before they delete it do."""

    retries: int = 5
    name: str = field(default="lock_then_delete", init=False)
    marks: bool = field(default=False, init=False, repr=False)
    needs: frozenset[Capability] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        _check_retries(self.retries)

    def remove(self, tx: Transaction, pairs: Pairs) -> set[int]:
        """Lock the rows, then delete them."""
        held = settle.lock(tx, pairs)
        return settle.delete(tx, held) if held else set()


@dataclass(frozen=True)
class DeleteMark:
    """Mark the row as done and move it out of its queue, so that no claim meets it; a sweeper (``db.sweep()``, the worker) deletes
    marked rows later.
    """

    retries: int = 5
    name: str = field(default="delete_mark", init=False)
    marks: bool = field(default=True, init=False, repr=False)
    needs: frozenset[Capability] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        _check_retries(self.retries)

    def remove(self, tx: Transaction, pairs: Pairs) -> set[int]:
        """Mark the rows."""
        return settle.mark(tx, pairs)


_NAMED: dict[str, Callable[[], Removal]] = {
    "delete": Delete,
    "lock_then_delete": LockThenDelete,
    "delete_mark": DeleteMark,
}


def known_removals() -> list[str]:
    """Names that ``QueueDB(removal=…)`` takes."""
    return sorted(_NAMED)


def removal_for(removal: str | Removal) -> Removal:
    """The removal of that name, or the object itself.

    :raises ConfigurationError: for an unknown name, or an object that is no removal.
    """
    if isinstance(removal, str):
        try:
            return _NAMED[removal]()
        except KeyError:
            raise ConfigurationError(f"unknown removal {removal!r}; known: {', '.join(known_removals())}") from None
    if isinstance(removal, type):
        raise ConfigurationError(f"removal={removal.__name__} is a class: pass an object, {removal.__name__}()")
    if not isinstance(removal, Removal):
        raise ConfigurationError(
            f"removal={arguments.shown(removal)} is neither a name nor an object with name, needs, retries, marks and remove"
        )
    return removal
