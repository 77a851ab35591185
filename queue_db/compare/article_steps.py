"""How the article's rows claim jobs and remove finished ones."""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.exc import DBAPIError

from queue_db.compare.article_table import Session

Pick = Literal["head", "uniform", "geometric"]


class Claim(ABC):
    """How a row claims a job."""

    description = ""

    def window(self, workers: int) -> int | None:
        """Return how many jobs it picks from; None without a window."""
        return None

    @abstractmethod
    def claimer(self, session: Session) -> Callable[[], Any]:
        """Return a function that tries to claim one job: it returns the stored row, or None without a job or after a lost race."""


@dataclass(frozen=True)
class Pessimistic(Claim):
    """BEGIN; SELECT … FOR UPDATE; UPDATE; COMMIT."""

    description = "FOR UPDATE, head of the queue"

    def claimer(self, session: Session) -> Callable[[], Any]:
        """Lock the head of the queue and reserve it."""
        jobs, notes = session.jobs, session.context
        # SQLite has no row locks; the article's framework has no other protection there.
        query = session.dialect.lock_rows(session.due(), skip=False)
        reserve = update(jobs).where(jobs.c.id == bindparam("of")).values(reserved_at=bindparam("at"), attempts=jobs.c.attempts + 1)

        def claim() -> Any:
            with session.transaction():
                found = session.read(query, 1)
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
    """SELECT a window, pick one job, UPDATE … WHERE version; without a transaction.

    :param share: width of the window as a multiple of the number of workers; 0 for one job.
    :param checked: whether the WHERE contains the version. Without it the row is incorrect; tests show that the measures reveal it.
    """

    pick: Pick
    share: float
    checked: bool = True

    @property
    def description(self) -> str:  # type: ignore[override]
        """For people."""
        width = {0: "1", 0.5: "N/2", 1: "N", 2: "2N", 4: "4N"}.get(self.share, f"{self.share:g}·N")
        return "by version, the head" if self.share == 0 else f"by version, {self.pick} pick from a window of {width}"

    def window(self, workers: int) -> int:
        """Jobs in the window."""
        return max(1, math.ceil(self.share * workers))

    def claimer(self, session: Session) -> Callable[[], Any]:
        """Read the window and try to take one job of it."""
        jobs, notes, width = session.jobs, session.context, self.window(session.workers)
        query = session.due()
        mine = [jobs.c.id == bindparam("of")]
        if self.checked:
            mine.append(jobs.c.version == bindparam("seen"))
        reserve = (
            update(jobs).where(*mine).values(reserved_at=bindparam("at"), attempts=jobs.c.attempts + 1, version=jobs.c.version + 1)
        )

        def claim() -> Any:
            found = session.read(query, width)
            if not found:
                return None
            row = found[self._pick(len(found))]
            values = {"of": row.id, "at": int(time.time())} | ({"seen": row.version} if self.checked else {})
            won = session.connection.execute(reserve, values).rowcount == 1
            notes.notes.rounds += 1
            notes.notes.candidates += 1
            notes.notes.won += won
            return row if won else None

        return claim

    def _pick(self, width: int) -> int:
        if self.pick == "head":
            return 0
        if self.pick == "uniform":
            return random.randrange(width)
        # Each position with probability 1/3, the head after the last one.
        return next((index for index in range(width) if random.random() < 1 / 3), 0)


@dataclass(frozen=True)
class Removal:
    """How a row removes finished jobs.

    :param mark: set ``delete_mark`` first, so that a job is not executed again after a failed DELETE.
    :param select: SELECT … FOR UPDATE before the DELETE.
    :param tries: tries of the deleting transaction; 0: a DELETE in autocommit mode.
    """

    mark: bool
    select: bool
    tries: int

    @property
    def description(self) -> str:
        """For people."""
        parts = ["mark"] if self.mark else []
        parts.append("SELECT FOR UPDATE, DELETE" if self.select else "DELETE")
        tries = {0: "in autocommit", 1: "1 try"}.get(self.tries, f"{self.tries} tries")
        return ", ".join([*parts, tries])

    def remover(self, session: Session) -> Callable[[int], int]:
        """Return a function that removes the job of an id and returns the number of deleted rows."""
        jobs = session.jobs
        by_id = jobs.c.id == bindparam("of")
        lock = session.dialect.lock_rows(select(jobs).where(by_id), skip=False)
        mark = update(jobs).where(by_id).values(delete_mark=1)
        gone = delete(jobs).where(by_id)

        def once(job_id: int) -> int:
            if self.select and session.connection.execute(lock, {"of": job_id}).first() is None:
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
