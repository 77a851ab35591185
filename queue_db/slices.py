"""What stands beside the queue: packages with tables and verbs of their own, which the queue does not import.

A slice is the package of its name. It registers itself with a module ``registration``, in which ``SLICE`` says what it adds to the
queue's own verbs. Only this module finds it, by its name, when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, MetaData, Select

    from queue_db.db import QueueDB
    from queue_db.store.base import Store, Transaction
    from queue_db.worker.run import Run
    from queue_db.worker.worker import Worker

#: The slices, in the order in which they are asked.
NAMES = ("feeds", "routes", "spark", "monitoring", "service")


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


class Task(NamedTuple):
    """Maintenance that workers do now and then. What it raises is logged, and it runs again."""

    #: What it does, for the log: ``trimming feeds``.
    name: str
    #: Seconds between two runs, give or take a quarter. Each worker does it.
    every: float
    #: Does a part that takes seconds at most; whether there is more to do at once.
    run: Callable[[], bool]
    #: Whether the first run is at the start of the worker, not within the first ``every`` seconds.
    at_start: bool = False


class Slots(Protocol):
    """The slots in one run of a worker that execute something other than jobs of its queues, each slot in its own thread.

    An option of the worker gives the names and, for each name, the number of slots.
    """

    def __init__(self, run: Run) -> None: ...

    @staticmethod
    def checked(names: Mapping[str, int]) -> dict[str, int]:
        """The option, checked.

        :raises ArgumentError: a value is outside its allowed range.
        """

    @staticmethod
    def queues(names: Mapping[str, int]) -> list[str]:
        """The queues of the jobs that result: the worker works on them if it is given no queues."""

    @staticmethod
    def prepare(worker: Worker) -> None:
        """Look whether the worker can run.

        :raises ConfigurationError: it cannot.
        """

    def start(self, *, until_empty: bool) -> None:
        """Start the threads; with ``until_empty`` each ends when there is nothing for it."""

    @property
    def busy(self) -> bool:
        """Whether the end of the run waits for a slot."""

    @property
    def in_hand(self) -> int:
        """How many handlers they run whose results count."""

    def stuck(self, longer: float) -> int:
        """How many handlers have not returned although their results have not counted for more than ``longer`` seconds."""

    def beat(self) -> float:
        """Extend the leases; return how many seconds to wait until the next time."""

    def check_timeouts(self) -> None:
        """End the calls that take longer than their timeouts."""

    def wake(self) -> None:
        """End the waits of idle slots: the worker stops."""

    def end(self) -> None:
        """Take from the slots what they still have."""


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
    #: Imports what else the slots of a worker can execute; called when a worker has such slots.
    slots: Callable[[], type[Slots]] | None = None
    #: The maintenance that each worker does for it.
    tasks: Callable[[QueueDB], Iterable[Task]] | None = None


@lru_cache(maxsize=1)
def slices() -> Mapping[str, Slice]:
    """All slices, by name."""
    return {name: load(f"{name}.registration", "SLICE") for name in NAMES}


def holders() -> list[Holder]:
    """The holders of all slices that hold jobs."""
    return [part.holder for part in slices().values() if part.holder is not None]


def tasks(db: QueueDB) -> list[Task]:
    """The maintenance of all slices."""
    return [task for part in slices().values() if part.tasks is not None for task in part.tasks(db)]


def slots(name: str) -> type[Slots]:
    """What the slots of a worker can execute of the slice of this name."""
    imported = slices()[name].slots
    if imported is None:
        raise LookupError(f"{name} has nothing for the slots of a worker")
    return imported()


def load(module: str, name: str) -> Any:
    """What a slice has under ``name`` in one of its modules."""
    return getattr(import_module(f"queue_db.{module}"), name)
