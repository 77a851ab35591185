"""The verbs that end or extend leases, and the counts of those that took effect."""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from queue_db import arguments, backoff
from queue_db.core import Core
from queue_db.database.database import ATTEMPTS
from queue_db.errors import ArgumentError, text_of
from queue_db.leased_job import LeasedJob, Settler, linked
from queue_db.model import DeathReason, JobLinks, RetainedResult, Verdict, to_micros
from queue_db.notifications.deaths import Death
from queue_db.removal import Delete
from queue_db.store import Transaction, history, settle
from queue_db.store.base import follow
from queue_db.store.callbacks import Departure
from queue_db.store.dependents import finish
from queue_db.store.schema import CLASS_LENGTH
from queue_db.verbs.fenced_change import Applied, Carrier, FencedChange, Pairs, Work

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger("queue_db.verbs.settle")

# Longest stored error text, characters: a list can show it.
MAX_ERROR = 10_000

# Longest stored traceback, characters: its end.
_MAX_TRACE = 8_000

#: Seconds that a job waits for a worker with a handler for its kind, unless the worker sets another time; then it is dead.
UNKNOWN_GRACE = 3600.0

# Seconds until a job without a handler is claimed again: at first, at most. In between, half the time that it has waited.
_UNKNOWN_WAITS = (1.0, 60.0)

_V = TypeVar("_V")

# Verbs whose effects are counted by queue → as what; deaths and lost leases are counted of all.
_COUNTED = {"complete": "completed", "fail": "failed"}

# The wait of a job whose backoff raised.
_DEFAULT_BACKOFF = backoff.exponential()


class _Failure(NamedTuple):
    """The records of one failed attempt."""

    text: str
    error: BaseException | str
    #: For the table of failed attempts.
    row: dict[str, Any]
    #: Microseconds until the next attempt; None: it was the last.
    delay: int | None


class Settle:
    """Settles the leased jobs of one queue. Safe to share between threads.

    :param source: the queue that the jobs were claimed from; jobs of another are refused.
    """

    def __init__(self, core: Core, source: Settler) -> None:
        self._core = core
        self._source = source

    def complete(
        self,
        jobs: Sequence[LeasedJob],
        using: Connection | Session | None,
        retained: Sequence[RetainedResult | None] | None = None,
        carrier: Carrier | None = None,
    ) -> list[Verdict]:
        """They leave the queue by the removal.

        :param retained: the result to keep of each job.
        :param carrier: deletes them in another transaction, if the removal is ``Delete`` itself and nothing depends on them.
        """
        jobs = self.checked(jobs)
        rows: dict[int, dict[str, Any]] = {}
        if retained is not None:
            results = arguments.members("retained", retained, "results to retain")
            if len(results) != len(jobs):
                raise ArgumentError(f"{len(results)} results to retain for {len(jobs)} jobs: give one for each")
            rows = {job.id: self._finished(job, one) for job, one in _current(jobs, results) if one}

        removal = self._core.removal

        def complete(tx: Transaction, pairs: Pairs) -> set[int]:
            if not rows:
                return removal.remove(tx, pairs)
            tx.begin()
            done = removal.remove(tx, pairs)
            if finished := [rows[job_id] for job_id in done if job_id in rows]:
                history.record_finished(tx, finished)
            return done

        return self._settle(
            "complete",
            jobs,
            complete,
            settle.Change.GONE,
            lambda _: Departure.COMPLETED,
            using=using,
            attempts=removal.retries + 1,
            direct=True,
            carrier=carrier if type(removal) is Delete and not rows else None,
        )

    def fail(
        self,
        jobs: Sequence[LeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        retry_in: float | Sequence[float | None] | None,
        last: Sequence[bool] | None = None,
    ) -> list[Verdict]:
        """They come back after ``retry_in`` seconds or the backoff; those out of attempts go to the dead table.

        :param last: whether this was the last attempt, for each job; default: by its ``max_attempts``.
        """
        jobs = self.checked(jobs)
        errors = _errors(error, len(jobs))
        given = retry_in if isinstance(retry_in, Sequence) else [retry_in]
        fixed = [None if wait is None else arguments.seconds("retry_in", wait) for wait in given]
        waits = fixed if isinstance(retry_in, Sequence) else fixed * len(jobs)
        ends = arguments.members("last", last or [], "whether it was the last attempt, for each job")
        ends = ends or [job.attempts >= job.max_attempts for job in jobs]
        if not len(waits) == len(ends) == len(jobs):
            raise ArgumentError(f"{len(waits)} waits and {len(ends)} ends for {len(jobs)} jobs: give one for each")
        failures = {
            job.id: _Failure(text, one, self._failure(job, one), None if end else self._backoff(job) if wait is None else wait)
            for job, (text, one, wait, end) in _current(jobs, list(zip(map(error_text, errors), errors, waits, ends, strict=True)))
        }
        limits = _limits(jobs)

        def is_last(job_id: int) -> bool:
            return failures[job_id].delay is None

        def fail(tx: Transaction, pairs: Pairs) -> set[int]:
            again = [pair for pair in pairs if not is_last(pair[0])]
            gone = [pair for pair in pairs if is_last(pair[0])]
            done: set[int] = set()
            if again:
                of = {job_id: failures[job_id] for job_id, _ in again}
                delays = {job_id: failure.delay for job_id, failure in of.items() if failure.delay is not None}
                errors = {job_id: failure.text for job_id, failure in of.items()}
                done |= settle.free(tx, again, delays=delays, errors=errors, limits=limits, attempted=True)
            if gone:
                errors = {job_id: failures[job_id].text for job_id, _ in gone}
                done |= settle.bury(tx, gone, errors, limits)
            if done:
                versions = dict(pairs)  # they prove the change: see :func:`queue_db.store.settle.look`
                history.record_errors(tx, [failures[job_id].row | {"version": versions[job_id]} for job_id in sorted(done)])
            return done

        def death(job: LeasedJob) -> Death | None:
            failure = failures[job.id]
            return Death(job, DeathReason.FAILED, failure.text, failure.error) if is_last(job.id) else None

        def departure(job_id: int) -> Departure | None:
            return Departure.DEAD if is_last(job_id) else None

        return self._settle("fail", jobs, fail, settle.Change.FAILED, departure, death=death)

    def _backoff(self, job: LeasedJob) -> int:
        return backoff_of(self._core, job.attempts, job)

    def snooze(self, jobs: Sequence[LeasedJob], delay: int) -> list[Verdict]:
        """They come back in ``delay`` microseconds; not an attempt."""

        def snooze(tx: Transaction, pairs: Pairs) -> set[int]:
            return settle.free(tx, pairs, delays=dict.fromkeys(dict(pairs), delay), attempted=False)

        return self._settle("snooze", self.checked(jobs), snooze, settle.Change.FREED)

    def release(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """They come back at once; not an attempt."""

        def release(tx: Transaction, pairs: Pairs) -> set[int]:
            return settle.free(tx, pairs, delays=dict.fromkeys(dict(pairs), 0), attempted=False)

        return self._settle("release", self.checked(jobs), release, settle.Change.FREED)

    def extend(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict]:
        """Their leases end ``seconds`` from now."""
        return self._extend(jobs, seconds, settle.extend)

    def extend_unlocked(self, jobs: Sequence[LeasedJob], seconds: float) -> list[Verdict | None]:
        """:meth:`extend`, tried once and without waiting for locked rows; None: the row of this job is locked."""
        locked: set[int] = set()

        def extend(tx: Transaction, pairs: Pairs, micros: int) -> dict[int, int]:
            nonlocal locked
            ends, locked = settle.extend_unlocked(tx, pairs, micros)
            return ends

        verdicts = self._extend(jobs, seconds, extend, attempts=1)
        return [None if not verdict and job.id in locked else verdict for job, verdict in zip(jobs, verdicts, strict=True)]

    def _extend(
        self,
        jobs: Sequence[LeasedJob],
        seconds: float,
        lengthen: Callable[[Transaction, Pairs, int], dict[int, int]],
        attempts: int = ATTEMPTS,
    ) -> list[Verdict]:
        micros = arguments.seconds("seconds", seconds, zero=False)
        ends: dict[int, int] = {}

        def extend(tx: Transaction, pairs: Pairs) -> set[int]:
            found = lengthen(tx, pairs, micros)
            ends.update(found)
            return set(found)  # not all of `ends`: an earlier run of this, undone since, may have seen more

        def applied(changed: Sequence[LeasedJob], versions: Mapping[int, int]) -> None:
            self._raise_versions(changed, versions, ends)

        return self._settle("extend", self.checked(jobs), extend, settle.Change.KEPT, applied=applied, attempts=attempts)

    def _raise_versions(self, changed: Sequence[LeasedJob], versions: Mapping[int, int], ends: Mapping[int, int]) -> None:
        with self._core.database.counting:  # two threads may extend one lease
            for job in changed:
                if versions[job.id] >= job.version:
                    job.version = versions[job.id] + 1
                    job.lease_ends = ends.get(job.id, job.lease_ends)

    def recount(self, jobs: Sequence[LeasedJob], by: int) -> list[Verdict]:
        """``by`` is added to their attempts; they stay leased."""

        def applied(changed: Sequence[LeasedJob], versions: Mapping[int, int]) -> None:
            self._raise_versions(changed, versions, {})

        def recount(tx: Transaction, pairs: Pairs) -> set[int]:
            return settle.recount(tx, pairs, by)

        return self._settle("recount", self.checked(jobs), recount, settle.Change.KEPT, applied=applied)

    def cancel(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        """They leave the queue."""

        def cancel(tx: Transaction, pairs: Pairs) -> set[int]:
            return settle.delete(tx, pairs)

        return self._settle("cancel", self.checked(jobs), cancel, settle.Change.GONE, lambda _: Departure.CANCELLED)

    def bury(
        self,
        jobs: Sequence[LeasedJob],
        error: BaseException | str | Sequence[BaseException | str],
        reason: DeathReason,
    ) -> list[Verdict]:
        """They go to the dead table."""
        jobs = self.checked(jobs)
        given = {job.id: one for job, one in _current(jobs, _errors(error, len(jobs)))}
        errors = {job_id: error_text(one) for job_id, one in given.items()}

        def bury(tx: Transaction, pairs: Pairs) -> set[int]:
            attempted = reason is not DeathReason.EXHAUSTED
            return settle.bury(tx, pairs, _of(errors, pairs), _limits(jobs), attempted=attempted)

        def death(job: LeasedJob) -> Death:
            return Death(job, reason, errors[job.id], given[job.id])

        return self._settle("bury", jobs, bury, settle.Change.DEAD, lambda _: Departure.DEAD, death=death)

    def defer_unknown(self, jobs: Sequence[LeasedJob], error: BaseException | str, grace: int) -> list[Verdict]:
        """They come back later, not an attempt; those deferred for ``grace`` microseconds go to the dead table."""
        jobs = self.checked(jobs)
        text = error_text(error)
        over: set[int] = set()

        def defer(tx: Transaction, pairs: Pairs) -> set[int]:
            over.clear()
            held = settle.lock(tx, pairs)
            since = settle.unknown_since(tx, held)
            now = tx.read_clock()
            gone = [pair for pair in held if now - since.get(pair[0], now) >= grace]
            over.update(job_id for job_id, _ in gone)
            again = [pair for pair in held if pair[0] not in over]
            done = settle.bury(tx, gone, dict.fromkeys(over, text), _limits(jobs)) if gone else set()
            if again:
                first = {job_id: since.get(job_id, now) for job_id, _ in again}
                done |= settle.free(
                    tx,
                    again,
                    delays={job_id: _unknown_wait(now - seen, grace) for job_id, seen in first.items()},
                    errors=dict.fromkeys(first, text),
                    unknown_since=first,
                    attempted=False,
                )
            return done

        def change(job: LeasedJob) -> settle.Change:
            return settle.Change.DEAD if job.id in over else settle.Change.FREED

        def death(job: LeasedJob) -> Death | None:
            return Death(job, DeathReason.UNKNOWN_KIND, text) if job.id in over else None

        return self._settle("defer", jobs, defer, change, lambda job_id: Departure.DEAD if job_id in over else None, death=death)

    def _failure(self, job: LeasedJob, error: BaseException | str) -> dict[str, Any]:
        return {
            "job_id": job.id,
            "queue": job.queue,
            "kind": job.kind,
            **failure_row(error, worker=job.worker or self._core.worker, version=job.version, attempt=job.attempts),
        }

    def _finished(self, job: LeasedJob, retained: RetainedResult) -> dict[str, Any]:
        return {
            "id": job.id,
            "queue": job.queue,
            "kind": job.kind,
            "payload": job.payload_text,
            "attempts": job.attempts,
            "worker": job.worker or self._core.worker,
            "result": retained.result,
            "created_at": to_micros(job.created_at),
            "lasts": retained.lasts,
        }

    def checked(self, jobs: Sequence[LeasedJob]) -> list[LeasedJob]:
        """The jobs, if they are of this queue.

        :raises ArgumentError: one is not.
        """
        if isinstance(jobs, LeasedJob):
            raise ArgumentError(f"jobs={jobs!r}: must be a list of leased jobs: [job]")
        jobs = arguments.members("jobs", jobs, "leased jobs")
        source = self._source
        for job in jobs:
            if type(job) is LeasedJob and job.source is source:
                continue
            if not isinstance(job, LeasedJob):
                raise ArgumentError(f"{arguments.shown(job)} is not a LeasedJob: settle the objects that claim() returned")
            if job.source is not source:
                raise ArgumentError(f"{job!r} was claimed from {job.source!r}, not from {self._source!r}")
        return jobs

    def _settle(
        self,
        verb: str,
        jobs: list[LeasedJob],
        work: Work,
        change: settle.Change | Callable[[LeasedJob], settle.Change],
        departure: Callable[[int], Departure | None] | None = None,
        *,
        using: Connection | Session | None = None,
        attempts: int = ATTEMPTS,
        applied: Applied | None = None,
        direct: bool = False,
        death: Callable[[LeasedJob], Death | None] | None = None,
        carrier: Carrier | None = None,
    ) -> list[Verdict]:
        """Run ``work`` of ``verb`` over the checked jobs of this queue; count, report and return what became of each.

        :param change: how the verb leaves a row.
        :param departure: how a job leaves the queue by it; None: it stays.
        :param applied: called with the jobs that changed; default: they are marked as settled.
        :param death: the report of a job that died by it.
        """
        if departure is not None and (links := linked(jobs)):
            work = _finishing(links, work, departure)
            carrier = None
        fenced = FencedChange(self._core, verb, work, change, attempts, direct, carrier)
        verdicts = fenced.settle(jobs, using=using, applied=applied or partial(_settled, verb=verb, death=death))
        took_effect = verdicts.count(Verdict.APPLIED)
        counters = self._core.database.counters
        with self._core.database.counting:
            counters.applied += took_effect
            counters.lost += len(verdicts) - took_effect
        died, deaths = 0, []
        if death is not None:
            changed = {id(job): job for job, verdict in zip(jobs, verdicts, strict=True) if verdict}
            deaths = [one for job in changed.values() if (one := death(job)) is not None]
            died = len(deaths)
        if jobs:
            counts = {_COUNTED[verb]: took_effect - died} if verb in _COUNTED else {}
            self._core.tally.add(jobs[0].queue, died=died, lost=len(verdicts) - took_effect, **counts)
        try:
            if fenced.committed:
                follow(fenced.committed)
        finally:
            if deaths:
                self._core.deaths.record(deaths)
        return verdicts


def _finishing(links: Mapping[int, JobLinks], work: Work, departure: Callable[[int], Departure | None]) -> Work:
    """``work``, and then what depends on the jobs that leave by it."""

    def finishing(tx: Transaction, pairs: Pairs) -> set[int]:
        done: set[int] = set()

        def leave() -> dict[int, Departure]:
            done.update(work(tx, pairs))
            departures = {job_id: departure(job_id) for job_id in done}
            return {job_id: how for job_id, how in departures.items() if how is not None}

        finish(tx, links, leave)
        return done

    return finishing


def _settled(
    changed: Sequence[LeasedJob], _versions: Mapping[int, int], verb: str, death: Callable[[LeasedJob], Death | None] | None
) -> None:
    for job in changed:
        job.settled, job.settled_by = True, verb
        if death is not None:
            job.dead = death(job) is not None


def _errors(error: BaseException | str | Sequence[BaseException | str], jobs: int) -> list[BaseException | str]:
    """One error for each job."""
    if not isinstance(error, Sequence) or isinstance(error, str):
        return [error] * jobs
    if len(error) != jobs:
        raise ArgumentError(f"{len(error)} errors for {jobs} jobs: give one for all, or one for each")
    return list(error)


def backoff_of(core: Core, attempts: int, job: object) -> int:
    """Microseconds until the next attempt. If the backoff raises, this job waits as by default."""
    try:
        return arguments.seconds("retry_after", core.retry_after(attempts))
    except Exception:
        log.exception("retry_after failed for attempt %d of %r: it waits by the default backoff", attempts, job)
        return arguments.seconds("retry_after", _DEFAULT_BACKOFF(attempts))


def failure_row(error: BaseException | str, *, worker: str, version: int, attempt: int) -> dict[str, Any]:
    """A failed attempt as the history shows it, without the job's id."""
    raised = isinstance(error, BaseException)
    trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else None
    return {
        "version": version,
        "attempt": attempt,
        "worker": worker,
        "error_class": type(error).__name__[:CLASS_LENGTH] if raised else "",
        "message": arguments.storable(text_of(error), MAX_ERROR),
        "trace": None if trace is None else arguments.storable(trace[-_MAX_TRACE:], _MAX_TRACE),
    }


def error_text(error: BaseException | str) -> str:
    """The error as stored: the exception's type and text, cut."""
    if isinstance(error, BaseException):
        error = f"{type(error).__name__}: {text_of(error)}"
    if not isinstance(error, str):
        raise arguments.wrong("error", error, ": must be a text or an exception")
    return arguments.storable(error, MAX_ERROR)


def _current(jobs: Sequence[LeasedJob], values: Sequence[_V]) -> list[tuple[LeasedJob, _V]]:
    """Each job with its value, by version: if a job is given with a lost lease and its next one, the current lease is last."""
    return sorted(zip(jobs, values, strict=True), key=lambda each: each[0].version)


def _limits(jobs: Sequence[LeasedJob]) -> dict[int, int] | None:
    """``max_attempts`` by job; None: no handler sets a limit of its own."""
    return (
        {job.id: limit for job, limit in _current(jobs, [job.max_attempts for job in jobs])}
        if any(job.limited for job in jobs)
        else None
    )


def _unknown_wait(waited: int, grace: int) -> int:
    """Microseconds until a job without a handler is claimed again, after ``waited`` microseconds."""
    shortest, longest = (seconds * 1e6 for seconds in _UNKNOWN_WAITS)
    wait = min(longest, max(shortest, waited / 2)) * random.uniform(0.8, 1.2)
    return round(min(wait, max(grace - waited, 0)))


def _of(errors: Mapping[int, str], pairs: Pairs) -> dict[int, str]:
    return {job_id: errors[job_id] for job_id, _ in pairs}
