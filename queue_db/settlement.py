"""Settling leased jobs: one fenced change, a verdict for each job, also when the reply to COMMIT is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from queue_db.database import Database
from queue_db.errors import StorageError
from queue_db.leased import LeasedJob
from queue_db.model import Verdict
from queue_db.store import Store, settle

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Pairs = Sequence[tuple[int, int]]
Work = Callable[[Connection, Pairs], set[int]]
"""Changes the jobs whose ``(id, version)`` holds and returns their ids."""


@dataclass(frozen=True)
class Settlement:
    """One verb over some jobs.

    :param change: how the verb leaves a row, for all jobs or by job; what is looked for when nobody knows whether it committed.
    :param attempts: how often the transaction is run when the database asks to try again.
    """

    database: Database
    store: Store
    verb: str
    work: Work
    change: settle.Change | Callable[[LeasedJob], settle.Change]
    attempts: int

    def settle(
        self,
        jobs: Sequence[LeasedJob],
        *,
        using: Connection | Session | None,
        applied: Callable[[LeasedJob], None] | None,
    ) -> list[Verdict]:
        """Change ``jobs``, in the transaction of ``using`` or in one of our own; ``applied`` is called for each that changed."""
        if not jobs:
            return []
        with ExitStack() as locks:
            # In one order (two leases of one job too), so that two threads that settle overlapping lists cannot wait for each
            # other in a circle.
            for job in sorted(jobs, key=lambda job: (job.id, id(job))):
                locks.enter_context(job.lock)
            # Of two leases of one job only the later one can hold.
            newest: dict[int, int] = {}
            for job in jobs:
                newest[job.id] = max(job.version, newest.get(job.id, 0))
            pairs = sorted(newest.items())
            if using is not None:
                with self.database.joined(using, self.verb) as connection:
                    done = self.work(connection, pairs)
            else:
                done = self._commit(jobs, pairs)
            changed = [job.id in done and job.version == newest[job.id] for job in jobs]
            if applied is not None:
                for job in {id(job): job for job, did in zip(jobs, changed, strict=True) if did}.values():
                    applied(job)
        return [Verdict.APPLIED if did else Verdict.LOST for did in changed]

    def _commit(self, jobs: Sequence[LeasedJob], pairs: Pairs) -> set[int]:
        """Run in a transaction of our own; one whose COMMIT went unanswered is looked into and, if it did not happen, run again."""
        matched: set[int] = set()

        def attempt(connection: Connection) -> set[int]:
            nonlocal matched
            matched = self.work(connection, pairs)
            return matched

        try:
            return self.database.run(attempt, name=self.verb, attempts=self.attempts)
        except StorageError as error:
            if not error.outcome_unknown:
                raise
        shown = self._confirm([job for job in jobs if job.id in matched])
        rest = [pair for pair in pairs if pair[0] not in shown]
        if not rest:
            return shown
        done = shown | self.database.run(lambda connection: self.work(connection, rest), name=self.verb, attempts=self.attempts)
        # The server may have been at that COMMIT still when we looked; our second try has waited for it and found another version.
        late = [job for job in jobs if job.id in matched and job.id not in done]
        return done | self._confirm(late) if late else done

    def _confirm(self, jobs: Sequence[LeasedJob]) -> set[int]:
        """Which of the jobs that had matched before the lost COMMIT show the change."""
        by_change: dict[settle.Change, list[tuple[int, int, str]]] = {}
        for job in jobs:
            change = self.change if isinstance(self.change, settle.Change) else self.change(job)
            by_change.setdefault(change, []).append((job.id, job.version, job.token))

        def look(connection: Connection) -> set[int]:
            shown: set[int] = set()
            for change, leases in by_change.items():
                shown |= settle.confirm(connection, self.store, leases, change)
            return shown

        return self.database.run(look, name=f"confirm {self.verb}", write=False)
