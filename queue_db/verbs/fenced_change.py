"""Changes leased jobs under their fence. Each job gets a verdict, even if the reply to COMMIT is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import RETRY_SECONDS, OwnTransaction, Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError, QueueDBError, StorageError
from queue_db.leased_job import LeasedJob, Settler, linked
from queue_db.model import DeathReason, JobLinks, Verdict
from queue_db.notifications.deaths import Death
from queue_db.slices import dependents
from queue_db.store import Transaction, settle
from queue_db.store.base import follow
from queue_db.store.on_leave import Departure
from queue_db.store.settle import Change
from queue_db.verbs.doubts import proved
from queue_db.verbs.running import EXTENSIONS, LOOK, Verbs, leases_in_motion

Pairs = Sequence[tuple[int, int]]
Work = Callable[[Transaction, Pairs], set[int]]
"""A function that changes the jobs that still have their ``(id, version)``, and returns their ids."""


# Seconds. After its n-th collision the change pauses for a random time up to n times the first value, but not above the second one.
_PAUSE, _LONGEST_PAUSE = 0.025, 0.25

# Python takes long to look up a member of an enumeration in its class.
_APPLIED, _LOST, _KEPT = Verdict.APPLIED, Verdict.LOST, Change.KEPT


class Verb(NamedTuple):
    """What a verb does to leased jobs: a row of the table in :mod:`queue_db.verbs.settle`."""

    #: The name of the verb, and how its transaction runs.
    run: Run
    #: ``statement(tx, pairs, *given)``: a :data:`Work` that also takes the arguments of the call.
    statement: Callable[..., set[int]]
    #: The state of a changed row. After an unanswered COMMIT the library looks for this state.
    change: Change
    #: How a changed job leaves its queue; None: the job stays in its queue, unless it dies.
    departure: Departure | None = None
    #: The ``change`` of a job that dies; None: no job dies by the verb. If it is set, ``given`` begins with :class:`Failures`.
    death: Change | None = None
    #: The queue counter that counts the changed jobs, except those that died; None: they are not counted.
    counted: str | None = None
    #: Whether a claim may make the change in its own transaction, if no group or batch depends on the jobs.
    carried: bool = False


@dataclass(slots=True)
class Failures:
    """The errors that a call was given for its jobs, and which of the jobs die. The mappings are by job id."""

    #: The reason why jobs of the call die.
    reason: DeathReason
    #: The error texts as stored.
    texts: Mapping[int, str]
    #: The errors from which ``texts`` were made, for the report of a death.
    causes: Mapping[int, BaseException | str]
    #: The ``max_attempts`` of the jobs; None: no handler sets a limit of its own.
    limits: Mapping[int, int] | None
    #: Ids of the jobs that die.
    dying: set[int]
    #: Microseconds until the next attempt of a job that does not die.
    delays: Mapping[int, int] = field(default_factory=dict)
    #: The rows for the table of failed attempts.
    rows: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    #: Microseconds for which jobs of an unknown kind wait for a worker with a handler for the kind.
    grace: int = 0

    def death(self, job: LeasedJob) -> Death:
        """The report of the death of this job."""
        return Death(job, self.reason, self.texts[job.id], self.causes.get(job.id))


@dataclass(slots=True)
class Kept:
    """The arguments of a call whose jobs stay leased, and what the call finds out about the leases."""

    #: The argument of the verb: the length of the new lease in microseconds, or the attempts to add.
    number: int
    #: The new ends of the leases by job id, as far as they are known.
    ends: dict[int, int] = field(default_factory=dict)
    #: Ids of the jobs whose rows are locked.
    locked: set[int] = field(default_factory=set)


class Outcome(NamedTuple):
    """The outcome of the transaction that makes a change."""

    #: Ids of the jobs that matched; None: the statement was not answered.
    matched: set[int] | None
    #: The transaction of the last run; None: the transaction has no follow-up to run.
    tx: Transaction | None
    #: Why it is unknown whether the change was committed; None: the change was committed.
    doubt: StorageError | None = None


class FencedChange(Verbs):
    """One call of a verb on some jobs.

    :param source: the queue that the jobs were claimed from.
    :raises ArgumentError: ``jobs`` is not a list of leased jobs of this queue.
    """

    #: The arguments for the statement of the :class:`Verb`.
    given: tuple[Any, ...] = ()
    #: The groups and batches of jobs that may leave their queue, by job id; None: no group or batch depends on the jobs.
    links: Mapping[int, JobLinks] | None = None
    #: The leases of the jobs when the call began, by position.
    leases: Pairs
    #: The latest lease of each job, in the order of ids.
    pairs: Pairs
    #: The committed transactions of the change that have a follow-up to run.
    committed: tuple[Transaction, ...] = ()
    #: A report for each job that died by the change.
    deaths: Sequence[Death] = ()
    # The latest version with which the statement ran on each job, by id; None: the versions of ``pairs``.
    _versions: dict[int, int] | None = None
    # How often this call has looked for leases that another verb has extended.
    _followed: int = 0
    # How often the change has collided after all runs of a transaction, until when it may run again by the monotonic clock, and by
    # how many seconds that clock is ahead of the database's.
    _collided: int = 0
    _until: float | None = None
    _ahead: float = 0.0

    def __init__(self, core: Core, source: Settler, verb: Verb, jobs: Sequence[LeasedJob]) -> None:
        self.core = core
        self.source = source
        self.verb = verb
        self.jobs = [*jobs] if type(jobs) is list else _members(jobs)
        tied = False
        leases = []
        for job in self.jobs:
            if type(job) is not LeasedJob or job.source is not source:
                _check(job, source)
            if job.has_dependents:
                tied = True
            leases.append((job.id, job.version))
        if tied and (verb.departure is not None or verb.death is not None):
            self.links = linked(self.jobs)
            if self.dependent():
                self.verb = verb._replace(run=verb.run._replace(lazy=False))  # the groups and batches take further statements
        self.leases = self.pairs = leases
        if len(leases) > 1:
            # Of two leases of one job only the later one can hold.
            ordered = sorted(leases)
            by_id = dict(ordered)
            self.pairs = ordered if len(by_id) == len(ordered) else [*by_id.items()]

    def settle(self, *given: Any, using: Using | None = None) -> list[Verdict]:
        """Change the jobs in the transaction of ``using`` or in our own; count and report the results.

        :param given: the arguments for the verb's statement.
        """
        self.given = given
        with self:
            verdicts = self.end(None, using)
        if self.committed or self.deaths:
            self.follow()
        return verdicts

    def end(self, outcome: Outcome | None, using: Using | None = None) -> list[Verdict]:
        """Change the jobs and count the results. Call it in a ``with`` block of this object, and :meth:`follow` afterwards.

        :param outcome: the outcome of a claim's transaction that also made this change; None: the change was not made yet.
        """
        core, verb, pairs = self.core, self.verb, self.pairs
        left: Pairs = pairs
        done: set[int] = set()
        while left:
            matched: set[int] | None = None
            tx: Transaction | None = None
            doubt: StorageError | None = None
            if outcome is not None:
                (matched, tx, doubt), outcome = outcome, None
            elif using is not None:
                with core.joined(using, verb.run.name) as joined:
                    # Its queue may be fair no more when the caller commits. So the transaction locks the groups in any case.
                    matched = self.attempt(joined, left, self.links)
            else:
                tx = own = core.transaction(verb.run if self._until is None else verb.run._replace(attempts=1))
                try:
                    while not own.committed:
                        with own:
                            matched = None  # if an earlier run matched jobs, that run was rolled back
                            links = self.links and self.dependent()
                            matched = self.attempt(own, left, links) if links else verb.statement(own, left, *self.given)
                except StorageError as error:
                    undone = not (own.committed or own.doubts) and (matched is None or own.asked)
                    if undone and self._again(error, left):
                        continue
                    doubt = _doubt(own, error, answered=matched is not None, some_done=bool(done))
                finally:
                    if not own.committed:
                        own.give_back()
            if doubt is not None:
                matched = proved(self, left, Outcome(matched, tx, doubt))
            elif tx is not None and (tx.woken or tx.following):
                self.committed += (tx,)
            done.update(matched or ())
            left = self._extended(pairs, done, using) if len(done) < len(pairs) else ()
        return self._ended(pairs, done, joined=using is not None)

    # --- the transactions -------------------------------------------------------------------------------------------

    def dependent(self) -> Mapping[int, JobLinks]:
        """Those ``links`` on which jobs may wait now. Ask in each run of a transaction: a queue may cease to be fair meanwhile."""
        links, policies = self.links or {}, self.core.policies
        if not policies.of:
            return links
        return {
            job_id: link
            for job_id, link in links.items()
            if link.batch is not None
            or link.graph is not None
            or link.group is None
            or not policies.waits_for_none(link.group.queue)
        }

    def attempt(self, tx: Transaction, pairs: Pairs, links: Mapping[int, JobLinks] | None) -> set[int]:
        """Run the statement, and update the groups and batches of the jobs that leave their queue.

        :param links: see :attr:`links`; only those on which jobs may wait.
        """
        if not links:
            return self.verb.statement(tx, pairs, *self.given)
        tx.begin()  # a lazy transaction, if jobs have begun to wait since the call began
        done: set[int] = set()

        def leave() -> dict[int, Departure]:
            done.update(self.verb.statement(tx, pairs, *self.given))
            how = {job_id: Departure.DEAD if self.dies(job_id) else self.verb.departure for job_id in done}
            return {job_id: departure for job_id, departure in how.items() if departure is not None}

        dependents().leave(tx, links, leave)
        return done

    def alone(self, pairs: Pairs) -> Outcome:
        """Run the change again, in a transaction of our own."""
        matched: set[int] | None = None
        last: Transaction | None = None

        def attempt(tx: Transaction) -> set[int]:
            nonlocal matched, last
            matched, last = None, tx
            matched = self.attempt(tx, pairs, self.dependent())
            return matched

        while True:
            try:
                return Outcome(*self.core.commit(self.verb.run._replace(lazy=False), attempt))
            except StorageError as error:
                if error.outcome_unknown:
                    return Outcome(matched, last, error)
                if not self._again(error, pairs):
                    raise

    def _again(self, error: StorageError, pairs: Pairs) -> bool:
        """Whether the change lost to another transaction and may run again. If so, wait a moment first.

        It may while a lease of ``pairs`` holds, but not for longer than a transaction runs again, so that no worker is stuck in it.
        Our own clock measures the time: the database's may be set back.
        """
        core, database, verb = self.core, self.core.database, self.verb
        # A claim that buries exhausted jobs does not wait for long: a later claim buries them.
        once = verb.run.attempts == 1 or (verb.death is not None and self.given[0].reason is DeathReason.EXHAUSTED)
        if once or error.outcome_unknown or not core.store.dialect.errors.is_collision(error):
            return False
        began = time.monotonic()
        if self._until is None:
            try:
                self._ahead = began - core.run(LOOK._replace(attempts=1), Transaction.read_clock) / 1e6
            except QueueDBError:  # it is closed or away: the caller raises the first error
                return False
            self._until = began + RETRY_SECONDS
        jobs = self.newest()
        ends = max(jobs[job_id].lease_ends for job_id, _ in pairs) / 1e6 + self._ahead
        self._collided += 1
        pause = random.uniform(0.0, min(_PAUSE * self._collided, _LONGEST_PAUSE))
        if time.monotonic() + pause >= min(ends, self._until):
            return False
        database.pause(pause)
        if database.closed:
            return False
        with database.counting:
            database.counters.retried += 1
        return True

    def _extended(self, pairs: Pairs, done: set[int], using: Using | None) -> Pairs:
        """Find the jobs that were not changed because another verb has extended their leases; return their ids and new versions.

        The other verb, such as ``extend`` by the heartbeat, runs on the same :class:`LeasedJob` objects. Verbs do not wait for each
        other, since that could deadlock: each verb may have locked rows that the other verb needs.
        """
        if self._versions is None:
            self._versions = dict(pairs)
        held = {job_id: version for job_id, version in self._versions.items() if job_id not in done}
        moving = leases_in_motion(self.newest(), held, self) if self._followed < EXTENSIONS else {}
        if not moving:
            return ()
        self._followed += 1
        if using is None:
            try:
                moved = self.core.run(LOOK, settle.extended, moving)
            except StorageError as error:
                error.outcome_unknown = bool(done)  # some jobs are changed already
                raise
        else:
            with self.core.joined(using, self.verb.run.name) as tx:
                moved = settle.extended(tx, moving, current=True)
        self._versions |= moved
        return [*moved.items()]

    # --- what became of the jobs ------------------------------------------------------------------------------------

    def _ended(self, pairs: Pairs, done: set[int], *, joined: bool) -> list[Verdict]:
        """Mark the objects of the changed jobs, count the results, and return the verdicts.

        :param joined: whether the change was made in a caller's transaction.
        """
        jobs, verb, name = self.jobs, self.verb, self.verb.run.name
        changed: Iterable[LeasedJob] = jobs
        lost = 0
        if len(done) == len(jobs):
            verdicts = [_APPLIED] * len(jobs)
        else:
            newest = set(pairs)
            verdicts = [_APPLIED if one in newest and one[0] in done else _LOST for one in self.leases]
            # An object that is given twice is marked once.
            changed = dict.fromkeys(job for job, verdict in zip(jobs, verdicts, strict=True) if verdict is _APPLIED)
            lost = self._lost(verdicts)
        if verb.change is _KEPT:
            self._raise_versions(changed, self._versions or dict(pairs))
        else:
            for job in changed:
                job.settled, job.settled_by, job.unconfirmed = True, name, None
        if verb.death is not None:
            failures: Failures = self.given[0]
            for job in changed:
                job.dead = job.id in failures.dying
            self.deaths = [failures.death(job) for job in changed if job.dead]
        applied = len(done)  # a job that is given twice has two verdicts, but is changed once
        if joined:
            applied -= self._put_off(changed)
        core = self.core
        counters = core.database.counters
        with core.database.counting:
            counters.applied += applied
            counters.lost += lost
        if lost:
            core.queue_counters.add(self.source.name, lost=lost)
        if verb.counted is not None:
            core.queue_counters.add(self.source.name, **{verb.counted: applied - len(self.deaths)})
        if core.ends.listeners and not joined:
            core.ends.tell([death.job.id for death in self.deaths] if verb.departure is None else done)
        return verdicts

    def _lost(self, verdicts: Sequence[Verdict]) -> int:
        """How many leases are certainly lost: a locked row may still have its lease, and an unconfirmed job may be settled."""
        locked = self.given[0].locked if self.verb.change is _KEPT else ()
        verdict_of = zip(self.jobs, verdicts, strict=True)
        return sum(verdict is _LOST and job.unconfirmed is None and job.id not in locked for job, verdict in verdict_of)

    def _put_off(self, changed: Iterable[LeasedJob]) -> int:
        """Leave the count of a worker's jobs to the worker, which finds out whether the caller's transaction was committed.

        :return: the number of these jobs.
        """
        later = [job for job in changed if job.claimant is not None]
        for job in later:
            job.unconfirmed = self._count_one
        return len(later)

    def _count_one(self) -> None:
        with self.core.database.counting:
            self.core.database.counters.applied += 1
        if self.verb.counted is not None:
            self.core.queue_counters.add(self.source.name, **{self.verb.counted: 1})

    def _raise_versions(self, changed: Iterable[LeasedJob], versions: Mapping[int, int]) -> None:
        kept: Kept = self.given[0]
        with self.core.database.counting:  # used as a lock: two threads may extend one lease
            for job in changed:
                if versions[job.id] >= job.version:
                    job.version = versions[job.id] + 1
                    job.lease_ends = kept.ends.get(job.id, job.lease_ends)

    def follow(self) -> None:
        """Run the follow-ups of the committed transactions, and report the deaths."""
        try:
            follow(self.committed)
        finally:
            self.core.deaths.record(self.deaths)

    def dies(self, job_id: int) -> bool:
        """Whether this job dies if the change is made."""
        return self.verb.death is not None and job_id in self.given[0].dying

    def newest(self) -> dict[int, LeasedJob]:
        """The jobs by id. If a job is given with two leases, the object with the later lease."""
        return {job_id: job for (job_id, _), job in sorted(zip(self.leases, self.jobs, strict=True), key=itemgetter(0))}


def _doubt(tx: OwnTransaction, error: StorageError, *, answered: bool, some_done: bool) -> StorageError | None:
    """``error`` if it leaves open whether the change was committed; None: it was committed.

    A signal handler's error may come after the COMMIT, or after the reply to a statement that commits by itself.

    :param answered: the database has answered the statement of the last run.
    :param some_done: an earlier transaction of the call has changed other jobs. Then the error has ``outcome_unknown``.
    :raises StorageError: the change was not committed.
    """
    if tx.committed or (answered and not tx.asked):
        return None
    if not error.outcome_unknown:
        error.outcome_unknown = some_done
        raise error
    return error


def _members(jobs: object) -> list[LeasedJob]:
    if isinstance(jobs, LeasedJob):
        raise ArgumentError(f"jobs={jobs!r}: must be a list of leased jobs: [job]")
    return arguments.members("jobs", jobs, "leased jobs")


def _check(job: object, source: Settler) -> None:
    """Raise an ArgumentError if ``job`` is not a leased job that was claimed from ``source``."""
    if not isinstance(job, LeasedJob):
        raise ArgumentError(f"{arguments.shown(job)} is not a LeasedJob: settle the objects that claim() returned")
    if job.source is not source:
        raise ArgumentError(f"{job!r} was claimed from {job.source!r}, not from {source!r}")
