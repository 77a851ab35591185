"""Removal: how a completed job leaves the table. ``queue_db.compare`` compares removals, strategies and databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from queue_db import arguments
from queue_db.dialects.statements import Pairs
from queue_db.model import Capability
from queue_db.store import settle
from queue_db.store.base import Transaction


@runtime_checkable
class Removal(Protocol):
    """How completed jobs leave the table."""

    @property
    def name(self) -> str:
        """The name of the removal in options and reports."""

    @property
    def needs(self) -> frozenset[Capability]:
        """Required capabilities of the database."""

    @property
    def retries(self) -> int:
        """How often the transaction runs again after a transient error; unless 0, after deadlocks for 30 s while a lease holds."""

    @property
    def marks(self) -> bool:
        """Whether jobs stay in the table, marked by :func:`queue_db.store.settle.mark`, until a worker sweeps them away."""

    def remove(self, tx: Transaction, pairs: Pairs) -> set[int]:
        """Remove the jobs that are still at their ``(id, version)``; return their ids.

        The connection may commit each statement by itself: call ``tx.begin()`` before several statements that belong together.
        Each function of :mod:`queue_db.store.settle` calls it where it needs several; ``settle.lock`` always does.
        """


@dataclass(frozen=True)
class _Repeated:
    """The settings and attributes that the removals below share."""

    retries: int = 5
    name: ClassVar[str]
    marks: ClassVar[bool] = False
    needs: ClassVar[frozenset[Capability]] = frozenset()

    def __post_init__(self) -> None:
        arguments.whole("retries", self.retries, 0, 100)


@dataclass(frozen=True)
class Delete(_Repeated):
    """One fenced DELETE, repeated after a deadlock."""

    name: ClassVar[str] = "delete"

    # The attribute is the function itself: a method around it would cost one more call for each completion.
    remove = staticmethod(settle.delete)


@dataclass(frozen=True)
class LockThenDelete(_Repeated):
    """SELECT … FOR UPDATE, then DELETE: the way of frameworks that load a row before they delete it."""

    name: ClassVar[str] = "lock_then_delete"

    def remove(self, tx: Transaction, pairs: Pairs) -> set[int]:
        """Lock the rows, then delete them."""
        held = settle.lock(tx, pairs)
        return settle.delete(tx, held) if held else set()


@dataclass(frozen=True)
class DeleteMark(_Repeated):
    """Mark the row as done and move it out of its queue, so that no claim reads it.

    A sweep (by ``db.sweep()`` or a worker) deletes marked rows later.
    """

    name: ClassVar[str] = "delete_mark"
    marks: ClassVar[bool] = True

    # The attribute is the function itself, as in Delete.
    remove = staticmethod(settle.mark)


_NAMED: dict[str, Callable[[], Removal]] = {made.name: made for made in (Delete, LockThenDelete, DeleteMark)}


def known_removals() -> list[str]:
    """Names that ``QueueDB(removal=…)`` takes."""
    return sorted(_NAMED)


def removal_for(removal: str | Removal) -> Removal:
    """The removal with this name, or the given object itself.

    :raises ConfigurationError: the name is unknown, or the object is not a removal.
    """
    return arguments.chosen("removal", removal, _NAMED, Removal, "name, needs, retries, marks and remove")
