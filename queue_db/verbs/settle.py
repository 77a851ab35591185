"""The table of the verbs that end or keep leases: the statement of each verb, and how it changes the jobs.

:class:`~queue_db.verbs.fenced_change.FencedChange` runs these verbs.
"""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from queue_db import arguments, backoff
from queue_db.core import ONCE, Core
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError, text_of
from queue_db.leased_job import LeasedJob, Settler
from queue_db.model import DeathReason, JobLinks, StoredResult, Verdict, to_micros
from queue_db.removal import Delete, Removal
from queue_db.store import Transaction, history, settle
from queue_db.store.on_leave import Departure
from queue_db.store.schema import CLASS_LENGTH
from queue_db.store.settle import Change
from queue_db.verbs.fenced_change import Failures, FencedChange, Kept, Pairs, Verb

log = logging.getLogger("queue_db.verbs.settle")

# The most characters of a stored error text. Lists of jobs show the text, so it must not be large.
MAX_ERROR = 10_000

# The most characters of a stored traceback. A longer traceback loses its beginning.
_MAX_TRACE = 8_000

#: Seconds for which a job waits for a worker with a handler for its kind; after that the job is dead. A worker may set another
#: time.
UNKNOWN_GRACE = 3600.0

# Seconds until a job without a handler is claimed again: the shortest and the longest wait. Between these limits, each wait is
# half of the time for which the job has waited so far.
_UNKNOWN_WAITS = (1.0, 60.0)

# The backoff that applies if the user's ``retry_after`` raises an exception.
_DEFAULT_BACKOFF = backoff.exponential()

_V = TypeVar("_V")


# --- the statements ---------------------------------------------------------------------------------------------------


def _remove_and_keep(tx: Transaction, pairs: Pairs, removal: Removal, results: Mapping[int, dict[str, Any]]) -> set[int]:
    done = removal.remove(tx, pairs)
    if finished := [results[job_id] for job_id in done if job_id in results]:
        history.record_finished(tx, finished)
    return done


def _fail(tx: Transaction, pairs: Pairs, failures: Failures) -> set[int]:
    again = [pair for pair in pairs if pair[0] not in failures.dying]
    gone = [pair for pair in pairs if pair[0] in failures.dying]
    done: set[int] = set()
    if again:
        delays, errors = _of(failures.delays, again), _of(failures.texts, again)
        done |= settle.requeue(tx, again, delays=delays, errors=errors, limits=failures.limits, attempted=True)
    if gone:
        done |= _bury(tx, gone, failures)
    if done:
        versions = dict(pairs)  # with its version, a row proves the change: see :func:`queue_db.store.settle.look`
        history.record_errors(tx, [failures.rows[job_id] | {"version": versions[job_id]} for job_id in sorted(done)])
    return done


def _bury(tx: Transaction, pairs: Pairs, failures: Failures) -> set[int]:
    # The claim that found an exhausted job does not count as an attempt.
    attempted = failures.reason is not DeathReason.EXHAUSTED
    return settle.bury(tx, pairs, _of(failures.texts, pairs), failures.limits, attempted=attempted)


def _defer(tx: Transaction, pairs: Pairs, failures: Failures) -> set[int]:
    """Make the jobs due later, without counting the attempt. Jobs that have waited for a handler for ``grace`` microseconds die."""
    failures.dying = set()
    held = settle.lock(tx, pairs)
    since = settle.unknown_since(tx, held)
    now = tx.read_clock()
    gone = [pair for pair in held if now - since.get(pair[0], now) >= failures.grace]
    failures.dying = {job_id for job_id, _ in gone}
    again = [pair for pair in held if pair[0] not in failures.dying]
    done = _bury(tx, gone, failures) if gone else set()
    if again:
        first = {job_id: since.get(job_id, now) for job_id, _ in again}
        delays = {job_id: _unknown_wait(now - seen, failures.grace) for job_id, seen in first.items()}
        errors = _of(failures.texts, again)
        done |= settle.requeue(tx, again, delays=delays, errors=errors, unknown_since=first, attempted=False)
    return done


def _free(tx: Transaction, pairs: Pairs, delay: int) -> set[int]:
    """Make the jobs due in ``delay`` microseconds, without counting the attempt."""
    return settle.requeue(tx, pairs, delays=dict.fromkeys(dict(pairs), delay), attempted=False)


def _release(tx: Transaction, pairs: Pairs, queue: str) -> set[int]:
    done = _free(tx, pairs, 0)
    if done:
        tx.wake(queue)
    return done


def _interrupt(tx: Transaction, pairs: Pairs, headers: Mapping[int, str], queue: str) -> set[int]:
    """Make the jobs due now. The attempts of jobs without new headers count."""
    done: set[int] = set()
    free = [pair for pair in pairs if pair[0] in headers]
    counted = [pair for pair in pairs if pair[0] not in headers]
    if free:
        done |= settle.requeue(tx, free, delays=_now(free), headers=_of(headers, free), attempted=False)
    if counted:
        done |= settle.requeue(tx, counted, delays=_now(counted), attempted=True)
    if done:
        tx.wake(queue)
    return done


def _now(pairs: Pairs) -> dict[int, int]:
    return dict.fromkeys(dict(pairs), 0)


def _extend(tx: Transaction, pairs: Pairs, lease: Kept) -> set[int]:
    ends = settle.extend(tx, pairs, lease.number)
    lease.ends |= ends
    return set(ends)  # not the ids in `lease.ends`: an earlier run that was rolled back may have added more ids


def _extend_unlocked(tx: Transaction, pairs: Pairs, lease: Kept) -> set[int]:
    """Extend the leases, except those of locked rows."""
    ends, lease.locked = settle.extend_unlocked(tx, pairs, lease.number)
    lease.ends |= ends
    return set(ends)


def _adjust_attempts(tx: Transaction, pairs: Pairs, by: Kept) -> set[int]:
    return settle.adjust_attempts(tx, pairs, by.number)


# --- the table --------------------------------------------------------------------------------------------------------


def completion(removal: Removal) -> Verb:
    """The verb of completion: the jobs leave the queue as ``removal`` says."""
    return Verb(
        Run("complete", attempts=removal.retries + 1, lazy=True),
        removal.remove,
        Change.GONE,
        Departure.COMPLETED,
        counted="completed",
        carried=type(removal) is Delete,
    )


#: The attempts of the jobs have failed: the jobs are due again after a wait. Jobs without attempts left go to the dead table.
FAIL = Verb(Run("fail"), _fail, Change.FAILED, death=Change.FAILED, counted="failed")

#: The jobs go to the dead table.
BURY = Verb(Run("bury"), _bury, Change.DEAD, death=Change.DEAD)

#: This worker has no handler for the jobs: the jobs are due again later. After ``Failures.grace`` they go to the dead table.
DEFER = Verb(Run("defer"), _defer, Change.FREED, death=Change.DEAD)

#: The jobs are due again later. The attempt is not counted.
SNOOZE = Verb(Run("snooze"), _free, Change.FREED)

#: The jobs are due again now. The attempt is not counted.
RELEASE = Verb(Run("release"), _release, Change.FREED)

#: The end of a worker has interrupted the attempts: the jobs are due again now.
INTERRUPT = Verb(Run("interrupt"), _interrupt, Change.FREED)

#: The jobs leave the queue.
CANCEL = Verb(Run("cancel"), settle.delete, Change.GONE, Departure.CANCELLED)

#: The leases of the jobs end later.
EXTEND = Verb(Run("extend"), _extend, Change.KEPT)

#: The same as EXTEND, but without retries, and without the jobs whose rows are locked.
EXTEND_UNLOCKED = Verb(ONCE.named("extend"), _extend_unlocked, Change.KEPT)

#: The jobs stay leased, with another number of attempts.
ADJUST_ATTEMPTS = Verb(Run("adjust_attempts"), _adjust_attempts, Change.KEPT)


# --- the arguments of the verbs ---------------------------------------------------------------------------------------


def complete_and_keep(
    core: Core,
    source: Settler,
    verb: Verb,
    jobs: Sequence[LeasedJob],
    results: Sequence[StoredResult | None],
    using: Using | None,
) -> list[Verdict]:
    """Complete the jobs by ``verb``, and keep their results.

    :param results: the result of each job, by position; None: keep no result of this job. A result that lasts for 0 is only for the
        graph of the job.
    """
    change = FencedChange(core, source, verb, jobs)
    results = arguments.members("retained", results, "results to retain")
    if len(results) != len(change.jobs):
        raise ArgumentError(f"{len(results)} results to retain for {len(change.jobs)} jobs: give one for each")
    current = _current(change.jobs, results)
    if change.links is not None:
        change.links = _with_results(change.links, {job.id: one.result for job, one in current if one})
    rows = {job.id: _finished(core, job, one) for job, one in current if one and one.lasts}
    if not rows:
        return change.settle(using=using)
    change.verb = verb._replace(run=verb.run._replace(lazy=False), statement=_remove_and_keep, carried=False)
    return change.settle(core.removal, rows, using=using)


def _with_results(links: Mapping[int, JobLinks], results: Mapping[int, str | None]) -> dict[int, JobLinks]:
    """The links of jobs, with their results for the graphs."""
    return {job_id: link if link.graph is None else link._replace(result=results.get(job_id)) for job_id, link in links.items()}


def failures(
    core: Core,
    jobs: Sequence[LeasedJob],
    error: BaseException | str | Sequence[BaseException | str],
    retry_in: float | Sequence[float | None] | None,
    last: Sequence[bool] | None,
) -> Failures:
    """Make the argument of :data:`FAIL`: decide which jobs die and when the other jobs are due again.

    :param retry_in: seconds until the next attempt; None: the backoff decides.
    :param last: for each job, whether this was its last attempt; None: ``max_attempts`` of the job decides.
    """
    causes = _errors(error, len(jobs))
    given = retry_in if isinstance(retry_in, Sequence) else [retry_in]
    fixed = [None if wait is None else arguments.seconds("retry_in", wait) for wait in given]
    waits = fixed if isinstance(retry_in, Sequence) else fixed * len(jobs)
    ends = arguments.members("last", last or [], "whether it was the last attempt, for each job")
    ends = ends or [job.attempts >= job.max_attempts for job in jobs]
    if not len(waits) == len(ends) == len(jobs):
        raise ArgumentError(f"{len(waits)} waits and {len(ends)} ends for {len(jobs)} jobs: give one for each")
    texts, by_id, rows = dict[int, str](), dict[int, BaseException | str](), dict[int, dict[str, Any]]()
    delays: dict[int, int | None] = {}
    for job, (text, cause, wait, end) in _current(jobs, [*zip(map(error_text, causes), causes, waits, ends, strict=True)]):
        texts[job.id], by_id[job.id], rows[job.id] = text, cause, _failed(core, job, cause)
        delays[job.id] = None if end else backoff_of(core, job.attempts, job) if wait is None else wait
    dying = {job_id for job_id, delay in delays.items() if delay is None}
    again = {job_id: delay for job_id, delay in delays.items() if delay is not None}
    return Failures(DeathReason.FAILED, texts, by_id, _limits(jobs), dying, again, rows)


def burials(jobs: Sequence[LeasedJob], error: BaseException | str | Sequence[BaseException | str], reason: DeathReason) -> Failures:
    """Make the :class:`Failures` for :data:`BURY`: all the jobs die, for ``reason``."""
    causes = {job.id: one for job, one in _current(jobs, _errors(error, len(jobs)))}
    texts = {job_id: error_text(one) for job_id, one in causes.items()}
    return Failures(reason, texts, causes, _limits(jobs), set(texts))


def deferrals(jobs: Sequence[LeasedJob], error: BaseException | str, grace: int) -> Failures:
    """Make the argument of :data:`DEFER`."""
    texts = dict.fromkeys([job.id for job in jobs], error_text(error))
    return Failures(DeathReason.UNKNOWN_KIND, texts, {}, _limits(jobs), set(), grace=grace)


def _failed(core: Core, job: LeasedJob, error: BaseException | str) -> dict[str, Any]:
    """The row for the table of failed attempts."""
    return {
        "job_id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        **failure_row(error, worker=job.worker or core.worker, version=job.version, attempt=job.attempts),
    }


def _finished(core: Core, job: LeasedJob, retained: StoredResult) -> dict[str, Any]:
    """The row for the table of completed jobs and their results."""
    return {
        "id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "payload": job.payload_text,
        "attempts": job.attempts,
        "worker": job.worker or core.worker,
        "result": retained.result,
        "created_at": to_micros(job.created_at),
        "lasts": retained.lasts,
    }


def _errors(error: BaseException | str | Sequence[BaseException | str], jobs: int) -> list[BaseException | str]:
    """One error for each job."""
    if not isinstance(error, Sequence) or isinstance(error, str):
        return [error] * jobs
    if len(error) != jobs:
        raise ArgumentError(f"{len(error)} errors for {jobs} jobs: give one for all, or one for each")
    return list(error)


def backoff_of(core: Core, attempts: int, job: object) -> int:
    """Microseconds until the next attempt. If the user's backoff raises an exception, the default backoff applies."""
    try:
        return arguments.seconds("retry_after", core.retry_after(attempts))
    except Exception:
        log.exception("retry_after failed for attempt %d of %r: it waits by the default backoff", attempts, job)
        return arguments.seconds("retry_after", _DEFAULT_BACKOFF(attempts))


def failure_row(error: BaseException | str, *, worker: str, version: int, attempt: int) -> dict[str, Any]:
    """The columns of the history that describe a failed attempt, without the columns that describe its job."""
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
    """The error text as stored: the type and text of an exception, cut to :data:`MAX_ERROR`."""
    if isinstance(error, BaseException):
        error = f"{type(error).__name__}: {text_of(error)}"
    if not isinstance(error, str):
        raise arguments.wrong("error", error, ": must be a text or an exception")
    return arguments.storable(error, MAX_ERROR)


def _current(jobs: Sequence[LeasedJob], values: Sequence[_V]) -> list[tuple[LeasedJob, _V]]:
    """Pair each job with its value, sorted by version. If a job is given with two leases, a mapping by id keeps the later lease."""
    return sorted(zip(jobs, values, strict=True), key=lambda each: each[0].version)


def _limits(jobs: Sequence[LeasedJob]) -> dict[int, int] | None:
    """``max_attempts`` by job id; None: no handler sets a limit of its own."""
    return (
        {job.id: limit for job, limit in _current(jobs, [job.max_attempts for job in jobs])}
        if any(job.limited for job in jobs)
        else None
    )


def _unknown_wait(waited: int, grace: int) -> int:
    """Microseconds until the next claim of a job without a handler that has waited ``waited`` microseconds so far."""
    shortest, longest = (seconds * 1e6 for seconds in _UNKNOWN_WAITS)
    wait = min(longest, max(shortest, waited / 2)) * random.uniform(0.8, 1.2)
    return round(min(wait, max(grace - waited, 0)))


def _of(values: Mapping[int, _V], pairs: Pairs) -> dict[int, _V]:
    return {job_id: values[job_id] for job_id, _ in pairs}
