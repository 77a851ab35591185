"""The arguments of the store's functions: the tables of a database, and a transaction on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Table, case, literal

from queue_db.dialects import Dialect
from queue_db.dialects.claim_sql import ClaimText, Shape
from queue_db.dialects.clock import clock_query, moment
from queue_db.dialects.transactions import Sender
from queue_db.model import MOST_ATTEMPTS, MOST_VERSION, Capability, Notice
from queue_db.store.schema.tables import Tables
from queue_db.store.wakeups import CANCELLED, Notifications

if TYPE_CHECKING:
    from queue_db.notifications.deaths import Death


@dataclass(frozen=True, eq=False)
class Store:
    """The tables of one queue store in one database."""

    tables: Tables
    dialect: Dialect
    capabilities: frozenset[Capability]
    #: Returns microseconds since 1970, for tests that set the time; None: the database's clock.
    clock: Callable[[], int] | None = None
    #: Wakes the workers that wait for jobs.
    notifications: Notifications = field(kw_only=True, repr=False)
    #: Objects that slices keep for this store, by the name of the slice.
    beside: dict[str, Any] = field(default_factory=dict, repr=False)
    #: ``claim_text(sql, *shape)`` returns the SQL of claims of this shape for the SQLAlchemy dialect ``sql``. A caller's connection
    #: has its own SQLAlchemy dialect. The latest texts are cached, with the statements made from them.
    claim_text: Callable[..., ClaimText] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        dialect, jobs = self.dialect, self.tables.jobs
        kept = lru_cache(maxsize=48)(lambda sql, *shape: ClaimText(dialect, jobs, Shape(*shape), sql))
        object.__setattr__(self, "claim_text", kept)


class Transaction(Sender):
    """A transaction: its connection, tables and clock, and the calls and notifications after its commit.

    Either the library or a caller (``using=``) has begun the transaction. The library cannot see a caller's commit, so
    :meth:`follow` is not called after such a commit.
    """

    dialect: Dialect

    __slots__ = ("deaths", "following", "own", "store", "tables", "woken")

    def __init__(self, connection: Connection, store: Store, *, own: bool = True) -> None:
        super().__init__(connection, store.dialect)
        #: Whether the library began the transaction; False: a caller began it.
        self.own = own
        self.store = store
        self.tables = store.tables
        #: The jobs that died in this transaction without a lease, by id. None: deaths are not reported. See
        #: ``Core.run_reporting_deaths``.
        self.deaths: dict[int, Death] | None = None
        #: The functions to call after the commit.
        self.following: list[Callable[[], None]] = []
        #: The notifications for the listeners of this process, sent after the commit. The value says whether the database sends the
        #: notification to other processes.
        self.woken: dict[str, bool] = {}

    # --- the clock --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> ColumnElement[int]:
        """The time as an expression for statements, in microseconds since 1970.

        It is the database's clock, or a parameter whose value :meth:`time` returns.
        """
        return moment(self.store.clock is not None)

    def time(self) -> dict[str, int]:
        """The parameter ``now`` of a statement; empty if the time comes from the database's clock."""
        clock = self.store.clock
        return {} if clock is None else {"now": clock()}

    def read_clock(self) -> int:
        """Read the store's clock, or the database's clock if the store has none: microseconds since 1970."""
        clock = self.store.clock
        return clock() if clock else int(self.connection.execute(clock_query()).scalar_one())

    # --- after the commit -------------------------------------------------------------------------------------------

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call ``call`` after the commit, before workers are woken. It must be short and raise nothing."""
        self.following.append(call)

    def wake(self, *queues: str) -> None:
        """Wake the workers that wait for jobs of these queues when the transaction commits."""
        for queue in sorted(set(queues)):
            if notice := self.notice(queue):
                self.dialect.notify(self, notice.channel, queue)

    def notice(self, queue: str) -> Notice | None:
        """Wake the workers of ``queue`` when the transaction commits, and return the notification for other processes.

        This is for a statement that sends the notification itself.

        :return: the notification to send; None: send no notification now.
        """
        notifications = self.store.notifications
        due = self.dialect.notifies and notifications.due(queue)
        self.woken[queue] = due or self.woken.get(queue, False)
        return Notice(notifications.channel, queue) if due else None

    def wake_cancelled(self, job_id: int) -> None:
        """Tell the worker that runs this job, when the transaction commits, that the job was cancelled."""
        text = f"{CANCELLED}{job_id}"
        if self.dialect.notifies:
            self.dialect.notify(self, self.store.notifications.channel, text)
        self.woken[text] = False

    def follow(self) -> None:
        """After the commit, call the functions in ``following`` and wake the workers.

        This is the last step of a verb. The functions may take long and may raise exceptions.
        """
        for call in self.following:
            call()
        if self.woken:
            self.store.notifications.wake(*self.woken)

    def rolled_back(self) -> None:
        """After a rollback, make the notifications of this transaction due again, because they were not sent."""
        for queue, sent in self.woken.items():
            if sent:
                self.store.notifications.unsent(queue)


def follow(transactions: Iterable[Transaction]) -> None:
    """Call :meth:`Transaction.follow` of each transaction, even if an earlier call raised an exception.

    :raises Exception: the first exception of these calls.
    """
    first: Exception | None = None
    for tx in transactions:
        try:
            tx.follow()
        except Exception as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first


def next_version(table: Table) -> ColumnElement[int]:
    """The ``version`` after a change: the old version plus 1, at most the largest value. No lease reaches the largest value."""
    return case((table.c.version < MOST_VERSION, table.c.version + 1), else_=table.c.version)


def next_attempt(table: Table) -> ColumnElement[int]:
    """The ``attempts`` after a claim: the old number plus 1, at most the largest value."""
    return case((table.c.attempts < MOST_ATTEMPTS, table.c.attempts + 1), else_=MOST_ATTEMPTS)


def attempt_before(table: Table) -> ColumnElement[int]:
    """The ``attempts`` before a claim that does not count as an attempt: the number minus 1, at least 0."""
    return case((table.c.attempts > 0, table.c.attempts - 1), else_=0)


def each(column: ColumnElement[Any], values: Mapping[Any, Any], kind: Any) -> ColumnElement[Any]:
    """An expression that maps each value of ``column`` to its value in ``values``; one literal if all ``values`` are the same."""
    different = set(values.values())
    if len(different) == 1:
        return literal(different.pop(), kind)
    return case({known: literal(value, kind) for known, value in values.items()}, value=column)
