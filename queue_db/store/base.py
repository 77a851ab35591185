"""What functions of the store run with: the tables of a database, and a transaction on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Table, case, literal
from sqlalchemy.util import LRUCache

from queue_db.dialects import Dialect
from queue_db.dialects.claim_sql import ClaimText, Shape
from queue_db.dialects.clock import moment
from queue_db.dialects.transactions import Sender
from queue_db.model import MOST_ATTEMPTS, MOST_VERSION, Capability, Notice
from queue_db.store.schema import Tables
from queue_db.store.wakeups import CANCELLED, Notifications

if TYPE_CHECKING:
    from queue_db.notifications.deaths import Death


@dataclass(frozen=True, eq=False)
class Store:
    """The tables of one queue store in one database."""

    tables: Tables
    dialect: Dialect
    capabilities: frozenset[Capability]
    #: Microseconds since 1970, for tests that set the time; None: the database's clock.
    clock: Callable[[], int] | None = None
    #: Who waits for jobs.
    notifications: Notifications = field(kw_only=True, repr=False)
    #: What slices keep for a store, by their names.
    beside: dict[str, Any] = field(default_factory=dict, repr=False)
    #: The SQL of the claims in use, by shape, with the statements that were made of it.
    claims: LRUCache[Any, ClaimText] = field(default_factory=lambda: LRUCache(32), repr=False)


class Transaction(Sender):
    """A transaction, for what runs in it: its connection, tables and clock, and what follows its commit.

    It is one of our own, or a caller's (``using=``). A caller's ends out of our sight: nothing follows it here.
    """

    dialect: Dialect

    __slots__ = ("deaths", "following", "own", "store", "tables", "woken")

    def __init__(self, connection: Connection, store: Store, *, own: bool = True) -> None:
        super().__init__(connection, store.dialect)
        #: Whether it is not a caller's.
        self.own = own
        self.store = store
        self.tables = store.tables
        #: The jobs that died in it without a lease, by id, if its caller reports them: see ``Core.run_reporting_deaths``.
        self.deaths: dict[int, Death] | None = None
        #: What is called after its commit.
        self.following: list[Callable[[], None]] = []
        #: What the listeners of this process are told after it → whether other processes were notified of it through the database.
        self.woken: dict[str, bool] = {}

    def claim_text(self, shape: Shape) -> ClaimText:
        """The SQL of claims of this shape, made once."""
        sql = self.connection.dialect  # a caller's connection has another one
        claim = self.store.claims.get((shape, sql))
        if claim is None:
            claim = self.store.claims[shape, sql] = ClaimText(self.dialect, self.tables.jobs, shape, sql)
        return claim

    # --- the clock --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> ColumnElement[int]:
        """The time in a statement: the database's, or a parameter that :meth:`time` gives. Microseconds since 1970."""
        return moment(self.store.clock is not None)

    def time(self) -> dict[str, int]:
        """The value of the parameter ``now`` of a statement; empty if the time is that of the database's clock."""
        clock = self.store.clock
        return {} if clock is None else {"now": clock()}

    def read_clock(self) -> int:
        """Microseconds since 1970 by the clock that counts."""
        clock = self.store.clock
        return clock() if clock else int(self.connection.execute(self.dialect.clock_query()).scalar_one())

    # --- what follows its commit ------------------------------------------------------------------------------------

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call this when it is committed, before anybody is woken: something short that raises nothing."""
        self.following.append(call)

    def wake(self, *queues: str) -> None:
        """Its commit wakes those who wait for jobs of these queues: there are new due ones."""
        for queue in sorted(set(queues)):
            if notice := self.notice(queue):
                self.dialect.notify(self, notice.channel, queue)

    def notice(self, queue: str) -> Notice | None:
        """:meth:`wake` for a statement that notifies by itself: what it sends to the database; None: nothing now."""
        notifications = self.store.notifications
        due = self.dialect.notifies and notifications.due(queue)
        self.woken[queue] = due or self.woken.get(queue, False)
        return Notice(notifications.channel, queue) if due else None

    def wake_cancelled(self, job_id: int) -> None:
        """Its commit tells the worker that runs this job that it was cancelled."""
        text = f"{CANCELLED}{job_id}"
        if self.dialect.notifies:
            self.dialect.notify(self, self.store.notifications.channel, text)
        self.woken[text] = False

    def follow(self) -> None:
        """Do what follows its commit. The last step of a verb: it may run anything, wait for that, and raise what that raises."""
        for call in self.following:
            call()
        if self.woken:
            self.store.notifications.wake(*self.woken)

    def rolled_back(self) -> None:
        """It was not committed: what it would have sent is due again."""
        for queue, sent in self.woken.items():
            if sent:
                self.store.notifications.unsent(queue)


def follow(transactions: Iterable[Transaction]) -> None:
    """Do what follows some transactions. If one raises something, go on with the others.

    :raises Exception: the first that was raised.
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
    """What a change makes of ``version``: one more, as far as the column goes. No lease gets there."""
    return case((table.c.version < MOST_VERSION, table.c.version + 1), else_=table.c.version)


def next_attempt(table: Table) -> ColumnElement[int]:
    """What a claim makes of ``attempts``: one more, as far as the column goes."""
    return case((table.c.attempts < MOST_ATTEMPTS, table.c.attempts + 1), else_=MOST_ATTEMPTS)


def attempt_before(table: Table) -> ColumnElement[int]:
    """What the end of a claim that is no attempt makes of ``attempts``: what they were before it."""
    return case((table.c.attempts > 0, table.c.attempts - 1), else_=0)


def each(column: ColumnElement[Any], values: Mapping[Any, Any], kind: Any) -> ColumnElement[Any]:
    """A value for each of the column's; plain when they are all the same."""
    different = set(values.values())
    if len(different) == 1:
        return literal(different.pop(), kind)
    return case({known: literal(value, kind) for known, value in values.items()}, value=column)
