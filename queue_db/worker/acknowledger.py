"""Reports what handlers have returned: many jobs in one statement, by one thread with one connection."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.errors import ArgumentError, StorageError
from queue_db.events import Happening
from queue_db.leased import LeasedJob
from queue_db.model import Kept, Verdict
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.queue import Queue
from queue_db.worker.handlers import Handling
from queue_db.worker.logs import about
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")

#: Seconds for which finished jobs are collected before they are reported, and the most in one statement. By so much longer is the
#: time in which a job is done again if its worker dies.
WITHIN = 0.002
AT_MOST = 1000

#: How long it tries to report a finished job while the database does not answer, seconds.
SETTLE_FOR = 600.0


Ticket = object
"""Stands for an outcome that is expected, from before its job is let go until it is reported."""


class Done(NamedTuple):
    """A job whose handler has ended."""

    job: LeasedJob
    handling: Handling | None
    #: What it returned, or what it raised.
    outcome: object
    ticket: Ticket
    #: How long it ran, seconds; None: it was not called.
    seconds: float | None = None
    #: For how long it is kept if it is completed, seconds; None or 0: not at all.
    keep: float | None = None


Told = Callable[[Done, Verdict | None], None]
"""Hears of each job what became of it; None: it could not be reported and comes back when its lease runs out."""


class Acknowledger:
    """Settles finished jobs.

    :param trouble: seconds between tries while the database does not answer: first, longest.
    """

    def __init__(self, told: Told, trouble: tuple[float, float]) -> None:
        self._told = told
        self._trouble = trouble
        self._mail: SimpleQueue[Done | None] = SimpleQueue()
        self._expected: dict[Ticket, None] = {}
        self._hurry = threading.Event()

    def expect(self) -> Ticket:
        """An outcome is about to be put, or :meth:`forget` is called."""
        ticket = object()
        self._expected[ticket] = None
        return ticket

    def forget(self, ticket: Ticket) -> None:
        """Nothing will be put."""
        self._expected.pop(ticket, None)

    def put(self, done: Done) -> None:
        """Report this soon."""
        self._mail.put(done)

    def __len__(self) -> int:
        """How many are expected or not reported yet."""
        return len(self._expected)

    def run(self) -> None:
        """Report until :meth:`close`."""
        while True:
            first = self._mail.get()
            if first is None:
                return
            if self._mail.qsize() < AT_MOST:
                # Not a wait for the next one: to be woken for each job costs more than to report it.
                time.sleep(WITHIN)
            batch = [first]
            ended = False
            while len(batch) < AT_MOST:
                try:
                    one = self._mail.get_nowait()
                except Empty:
                    break
                if one is None:
                    ended = True
                    break
                batch.append(one)
            self._report(batch)
            if ended:
                return

    def close(self) -> None:
        """Report what has been put, and end; what the database does not take at once comes back when its lease runs out."""
        self._hurry.set()
        self._mail.put(None)

    def _report(self, batch: list[Done]) -> None:
        try:
            for settling, ones in _plan(batch):
                self._settle(settling, ones)
        except Exception:
            # Nothing of what is foreseen: the jobs come back when their leases run out, and the worker goes on.
            log.exception("%d finished jobs could not be settled", len(batch))
            for one in batch:
                if one.ticket in self._expected:
                    self._told(one, None)
        finally:
            for one in batch:
                self._expected.pop(one.ticket, None)

    def _settle(self, settling: _Settling, ones: Sequence[Done]) -> None:
        """One verb over some jobs, for as long as it takes the database to answer; the fence decides whether it still counts."""
        trouble = Pause(*self._trouble)
        until = time.monotonic() + SETTLE_FOR
        while True:
            try:
                verdicts = settling(ones)
            except StorageError as error:
                wait = trouble.next()
                if time.monotonic() + wait > until or self._hurry.wait(wait):
                    message = "%s could not be settled and comes back when its lease runs out: %s"
                    log.error(message, _these(ones), error, extra=_about(ones))  # noqa: TRY400 - it was a warning often enough
                    for one in ones:
                        self._tell(one, None)
                    return
                log.warning("settling %s failed, trying again: %s", _these(ones), error, extra=_about(ones))
            else:
                for one, verdict in zip(ones, verdicts, strict=True):
                    self._tell(one, verdict)
                return

    def _tell(self, one: Done, verdict: Verdict | None) -> None:
        self._told(one, verdict)
        self._expected.pop(one.ticket, None)


_Settling = Callable[[Sequence[Done]], list[Verdict]]


def settle(done: Done) -> Verdict:
    """Settle one job at once."""
    ((settling, ones),) = _plan([done])
    return settling(ones)[0]


def _plan(batch: Sequence[Done]) -> list[tuple[_Settling, Sequence[Done]]]:
    """The verbs that settle these jobs, each with its own. Raises nothing: an impossible outcome fails its job."""
    groups: dict[tuple[Queue, str, float], list[Done]] = {}
    for one in batch:
        done, verb, seconds = _verb(one)
        queue: Queue = one.job.source  # type: ignore[assignment]
        groups.setdefault((queue, verb, seconds), []).append(done)
    return [(_settling(queue, verb, seconds), ones) for (queue, verb, seconds), ones in groups.items()]


def _verb(one: Done) -> tuple[Done, str, float]:
    """The outcome as it will be told, the verb, and for how long a snooze."""
    outcome = one.outcome
    if isinstance(outcome, Snooze | Retry):
        try:
            arguments.seconds(f"{type(outcome).__name__}.seconds", 0 if outcome.seconds is None else outcome.seconds)
        except ArgumentError as error:
            log.warning("%r failed: %s", one.job, error, extra=about(one.job, Happening.FAILED, one.seconds))
            return one._replace(outcome=error), "fail", 0.0
    if isinstance(outcome, Snooze):
        return one, "snooze", float(outcome.seconds)
    if isinstance(outcome, BaseException | Retry):
        return one, "fail", 0.0
    if one.job.settled:
        return one, "settled", 0.0
    return one, _VERBS.get(type(outcome), "complete"), 0.0


_VERBS = {Cancel: "cancel", Dead: "bury"}


def _settling(queue: Queue, verb: str, seconds: float) -> _Settling:
    match verb:
        case "settled":
            return lambda ones: [Verdict.APPLIED for _ in ones]
        case "snooze":
            return lambda ones: queue.snooze_many(_jobs(ones), seconds)
        case "cancel":
            return lambda ones: queue.cancel_many(_jobs(ones))
        case "bury":
            return lambda ones: queue.bury_many(_jobs(ones), [_reason(one.outcome) for one in ones])
        case "fail":
            return lambda ones: _fail(queue, ones)
    return lambda ones: queue.complete_many(_jobs(ones), kept=_kept(queue, ones))


def _kept(queue: Queue, ones: Sequence[Done]) -> list[Kept | None] | None:
    """What is to be remembered of these jobs; nothing of most."""
    if not any(one.keep for one in ones):
        return None
    return [_of(queue, one) for one in ones]


def _of(queue: Queue, one: Done) -> Kept | None:
    if not one.keep:
        return None
    result: str | None = None
    try:
        result = queue.db.codec.encode(one.outcome)
    except (TypeError, ValueError, RecursionError) as error:
        # The work is done: to do it again would not make its result any better.
        log.warning("%r: the result cannot be kept: %s", one.job, error, extra=about(one.job, Happening.COMPLETED, one.seconds))
    return Kept(result, arguments.seconds("keep", one.keep))


def _fail(queue: Queue, ones: Sequence[Done]) -> list[Verdict]:
    waits = [_wait(one) for one in ones]
    ends = [one.handling.last(one.job) if one.handling else one.job.attempts >= one.job.max_attempts for one in ones]
    return queue.fail_many(_jobs(ones), [_reason(one.outcome) for one in ones], retry_in=waits, last=ends)


def _wait(one: Done) -> float | None:
    """Seconds until the next attempt; None: the usual backoff."""
    if isinstance(one.outcome, Retry) and one.outcome.seconds is not None:
        return one.outcome.seconds
    if one.handling is None or one.handling.backoff is None:
        return None
    try:
        seconds = one.handling.backoff(one.job.attempts)
        arguments.seconds("backoff", seconds)
    except Exception:
        message = "the backoff of %r failed for attempt %d: the usual one is taken"
        log.exception(message, one.job, one.job.attempts, extra=about(one.job, Happening.FAILED, one.seconds))
        return None
    return seconds


def _reason(outcome: object) -> BaseException | str:
    return outcome.reason if isinstance(outcome, Retry | Dead) else outcome  # type: ignore[return-value]


def _jobs(ones: Sequence[Done]) -> list[LeasedJob]:
    return [one.job for one in ones]


def _these(ones: Sequence[Done]) -> str:
    return repr(ones[0].job) if len(ones) == 1 else f"{len(ones)} jobs"


def _about(ones: Sequence[Done]) -> dict[str, Any] | None:
    return about(ones[0].job, seconds=ones[0].seconds) if len(ones) == 1 else None
