"""What stands beside the queue: packages with tables and verbs of their own, which the queue does not import.

A slice is the package of its name. It registers itself with a module ``registration``, in which ``SLICE`` says what it adds to the
queue's own verbs. Only this module finds it, by its name, when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, MetaData, Select

    from queue_db.store.base import Store, Transaction

#: The slices, in the order in which they are asked.
NAMES = ("feeds", "routes", "spark")


class Holder(Protocol):
    """Functions of a slice that takes jobs out of the table of jobs and holds them in its own: where they are, for people."""

    def queues(self, tx: Transaction) -> Iterable[str]:
        """Names of the queues whose jobs it holds."""

    def knows(self, tx: Transaction, queue: str) -> bool:
        """Whether anything of it belongs to this queue."""

    def count(self, tx: Transaction, queue: str) -> int:
        """How many jobs of this queue it holds."""

    def job(
        self,
        store: Store,
        queue: str | None,
        job_id: int,
        shown: Callable[[Mapping[str, ColumnElement[Any]]], Select[Any]],
    ) -> Select[Any]:
        """Select the job of this id, of ``queue`` or of any, if it holds it; ``shown`` selects columns by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a slice adds to the queue."""

    #: Makes its tables: for the name of the table of jobs, in the metadata with the others.
    tables: Callable[[str, MetaData], Any]
    #: Where it has jobs.
    holder: Holder | None = None
    #: Deletes up to ``limit`` rows that have expired; ``QueueDB.prune`` calls it until there are no more.
    prune: Callable[..., int] | None = None
    #: Releases what a dead worker has leased of it; ``QueueDB.rescue`` calls it.
    rescue: Callable[[Transaction, str], int] | None = None
    #: How many messages the readers of each feed are behind, for monitors: feed, reader, messages.
    behind: Callable[[Transaction], list[tuple[str, str, int]]] | None = None


@lru_cache(maxsize=1)
def slices() -> Mapping[str, Slice]:
    """All slices, by name."""
    return {name: load(f"{name}.registration", "SLICE") for name in NAMES}


def holders() -> list[Holder]:
    """The holders of all slices that hold jobs."""
    return [known.holder for known in slices().values() if known.holder is not None]


def load(module: str, name: str) -> Any:
    """What a slice has under ``name`` in one of its modules."""
    return getattr(import_module(f"queue_db.{module}"), name)
