"""The article's rows, in its own table layout and under its own names.

``DBP-{db}-{dm}-{dtsx}-{dretry}`` is pessimistic: with a delete mark or not, with a SELECT before the DELETE or not, and so many
tries of the deleting transaction (0: none, a DELETE of its own). ``DBO-{db}-{w}`` is optimistic with a way to draw from a window: 0
the head, 1 uniform of N, 2 geometric of N, 5 and 6 the same of N/2, 9 and 10 of 2N, which the original never ran: a mistake in its
code took them for 5 and 6.

Each row is a claim, a removal and an index, declared below; the loop is the same for all.
"""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    insert,
    make_url,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from queue_db.compare.contestant import Desk, Place
from queue_db.compare.engines import autocommitting
from queue_db.compare.history import Race
from queue_db.dialects import Dialect, dialect_for

_QUEUE = "default"
_FILL = 1000

Pick = Literal["head", "uniform", "geometric"]


def jobs_table(schema: str | None, *, indexed: tuple[tuple[str, ...], ...]) -> Table:
    """Laravel 5.5's ``jobs`` with the article's two columns: seconds of the client's clock, an OR to find what is due."""
    return Table(
        "jobs",
        MetaData(schema=schema),
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("queue", String(255), nullable=False),
        Column("payload", Text, nullable=False),
        Column("attempts", SmallInteger, nullable=False),
        Column("reserved_at", Integer),
        Column("available_at", Integer, nullable=False),
        Column("created_at", Integer, nullable=False),
        Column("delete_mark", SmallInteger, nullable=False, server_default="0"),
        Column("version", Integer, nullable=False, server_default="0"),
        *(Index(f"jobs_{'_'.join(columns)}_index", *columns) for columns in indexed),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
    )


@dataclass(frozen=True)
class Session:
    """The table, a connection in autocommit mode, and what one worker does with them."""

    connection: Connection
    dialect: Dialect
    jobs: Table
    desk: Desk
    lease: int
    workers: int

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """BEGIN … COMMIT, as a framework sends them."""
        self.connection.exec_driver_sql("BEGIN")
        try:
            yield
        except BaseException:
            with suppress(DBAPIError):
                self.connection.exec_driver_sql("ROLLBACK")
            raise
        self.connection.exec_driver_sql("COMMIT")

    def due(self) -> Any:
        """The first jobs that are available or whose reservation has expired, in the order of their ids."""
        jobs = self.jobs
        return (
            select(jobs)
            .where(
                jobs.c.queue == bindparam("in_queue"),
                or_(
                    and_(jobs.c.reserved_at.is_(None), jobs.c.available_at <= bindparam("now")),
                    jobs.c.reserved_at <= bindparam("expired"),
                ),
            )
            .order_by(jobs.c.id)
            .limit(bindparam("wide"))
        )

    def look(self, query: Any, wide: int) -> list[Any]:
        """Run :meth:`due`."""
        now = int(time.time())
        return list(self.connection.execute(query, {"in_queue": _QUEUE, "now": now, "expired": now - self.lease, "wide": wide}))


class Claim(ABC):
    """How a row wins a job. Returns the stored row; None when there is none or somebody was faster."""

    words = ""

    def window(self, workers: int) -> int | None:
        """How many jobs it draws from."""
        return None

    @abstractmethod
    def claimer(self, session: Session) -> Callable[[], Any]:
        """A function that tries once."""


@dataclass(frozen=True)
class Pessimistic(Claim):
    """BEGIN; SELECT … FOR UPDATE; UPDATE; COMMIT."""

    words = "FOR UPDATE, head of the queue"

    def claimer(self, session: Session) -> Callable[[], Any]:
        """Lock the head, reserve it."""
        jobs, notes = session.jobs, session.desk
        # SQLite locks nothing here, and the article's framework does not either.
        query = session.dialect.lock_rows(session.due(), skip=False)
        reserve = update(jobs).where(jobs.c.id == bindparam("of")).values(reserved_at=bindparam("at"), attempts=jobs.c.attempts + 1)

        def claim() -> Any:
            with session.transaction():
                found = session.look(query, 1)
                if not found:
                    return None
                row = found[0]
                session.connection.execute(reserve, {"of": row.id, "at": int(time.time())})
            notes.notes.rounds += 1
            notes.notes.candidates += 1
            notes.notes.won += 1
            return row

        return claim


@dataclass(frozen=True)
class Optimistic(Claim):
    """SELECT a window, pick one, UPDATE … WHERE version; no transaction around them.

    :param share: width of the window in numbers of workers; 0 for one job.
    :param checked: without the version in the WHERE it is wrong: tests show that the measures tell.
    """

    pick: Pick
    share: float
    checked: bool = True

    @property
    def words(self) -> str:  # type: ignore[override]
        """For people."""
        width = {0: "1", 0.5: "N/2", 1: "N", 2: "2N", 4: "4N"}.get(self.share, f"{self.share:g}·N")
        return "by version, the head" if self.share == 0 else f"by version, {self.pick} pick from a window of {width}"

    def window(self, workers: int) -> int:
        """Jobs in the window."""
        return max(1, math.ceil(self.share * workers))

    def claimer(self, session: Session) -> Callable[[], Any]:
        """Read the window, try to take one of it."""
        jobs, notes, width = session.jobs, session.desk, self.window(session.workers)
        unflushed = session.dialect.shows_unflushed
        query = session.due()
        mine = [jobs.c.id == bindparam("of")]
        if self.checked:
            mine.append(jobs.c.version == bindparam("seen"))
        reserve = (
            update(jobs).where(*mine).values(reserved_at=bindparam("at"), attempts=jobs.c.attempts + 1, version=jobs.c.version + 1)
        )

        def claim() -> Any:
            asked = time.monotonic()
            found = session.look(query, width)
            read = time.monotonic()
            if not found:
                return None
            row = found[self._place(len(found))]
            values = {"of": row.id, "at": int(time.time())} | ({"seen": row.version} if self.checked else {})
            won = session.connection.execute(reserve, values).rowcount == 1
            answered = time.monotonic()
            notes.notes.races.append(Race.timed(asked, read, answered, won=won, unflushed=unflushed))
            notes.notes.rounds += 1
            notes.notes.candidates += 1
            notes.notes.won += won
            return row if won else None

        return claim

    def _place(self, width: int) -> int:
        if self.pick == "head":
            return 0
        if self.pick == "uniform":
            return random.randrange(width)
        # One third at each place, and the head if none.
        return next((place for place in range(width) if random.random() < 1 / 3), 0)


@dataclass(frozen=True)
class Removal:
    """How a row's finished jobs leave.

    :param mark: set ``delete_mark`` first, so that a failed DELETE does not run the job again.
    :param look: SELECT … FOR UPDATE before the DELETE.
    :param tries: of the deleting transaction; 0: a DELETE of its own.
    """

    mark: bool
    look: bool
    tries: int

    @property
    def words(self) -> str:
        """For people."""
        parts = ["mark"] if self.mark else []
        parts.append("SELECT FOR UPDATE, DELETE" if self.look else "DELETE")
        tries = {0: "in autocommit", 1: "1 try"}.get(self.tries, f"{self.tries} tries")
        return ", ".join([*parts, tries])

    def remover(self, session: Session) -> Callable[[int], int]:
        """A function that removes the job of an id and returns how many rows it deleted."""
        jobs = session.jobs
        by_id = jobs.c.id == bindparam("of")
        look = session.dialect.lock_rows(select(jobs).where(by_id), skip=False)
        mark = update(jobs).where(by_id).values(delete_mark=1)
        gone = delete(jobs).where(by_id)

        def once(job_id: int) -> int:
            if self.look and session.connection.execute(look, {"of": job_id}).first() is None:
                return 0
            return session.connection.execute(gone, {"of": job_id}).rowcount

        def remove(job_id: int) -> int:
            if self.mark:
                session.connection.execute(mark, {"of": job_id})
            if self.tries == 0:
                return once(job_id)
            for attempt in range(1, self.tries + 1):
                try:
                    with session.transaction():
                        return once(job_id)
                except DBAPIError:
                    if attempt == self.tries:
                        raise
            raise AssertionError("unreachable")  # pragma: no cover

        return remove


@dataclass(frozen=True)
class Article:
    """One row of the article."""

    pattern: str
    by: Claim
    leaves: Removal
    indexed: tuple[tuple[str, ...], ...] = (("queue",),)
    name: str = ""
    family: str = field(default="article", init=False)
    batch: int = field(default=1, init=False)

    @property
    def claim(self) -> str:
        """For people."""
        return self.by.words

    @property
    def removal(self) -> str:
        """For people."""
        return self.leaves.words

    @property
    def index(self) -> str:
        """For people."""
        return ", ".join(f"({', '.join(columns)})" for columns in self.indexed) or "none"

    def window(self, workers: int) -> float | None:
        """Width of the window, in jobs."""
        return self.by.window(workers)

    @property
    def pick(self) -> str | None:
        """How a job is drawn from the window."""
        return self.by.pick if isinstance(self.by, Optimistic) else None

    def configuration(self) -> dict[str, str]:
        """Nothing else."""
        return {}

    def refused(self, place: Place) -> str | None:
        """It runs everywhere."""
        return None

    def set_up(self, place: Place, jobs: int) -> None:
        """Make the table and fill it."""
        table = self._table(place)
        with autocommitting(place.url) as engine, engine.connect() as connection:
            table.drop(connection, checkfirst=True)
            table.create(connection)
            now = int(time.time())
            row = {"queue": _QUEUE, "attempts": 0, "available_at": 0, "created_at": now}
            connection.exec_driver_sql("BEGIN")
            for start in range(0, jobs, _FILL):
                numbers = range(start, min(start + _FILL, jobs))
                connection.execute(insert(table), [row | {"payload": str(number)} for number in numbers])
            connection.exec_driver_sql("COMMIT")
            dialect_for(engine.dialect.name).analyze(connection, table)

    def work(self, place: Place, desk: Desk) -> None:
        """Claim one job, remove it."""
        table = self._table(place)
        dialect = dialect_for(make_url(place.url).get_backend_name())
        with autocommitting(place.url) as engine, engine.connect() as connection, desk.watched(engine, dialect):
            session = Session(connection, dialect, table, desk, int(place.lease), place.workers)
            claim, remove = self.by.claimer(session), self.leaves.remover(session)
            session.look(session.due(), 1)  # compiled and planned before the gun
            desk.ready()
            while not desk.over:
                self._once(session, claim, remove)

    def tear_down(self, place: Place) -> None:
        """Drop the table."""
        with autocommitting(place.url) as engine:
            self._table(place).drop(engine, checkfirst=True)

    def _once(self, session: Session, claim: Callable[[], Any], remove: Callable[[int], int]) -> None:
        desk = session.desk
        asked, rounds = time.monotonic(), desk.notes.rounds
        # A claim that fails does no harm: the framework reports it and asks again. A removal that fails leaves the job in the
        # table, and it runs again when its reservation has expired. The errors are counted.
        with suppress(DBAPIError):
            row = claim()
            if row is None:
                if desk.notes.rounds == rounds:
                    desk.found_nothing()
                return
            if not row.delete_mark:
                number = int(row.payload)
                desk.claimed(asked, [number])
                if desk.clone:
                    desk.copy(1, lambda count: self._enqueue(session, count))
            desk.left(remove(row.id))

    def _enqueue(self, session: Session, count: int) -> None:
        now = int(time.time())
        row = {"queue": _QUEUE, "payload": "-1", "attempts": 0, "available_at": now, "created_at": now}
        session.connection.execute(insert(session.jobs), [row] * count)

    def _table(self, place: Place) -> Table:
        return jobs_table(place.schema, indexed=self.indexed)


_QUEUE_INDEX = (("queue",),)
_PLAIN = Removal(mark=False, look=False, tries=0)


def _pessimistic(dm: int, dtsx: int, dretry: int) -> Article:
    return Article(f"DBP-{{db}}-{dm}-{dtsx}-{dretry}", Pessimistic(), Removal(mark=bool(dm), look=bool(dtsx), tries=dretry))


#: In the article's order, the names without the database.
ARTICLE: tuple[Article, ...] = (
    _pessimistic(0, 1, 1),
    _pessimistic(0, 1, 0),
    _pessimistic(0, 0, 1),
    _pessimistic(0, 1, 5),
    _pessimistic(0, 0, 5),
    _pessimistic(1, 0, 1),
    _pessimistic(1, 0, 5),
    Article("DBP-{db}-noindex", Pessimistic(), Removal(mark=False, look=False, tries=5), indexed=()),
    Article(
        "DBP-{db}-0-1-1-reserved",
        Pessimistic(),
        Removal(mark=False, look=True, tries=1),
        indexed=(("queue",), ("queue", "reserved_at")),
    ),
    Article("DBO-{db}-0", Optimistic("head", 0), _PLAIN),
    Article("DBO-{db}-1", Optimistic("uniform", 1), _PLAIN),
    Article("DBO-{db}-2", Optimistic("geometric", 1), _PLAIN),
    Article("DBO-{db}-5", Optimistic("uniform", 0.5), _PLAIN),
    Article("DBO-{db}-6", Optimistic("geometric", 0.5), _PLAIN),
    Article("DBO-{db}-9", Optimistic("uniform", 2), _PLAIN),
    Article("DBO-{db}-10", Optimistic("geometric", 2), _PLAIN),
    # Not the article's: one more width, to see whether the model holds.
    Article("DBO-{db}-4N", Optimistic("uniform", 4), _PLAIN),
)
