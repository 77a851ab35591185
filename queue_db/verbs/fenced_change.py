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


# Most unanswered COMMITs of one change.
_DOUBTS = 5

_LOOK = Run("look", write=False, direct=True, repeatable=True)


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

    :param change: how the verb leaves a row, for all jobs or by job: what :meth:`_shown` looks for after an unanswered COMMIT.
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
            outcome = self._alone(pairs, direct=self.direct)
        done: set[int] = set()
        doubts = 0
        doubtful: list[LeasedJob] = []
        while outcome.doubt is not None:
            if doubts == _DOUBTS:
                raise outcome.doubt
            doubts += 1
            matched, doubt = outcome.matched, outcome.doubt
            # Of two leases of one job only the later one was tried.
            tried = {
                (job_id, version) for job_id, version in pairs if job_id not in done and (matched is None or job_id in matched)
            }
            doubtful = [job for job in jobs if (job.id, job.version) in tried]
            done |= self._shown(doubtful, doubt, matched=matched is not None)
            rest = [pair for pair in pairs if pair[0] not in done]
            if not rest:
                return done
            with self.core.database.counting as counters:
                counters.retried += 1
            outcome = self._alone(rest, direct=False)
        again = outcome.matched or set()
        if doubtful and not any(job.id in again for job in doubtful):
            # The server may still have been executing it: the last run waited for it, and found other versions.
            done |= self._shown([job for job in doubtful if job.id not in done], doubt, matched=matched is not None)
        return done | again

    def _alone(self, pairs: Pairs, *, direct: bool) -> Outcome:
        """Run in a transaction of our own."""
        matched: set[int] | None = None

        def attempt(connection: Connection, store: Store) -> set[int]:
            nonlocal matched
            matched = None
            matched = self.work(connection, store, pairs)
            return matched

        try:
            return Outcome(self.core.run(Run(self.verb, attempts=self.attempts, direct=direct), attempt))
        except StorageError as error:
            if not error.outcome_unknown:
                raise
            return Outcome(matched, error)

    def _shown(self, jobs: Sequence[LeasedJob], doubt: StorageError, *, matched: bool) -> set[int]:
        """Which of these jobs the transaction in doubt has changed, as far as that can be proved.

        It changed all that it matched or none, so one job can prove it for all. A deleted row proves nothing by itself: after the
        end of the lease another worker may have claimed the job and completed it. While the lease holds, no worker can.

        :param matched: they had matched before the COMMIT; otherwise that is unknown.
        :raises StorageError: ``doubt``, if it cannot be proved either way.
        """
        by_change: dict[settle.Change, list[tuple[int, int, str]]] = {}
        for job in jobs:
            change = self.change if isinstance(self.change, settle.Change) else self.change(job)
            by_change.setdefault(change, []).append((job.id, job.version, job.token))

        def look(connection: Connection, store: Store) -> tuple[dict[int, settle.Sight], int]:
            sights: dict[int, settle.Sight] = {}
            for change, leases in by_change.items():
                sights |= settle.look(connection, store, leases, change)
            # After the rows: a lease that holds now held when they were read.
            return sights, store.read_clock(connection)

        sights, now = self.core.run(_LOOK, look)
        if settle.Sight.UNCHANGED in sights.values():
            return set()
        changed = {job.id for job in jobs if sights[job.id] is settle.Sight.CHANGED}
        if matched and changed:
            return {job.id for job in jobs}
        if matched and settle.Sight.OTHER in sights.values():
            return set()
        vanished = [job for job in jobs if sights[job.id] is settle.Sight.VANISHED]
        held = {job.id for job in vanished if _holds(job, now)}
        if matched and held:
            return {job.id for job in jobs}
        if len(held) < len(vanished):
            raise doubt
        return changed | held


def _holds(job: LeasedJob, now: int) -> bool:
    """Whether the lease holds at this time of the database's clock."""
    return job.lease_ends > now


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
