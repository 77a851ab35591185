"""Settling leased jobs: one fenced change, a verdict for each job, also when the reply to COMMIT is lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from queue_db.core import Core
from queue_db.database.database import Run
from queue_db.errors import StorageError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.store import Transaction, settle

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Pairs = Sequence[tuple[int, int]]
Work = Callable[[Transaction, Pairs], set[int]]
"""Changes the jobs whose ``(id, version)`` holds and returns their ids."""


# Most unanswered COMMITs of one change.
_DOUBTS = 5

#: Most extensions of a lease while another verb runs on it.
EXTENSIONS = 5

#: How leases are looked at.
LOOK = Run("look", write=False, direct=True, repeatable=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change."""

    #: Ids of the jobs that matched; None: the statement was not answered.
    matched: set[int] | None
    #: Its transaction, of the last run; None: nothing follows it.
    tx: Transaction | None
    #: Why it is unknown whether the change was committed; None: it was.
    doubt: StorageError | None = None


Leases = Mapping[int, LeasedJob]
"""Leased jobs by id."""

Applied = Callable[[Sequence[LeasedJob], Mapping[int, int]], None]
"""Gets the jobs that a verb has changed, and by id the versions that they had."""

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
    #: Its transactions that were committed and that something follows, which is the caller's to do.
    committed: list[Transaction] = field(default_factory=list)

    def settle(self, jobs: Sequence[LeasedJob], *, using: Connection | Session | None, applied: Applied | None) -> list[Verdict]:
        """Change ``jobs``, in the transaction of ``using`` or in one of our own; ``applied`` is called with those that changed."""
        if not jobs:
            return []
        with Verbs(jobs):
            one_each = len(set(map(_by_id, jobs))) == len(jobs)
            newest = {job.id: job for job in sorted(jobs, key=_by_id if one_each else _by_lease)}
            held = {job_id: job.version for job_id, job in newest.items()}
            # Of two leases of one job only the later one can hold.
            older = set() if one_each else {id(job) for job in jobs if job.version < held[job.id]}
            done = self._change(newest, held, using, self.carrier)
            if len(done) < len(held):
                done |= self._follow(newest, held, done, using)
            if len(done) == len(jobs):
                verdicts, changed = [Verdict.APPLIED] * len(jobs), jobs
            else:
                verdicts = [Verdict.APPLIED if job.id in done and id(job) not in older else Verdict.LOST for job in jobs]
                # An object that is given twice is changed once.
                changed = list({id(job): job for job, verdict in zip(jobs, verdicts, strict=True) if verdict}.values())
            if applied is not None:
                applied(changed, held)
        return verdicts

    def _change(
        self, jobs: Leases, held: Mapping[int, int], using: Connection | Session | None, carrier: Carrier | None = None
    ) -> set[int]:
        pairs = list(held.items())
        if using is None:
            return self._commit(jobs, pairs, carrier)
        with self.core.joined(using, self.verb) as tx:
            return self.work(tx, pairs)

    def _follow(self, jobs: Leases, held: dict[int, int], done: set[int], using: Connection | Session | None) -> set[int]:
        """Change the jobs whose leases another verb of the same objects has extended meanwhile, such as the heartbeat's; set the
        versions in ``held``. None waits for another: one may have locked in the database what the other waits for.
        """
        changed: set[int] = set()
        for _ in range(EXTENSIONS):
            left = {job_id: version for job_id, version in held.items() if job_id not in done and job_id not in changed}
            moving = leases_in_motion(jobs, left)
            if not moving:
                break
            if using is None:
                moved = self.core.run(LOOK, settle.extended, moving)
            else:
                with self.core.joined(using, self.verb) as tx:
                    moved = settle.extended(tx, moving, current=True)
            if not moved:
                break
            held |= moved
            changed |= self._change({job_id: jobs[job_id] for job_id in moved}, moved, using)
        return changed

    def _commit(self, jobs: Leases, pairs: Pairs, carrier: Carrier | None) -> set[int]:
        """Run without the caller's transaction. If its COMMIT is not answered, check whether it happened; if not, run it again."""
        outcome = carrier(pairs, self.work) if carrier is not None else None
        if outcome is None:
            outcome = self._alone(pairs, direct=self.direct)
        done: set[int] = set()
        doubts = 0
        doubtful: list[tuple[int, int]] = []
        in_doubt: Transaction | None = None
        while outcome.doubt is not None:
            if doubts == _DOUBTS:
                raise outcome.doubt
            doubts += 1
            matched, doubt, in_doubt = outcome.matched, outcome.doubt, outcome.tx
            doubtful = [pair for pair in pairs if pair[0] not in done and (matched is None or pair[0] in matched)]
            shown = self._shown(jobs, doubtful, doubt, matched=matched is not None)
            done |= shown
            if shown and in_doubt is not None:
                self.committed.append(in_doubt)
            rest = [pair for pair in pairs if pair[0] not in done]
            if not rest:
                return done
            with self.core.database.counting:
                self.core.database.counters.retried += 1
            outcome = self._alone(rest, direct=False)
        if outcome.tx is not None and (outcome.tx.woken or outcome.tx.following):
            self.committed.append(outcome.tx)
        again = outcome.matched or set()
        if doubtful and not any(job_id in again for job_id, _ in doubtful):
            # The server may still have been executing it: the last run waited for it, and found other versions.
            doubtful = [pair for pair in doubtful if pair[0] not in done]
            shown = self._shown(jobs, doubtful, doubt, matched=matched is not None)
            done |= shown
            if shown and in_doubt is not None:
                self.committed.append(in_doubt)
        return done | again

    def _alone(self, pairs: Pairs, *, direct: bool) -> Outcome:
        """Run in a transaction of our own."""
        matched: set[int] | None = None
        last: Transaction | None = None

        def attempt(tx: Transaction) -> set[int]:
            nonlocal matched, last
            matched, last = None, tx
            matched = self.work(tx, pairs)
            return matched

        try:
            return Outcome(*self.core.commit(Run(self.verb, attempts=self.attempts, direct=direct), attempt))
        except StorageError as error:
            if not error.outcome_unknown:
                raise
            return Outcome(matched, last, error)

    def _shown(self, jobs: Leases, pairs: Pairs, doubt: StorageError, *, matched: bool) -> set[int]:
        """Which of these leases the transaction in doubt has changed, as far as that can be proved.

        It changed all that it matched or none, so one job can prove it for all. A deleted row proves nothing by itself: after the
        end of the lease another worker may have claimed the job and completed it. While the lease holds, no worker can.

        :param matched: they had matched before the COMMIT; otherwise that is unknown.
        :raises StorageError: ``doubt``, if it cannot be proved either way.
        """
        by_change: dict[settle.Change, list[tuple[int, int, str]]] = {}
        for job_id, version in pairs:
            change = self.change if isinstance(self.change, settle.Change) else self.change(jobs[job_id])
            by_change.setdefault(change, []).append((job_id, version, jobs[job_id].token))

        def look(tx: Transaction) -> tuple[dict[int, settle.Sight], int]:
            sights: dict[int, settle.Sight] = {}
            for change, leases in by_change.items():
                sights |= settle.look(tx, leases, change)
            # After the rows: a lease that holds now held when they were read.
            return sights, tx.read_clock()

        sights, now = self.core.run(LOOK, look)
        if settle.Sight.UNCHANGED in sights.values():
            return set()
        changed = {job_id for job_id, sight in sights.items() if sight is settle.Sight.CHANGED}
        if matched and changed:
            return set(sights)
        if matched and settle.Sight.OTHER in sights.values():
            return set()
        vanished = {job_id for job_id, sight in sights.items() if sight is settle.Sight.VANISHED}
        held = {job_id for job_id in vanished if _holds(jobs[job_id], now)}
        if matched and held:
            return set(sights)
        if held < vanished:
            raise doubt
        return changed | held


def leases_in_motion(jobs: Leases, held: Mapping[int, int]) -> dict[int, tuple[int, str]]:
    """Those of the leases ``held`` (id → version) that another verb of the same object may have extended: version and token, by id.

    One verb of our own runs on each.
    """
    # In this order: a verb sets the version before it ends.
    moving = [job_id for job_id, version in held.items() if len(jobs[job_id].verbs) > 1 or jobs[job_id].version != version]
    return {job_id: (held[job_id], jobs[job_id].token) for job_id in moving}


def _holds(job: LeasedJob, now: int) -> bool:
    """Whether the lease holds at this time of the database's clock."""
    return job.lease_ends > now


class Verbs:
    """In a ``with`` block a verb runs on these jobs: the heartbeat waits with its own, and takes no job for lost."""

    # As a generator with a decorator it would take twice as long for one job. No lock: what a verb of another thread has locked in
    # the database may be what this one waits for.
    __slots__ = ("_begun", "_jobs")

    def __init__(self, jobs: Collection[LeasedJob]) -> None:
        self._jobs = jobs
        self._begun: list[LeasedJob] = []

    def __enter__(self) -> None:
        begun = self._begun
        try:
            for job in dict.fromkeys(self._jobs):
                begun.append(job)
                job.verbs.append(None)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        for job in self._begun:
            if job.verbs:
                job.verbs.pop()


_by_id = attrgetter("id")
_by_lease = attrgetter("id", "version")
