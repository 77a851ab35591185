"""Settling leased jobs: one fenced change, a verdict for each job, also when the reply to COMMIT is lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from queue_db.core import Core, Run
from queue_db.errors import StorageError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.store import Store, settle

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Pairs = Sequence[tuple[int, int]]
Work = Callable[[Connection, Store, Pairs], set[int]]
"""Changes the jobs whose ``(id, version)`` holds and returns their ids. Its name is the verb's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change."""

    #: Ids of the jobs that matched; None: the statement was not answered.
    matched: set[int] | None
    #: Why it is unknown whether the change was committed; None: it was.
    doubt: StorageError | None = None


Carrier = Callable[[Pairs, Work], "Outcome | None"]
"""Deletes the jobs whose ``(id, version)`` holds in a transaction that does more, or runs the work there, which does so. None:
nothing was done."""


@dataclass(slots=True)
class FencedChange:
    """One verb over some jobs.

    :param change: how the verb leaves a row, for all jobs or by job: what :meth:`_confirm` looks for after an unanswered COMMIT.
    :param attempts: how often the transaction runs at most while the database asks to try again.
    :param direct: the work is one statement, or begins its transaction itself.
    :param carrier: is asked first to do the work, which deletes jobs.
    """

    core: Core
    verb: str
    work: Work
    change: settle.Change | Callable[[LeasedJob], settle.Change]
    attempts: int
    direct: bool = False
    carrier: Carrier | None = None

    def settle(
        self,
        jobs: Sequence[LeasedJob],
        *,
        using: Connection | Session | None,
        applied: Callable[[Iterable[LeasedJob]], None] | None,
    ) -> list[Verdict]:
        """Change ``jobs``, in the transaction of ``using`` or in one of our own; ``applied`` is called with those that changed."""
        if not jobs:
            return []
        with Locked(jobs) as ordered:
            newest = {job.id: job.version for job in ordered}
            one_each = len(newest) == len(jobs)
            if not one_each:
                # Of two leases of one job only the later one can hold.
                for job in ordered:
                    newest[job.id] = max(job.version, newest[job.id])
            done = self._change(jobs, list(newest.items()), using)
            if one_each and newest.keys() <= done:
                verdicts = [Verdict.APPLIED] * len(jobs)
                changed: Iterable[LeasedJob] = jobs
            else:
                verdicts = [Verdict.APPLIED if job.id in done and job.version == newest[job.id] else Verdict.LOST for job in jobs]
                # An object that is given twice is changed once.
                changed = {id(job): job for job, verdict in zip(jobs, verdicts, strict=True) if verdict}.values()
            if applied is not None:
                applied(changed)
        return verdicts

    def _change(self, jobs: Sequence[LeasedJob], pairs: Pairs, using: Connection | Session | None) -> set[int]:
        if using is None:
            return self._commit(jobs, pairs)
        with self.core.joined(using, self.verb) as connection:
            return self.work(connection, self.core.store, pairs)

    def _commit(self, jobs: Sequence[LeasedJob], pairs: Pairs) -> set[int]:
        """Run without the caller's transaction. If its COMMIT is not answered, check whether it happened; if not, run it again."""
        outcome = self.carrier(pairs, self.work) if self.carrier is not None else None
        if outcome is None:
            outcome = self._alone(pairs)
        matched = outcome.matched
        if matched is not None and outcome.doubt is None:
            return matched
        # If the statement itself was not answered, what it matched is unknown.
        unseen = outcome.doubt if matched is None else None
        shown = self._confirm([job for job in jobs if matched is None or job.id in matched], unseen)
        rest = [pair for pair in pairs if pair[0] not in shown]
        if not rest:
            return shown
        with self.core.database.counting as counters:
            counters.retried += 1
        done = shown | self.core.run(Run(self.verb, attempts=self.attempts), self.work, rest)
        # The server may still have been executing it; the second run waited for it and found another version.
        late = [job for job in jobs if job.id not in done and (matched is None or job.id in matched)]
        return done | self._confirm(late, unseen) if late else done

    def _alone(self, pairs: Pairs) -> Outcome:
        """Run in a transaction of our own."""
        matched: set[int] | None = None

        def attempt(connection: Connection, store: Store) -> set[int]:
            nonlocal matched
            matched = None
            matched = self.work(connection, store, pairs)
            return matched

        try:
            return Outcome(self.core.run(Run(self.verb, attempts=self.attempts, direct=self.direct), attempt))
        except StorageError as error:
            if not error.outcome_unknown:
                raise
            return Outcome(matched, error)

    def _confirm(self, jobs: Sequence[LeasedJob], unseen: StorageError | None) -> set[int]:
        """Which of these jobs show the change.

        They had matched before the lost COMMIT. If that is not known (``unseen``), their leases must still hold: otherwise the
        change may be another worker's.

        :raises StorageError: ``unseen``, when a lease has ended.
        """
        by_change: dict[settle.Change, list[tuple[int, int, str]]] = {}
        for job in jobs:
            change = self.change if isinstance(self.change, settle.Change) else self.change(job)
            by_change.setdefault(change, []).append((job.id, job.version, job.token))

        def confirm(connection: Connection, store: Store) -> set[int]:
            shown: set[int] = set()
            for change, leases in by_change.items():
                shown |= settle.confirm(connection, store, leases, change)
            if unseen is not None and shown:
                now = store.read_clock(connection)
                if any(job.id in shown and job.lease_ends <= now for job in jobs):
                    raise unseen
            return shown

        return self.core.read(confirm)


class Locked:
    """Within a ``with`` block no other verb runs on these jobs: their versions stay. The block gets the jobs, by id."""

    # As a generator with a decorator it would take twice as long for one job.
    __slots__ = ("_held", "_jobs")

    def __init__(self, jobs: Collection[LeasedJob]) -> None:
        self._jobs = jobs
        self._held: list[LeasedJob] = []

    def __enter__(self) -> list[LeasedJob]:
        jobs, held = self._jobs, self._held
        # In one order (two leases of one job too), so that two threads with overlapping lists cannot wait for each other in a
        # circle.
        ordered = sorted(jobs, key=_by_id if len(set(map(_by_id, jobs))) == len(jobs) else _in_one_order)
        try:
            for job in ordered:
                job.lock.acquire()
                held.append(job)
        except BaseException:
            self.__exit__()
            raise
        return ordered

    def __exit__(self, *exc: object) -> None:
        for job in self._held:
            job.lock.release()


_by_id = attrgetter("id")


def _in_one_order(job: LeasedJob) -> tuple[int, int]:
    return job.id, id(job)
