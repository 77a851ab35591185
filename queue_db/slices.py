"""Slices: packages that add tables and verbs to the queue, and that the queue does not import.

A slice has the name of its package. Its module ``registration`` defines ``SLICE``, which says what the slice adds to the queue's
verbs. Only this module imports slices, by name, when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ForwardRef, NamedTuple, Protocol

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, MetaData, Select

    from queue_db.db import QueueDB
    from queue_db.model import Group, JobLinks, NewJob
    from queue_db.store.base import Store, Transaction
    from queue_db.store.on_leave import Departure, Leave
    from queue_db.strategies.policies import Policy
    from queue_db.worker.options import Options
    from queue_db.worker.run import Run
    from queue_db.worker.worker import Worker

#: The names of the slices, in the order in which they are called.
NAMES = ("groups", "limits", "fairness", "schedules", "dead", "feeds", "routes", "spark", "monitoring", "tokens", "steps", "graphs")


class Holder(Protocol):
    """Functions of a slice that holds claimed jobs in tables of its own: they find and count these jobs."""

    def queues(self, tx: Transaction) -> Iterable[str]:
        """The names of the queues whose jobs the slice holds."""

    def count(self, tx: Transaction, queue: str) -> int:
        """How many jobs of this queue the slice holds."""

    def job(
        self,
        store: Store,
        queue: str | None,
        job_id: int | ColumnElement[int],
        shown: Callable[[Mapping[str, ColumnElement[Any]]], Select[Any]],
    ) -> Select[Any]:
        """Select the job with this id if the slice holds it.

        :param queue: the queue of the job; None: any queue.
        :param job_id: a number, or the column of the SELECT around this one.
        :param shown: a function that makes the SELECT from a mapping of names to columns.
        """


class Entry(Protocol):
    """Adds jobs with groups in a transaction. The groups are locked until the transaction ends."""

    def waiting(self, of: Sequence[Group | None], /) -> list[bool]:
        """For each new job, whether it has to wait for other jobs of its group.

        :param of: the group of each new job; None: the job has no group.
        """

    def block(self, jobs: Sequence[NewJob], /) -> list[NewJob]:
        """Return ``jobs`` for the insert. Jobs that have to wait in their groups are blocked."""

    def inserted(self, jobs: Mapping[int, NewJob], /, *, all_new: bool) -> None:
        """Finish the insert of ``jobs`` (id → job).

        :param all_new: False: at least one job was skipped or replaced another job.
        """


class Dependents(Protocol):
    """Functions of the slice that lets jobs wait for other jobs: for earlier jobs of their group, or for all jobs of a batch."""

    def enter(self, tx: Transaction, groups_of: Collection[Group], *, every: bool = False) -> Entry:
        """Lock these groups, before jobs of the groups are added or rescheduled.

        :param every: lock all groups, for a transaction that adds more jobs later.
        """

    def leave(self, tx: Transaction, links: Mapping[int, JobLinks], remove: Leave, *, every: bool = False) -> None:
        """Run ``remove``. Then unblock or enqueue the jobs that waited for the jobs that have left.

        :param links: the group and batch of each job that may leave, by id.
        :param every: lock all groups if a job has a group, since more jobs may leave later in this transaction.
        """


class Left(NamedTuple):
    """How the job of a node has left its queue."""

    departure: Departure
    #: What its handler returned, encoded; None: nothing.
    result: str | None = None


class Nodes(Protocol):
    """Functions of the slice whose jobs are nodes of graphs. Each is called only for jobs of graphs."""

    def left(self, tx: Transaction, jobs: Mapping[int, Left], /) -> None:
        """Start or cancel the nodes that waited for ``jobs`` (id → how it left), which have left in this transaction."""

    def redriven(self, tx: Transaction, ids: Sequence[int], /) -> None:
        """The jobs with these ids have returned from the dead table to their queues."""

    def purged(self, tx: Transaction, ids: Sequence[int], /) -> None:
        """Jobs with these ids may have been deleted from the dead table."""

    def kept(self, tx: Transaction, job_id: ColumnElement[int], /) -> Select[Any]:
        """Select the cancelled node that can bring back the job with the id in this column of the SELECT around this one."""


#: Seconds until the next run of a task that has more to do: other tasks run in between.
AGAIN = 0.1


class Task(NamedTuple):
    """Maintenance that each worker runs from time to time. Exceptions are logged, and the task runs again later."""

    #: A description for the log, such as ``trimming feeds``.
    name: str
    #: Seconds between two runs in one worker, also after a failed run. A random part of up to a quarter is added or subtracted.
    every: float
    #: A function that does a part of the work, in a few seconds at most. It returns the seconds until its next run; None: the next
    #: run is after ``every`` seconds.
    run: Callable[[], float | None]
    #: Whether the first run is at the start of the worker; False: at a time within the first ``every`` seconds.
    at_start: bool = False
    #: Whether the task enqueues jobs that are due. If so, a worker that runs until its queues are empty runs the task first, and a
    #: failure of the task counts as an outage.
    enqueues: bool = False


class Slots(Protocol):
    """Slots in which one run of a worker executes something other than the jobs of its queues. Each slot has its own thread.

    An option of the worker maps the names of what the slots execute to the numbers of slots.
    """

    def __init__(self, run: Run) -> None: ...

    @staticmethod
    def checked(names: Mapping[str, int]) -> dict[str, int]:
        """Check the option of the worker and return it.

        :raises ArgumentError: a value is outside its allowed range.
        """

    @staticmethod
    def queues(names: Mapping[str, int]) -> list[str]:
        """The queues of the jobs that the slots create. A worker without given queues works on these queues."""

    @staticmethod
    def prepare(worker: Worker) -> None:
        """Prepare the run of the worker, and check that it is possible.

        :raises ConfigurationError: the worker cannot run.
        """

    def start(self, *, until_empty: bool) -> None:
        """Start the threads. With ``until_empty`` each thread ends when it finds nothing to do."""

    @property
    def busy(self) -> bool:
        """Whether a slot is still at work, so that the run of the worker must not end."""

    @property
    def in_hand(self) -> int:
        """How many handlers run in these slots. Handlers that have lost their messages are not counted."""

    def stuck(self, longer: float) -> int:
        """How many handlers still run although they lost their messages more than ``longer`` seconds ago."""

    def beat(self) -> float:
        """Extend the leases of the slots; return the seconds until the next call."""

    def check_timeouts(self) -> None:
        """End the handler calls that take longer than their timeouts."""

    def wake(self) -> None:
        """End the waits of idle slots, since the worker stops or is quiet."""

    def end(self) -> None:
        """End the leases of the slots that are still at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a slice adds to the queue."""

    #: Makes the tables of the slice from the name of the table of jobs and the store's metadata; None: the slice has no tables.
    tables: Callable[[str, MetaData], Any] | None = None
    #: Finds and counts the jobs that the slice holds; None: the slice holds no jobs.
    holder: Holder | None = None
    #: Returns whether the slice has rows for a queue, such as a schedule or a stream; None: the slice is not asked.
    knows: Callable[[Transaction, str], bool] | None = None
    #: Functions to call when jobs with a group or a batch enter or leave their queue. Only one slice has them.
    dependents: Dependents | None = None
    #: Functions to call when jobs of graphs leave. Only one slice has them.
    nodes: Nodes | None = None
    #: Reads which queues have claims of another kind than the strategy's, and how these choose: by queue. It gets the policies that
    #: it returned before in this process. Only one slice has them.
    policies: Callable[[Transaction, Mapping[str, Policy]], dict[str, Policy]] | None = None
    #: Deletes up to ``limit`` expired rows of the slice. ``QueueDB.prune`` calls it until no such row is left.
    prune: Callable[..., int] | None = None
    #: Releases the leases of a dead worker in the tables of the slice; returns how many, or None: some that do not count as jobs.
    #: ``QueueDB.rescue`` calls it.
    rescue: Callable[[Transaction, str], int | None] | None = None
    #: Returns feed, reader, and the number of messages by which the reader is behind, for monitoring.
    behind: Callable[[Transaction], list[tuple[str, str, int]]] | None = None
    #: Imports the slots that the slice adds to a worker. It is called only for a worker with such slots.
    slots: Callable[[], type[Slots]] | None = None
    #: Returns the maintenance tasks that a worker with these options runs for the slice.
    tasks: Callable[[QueueDB, Options], Iterable[Task]] | None = None


@lru_cache(maxsize=1)
def slices() -> Mapping[str, Slice]:
    """All slices, by name."""
    return {name: load(f"{name}.registration", "SLICE") for name in NAMES}


def holders() -> list[Holder]:
    """The :class:`Holder` of each slice that holds jobs."""
    return [part.holder for part in slices().values() if part.holder is not None]


@lru_cache(maxsize=1)
def dependents() -> Dependents:
    """The :class:`Dependents` of the slice that has them."""
    return next(part.dependents for part in slices().values() if part.dependents is not None)


@lru_cache(maxsize=1)
def nodes() -> Nodes:
    """The :class:`Nodes` of the slice that has them."""
    return next(part.nodes for part in slices().values() if part.nodes is not None)


def policies(tx: Transaction, before: Mapping[str, Policy]) -> dict[str, Policy]:
    """How the claims of some queues choose, by queue.

    :param before: the policies that this process has used up to now.
    """
    return next(part.policies(tx, before) for part in slices().values() if part.policies is not None)


def tasks(db: QueueDB, options: Options) -> list[Task]:
    """The maintenance tasks of all slices, for a worker with these options."""
    return [task for part in slices().values() if part.tasks is not None for task in part.tasks(db, options)]


def slots(name: str) -> type[Slots]:
    """The class of the slots that the slice of this name adds to a worker.

    :raises LookupError: the slice adds no slots.
    """
    imported = slices()[name].slots
    if imported is None:
        raise LookupError(f"{name} has nothing for the slots of a worker")
    return imported()


def type_hint(module: str, name: str) -> Any:
    """A reference in annotations to a class that is imported only when ``typing.get_type_hints`` evaluates them."""
    # Python 3.14 evaluates a reference inside another one in the module of the outer one, so it stands for itself.
    return ForwardRef(f"__import__('importlib').import_module({module!r}).{name}")


def load(module: str, name: str) -> Any:
    """The attribute ``name`` of ``queue_db.<module>``, which is a module of a slice."""
    return getattr(import_module(f"queue_db.{module}"), name)
