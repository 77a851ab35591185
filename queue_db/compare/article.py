"""The article's rows, in its own table layout and under its own names.

``DBP-{db}-{dm}-{dtsx}-{dretry}`` is pessimistic: with or without a delete mark, with or without a SELECT before the DELETE, and the
number of tries of the deleting transaction (0: a DELETE in autocommit mode). ``DBO-{db}-{w}`` is optimistic; the number stands for
the window: 0 the head, 1 uniform of N, 2 geometric of N, 5 and 6 the same of N/2, 9 and 10 of 2N. The original never ran 9 and 10:
a bug in its code took them for 5 and 6.

Each row combines a claim, a removal and an index; the loop is the same for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, insert, make_url
from sqlalchemy.exc import DBAPIError

from queue_db.compare.article_steps import Claim, Optimistic, Pessimistic, Removal
from queue_db.compare.article_table import QUEUE, Session, jobs_table
from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.dialects import Laboratory
from queue_db.compare.engines import autocommitting
from queue_db.dialects import dialect_for

#: Rows per INSERT when the table is filled.
_FILL = 1000


@dataclass(frozen=True)
class Article:
    """One row of the article.

    :param pattern: its name, with ``{db}`` for the database.
    """

    pattern: str
    claiming: Claim
    removing: Removal
    indexed: tuple[tuple[str, ...], ...] = (("queue",),)
    name: str = ""
    family: str = field(default="article", init=False)
    batch: int = field(default=1, init=False)

    @property
    def claim(self) -> str:
        """How jobs are claimed, for people."""
        return self.claiming.description

    @property
    def removal(self) -> str:
        """How finished jobs are removed, for people."""
        return self.removing.description

    @property
    def index(self) -> str:
        """The indexes of the table, for people."""
        return ", ".join(f"({', '.join(columns)})" for columns in self.indexed) or "none"

    def window(self, workers: int) -> float | None:
        """Width of the window, in jobs."""
        return self.claiming.window(workers)

    def configuration(self) -> dict[str, str]:
        """Return no settings."""
        return {}

    def refused(self, target: Target) -> str | None:
        """Return None: it runs on every database."""
        return None

    def set_up(self, target: Target, jobs: int) -> None:
        """Create and fill the table."""
        table = self._table(target)
        with autocommitting(target.url) as engine, engine.connect() as connection:
            table.drop(connection, checkfirst=True)
            table.create(connection)
            now = int(time.time())
            row = {"queue": QUEUE, "attempts": 0, "available_at": 0, "created_at": now}
            connection.exec_driver_sql("BEGIN")
            for start in range(0, jobs, _FILL):
                numbers = range(start, min(start + _FILL, jobs))
                connection.execute(insert(table), [row | {"payload": str(number)} for number in numbers])
            connection.exec_driver_sql("COMMIT")
            Laboratory.of(dialect_for(engine.dialect.name)).analyze(connection, table)

    def work(self, target: Target, context: WorkerContext) -> None:
        """Claim and remove single jobs."""
        table = self._table(target)
        dialect = dialect_for(make_url(target.url).get_backend_name())
        with autocommitting(target.url) as engine, engine.connect() as connection, context.counting(engine, dialect):
            session = Session(connection, dialect, table, context, int(target.lease), target.workers)
            claim, remove = self.claiming.claimer(session), self.removing.remover(session)
            session.read(session.due(), 1)  # compiled and planned before the start
            context.wait_for_start()
            while not context.over:
                self._once(session, claim, remove)

    def tear_down(self, target: Target) -> None:
        """Drop the table."""
        with autocommitting(target.url) as engine:
            self._table(target).drop(engine, checkfirst=True)

    def _once(self, session: Session, claim: Callable[[], Any], remove: Callable[[int], int]) -> None:
        context = session.context
        asked, rounds = time.monotonic(), context.notes.rounds
        # A failed claim does no harm: the framework reports it and tries again. A failed removal leaves the job in the table, and
        # it runs again when its reservation has expired. The errors are counted.
        with suppress(DBAPIError):
            row = claim()
            if row is None:
                if context.notes.rounds == rounds:
                    context.record_empty_claim()
                return
            if not row.delete_mark:
                number = int(row.payload)
                context.record_claim(asked, [number])
                if context.clone:
                    context.enqueue_clones(1, lambda count: self._enqueue(session, count))
            context.record_removal(remove(row.id))

    def _enqueue(self, session: Session, count: int) -> None:
        now = int(time.time())
        row = {"queue": QUEUE, "payload": "-1", "attempts": 0, "available_at": now, "created_at": now}
        session.connection.execute(insert(session.jobs), [row] * count)

    def _table(self, target: Target) -> Table:
        return jobs_table(target.schema, indexed=self.indexed)


_PLAIN = Removal(mark=False, select=False, tries=0)


def _pessimistic(dm: int, dtsx: int, dretry: int) -> Article:
    return Article(f"DBP-{{db}}-{dm}-{dtsx}-{dretry}", Pessimistic(), Removal(mark=bool(dm), select=bool(dtsx), tries=dretry))


#: In the article's order.
ARTICLE: tuple[Article, ...] = (
    _pessimistic(0, 1, 1),
    _pessimistic(0, 1, 0),
    _pessimistic(0, 0, 1),
    _pessimistic(0, 1, 5),
    _pessimistic(0, 0, 5),
    _pessimistic(1, 0, 1),
    _pessimistic(1, 0, 5),
    Article("DBP-{db}-noindex", Pessimistic(), Removal(mark=False, select=False, tries=5), indexed=()),
    Article(
        "DBP-{db}-0-1-1-reserved",
        Pessimistic(),
        Removal(mark=False, select=True, tries=1),
        indexed=(("queue",), ("queue", "reserved_at")),
    ),
    Article("DBO-{db}-0", Optimistic("head", 0), _PLAIN),
    Article("DBO-{db}-1", Optimistic("uniform", 1), _PLAIN),
    Article("DBO-{db}-2", Optimistic("geometric", 1), _PLAIN),
    Article("DBO-{db}-5", Optimistic("uniform", 0.5), _PLAIN),
    Article("DBO-{db}-6", Optimistic("geometric", 0.5), _PLAIN),
    Article("DBO-{db}-9", Optimistic("uniform", 2), _PLAIN),
    Article("DBO-{db}-10", Optimistic("geometric", 2), _PLAIN),
    # Not in the article: one more width, to check the model.
    Article("DBO-{db}-4N", Optimistic("uniform", 4), _PLAIN),
)
