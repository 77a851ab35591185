"""Reports what handlers have returned: many jobs in one statement, by one thread with one connection."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.errors import StorageError, UnknownKindError, text_of
from queue_db.leased_job import LeasedJob
from queue_db.model import DeathReason, Kept, Verdict
from queue_db.outcomes import Cancel, Dead, Retry, Snooze
from queue_db.queue import Queue
from queue_db.worker.events import EventType
from queue_db.worker.handlers import Handling
from queue_db.worker.logs import about
from queue_db.worker.outages import Activity
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")

#: Seconds for which finished jobs are collected before they are reported, and the most in one statement. By so much longer is the
#: time in which a job is done again if its worker dies.
WITHIN = 0.002
AT_MOST = 1000

#: How long it tries to report a finished job while the database does not answer, seconds.
SETTLE_FOR = 600.0


class Unknown(NamedTuple):
    """The outcome of a job for whose kind there is no handler: it waits for a worker that has one."""

    error: UnknownKindError
    #: For so many seconds, and is dead then.
    grace: float


class LeaseLost(NamedTuple):
    """The outcome of a job whose lease was lost while it was in hand: the database knows."""


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
    #: Why it goes to the dead table, if it does and not because its handler said so.
    reason: DeathReason | None = None


Told = Callable[[Done, Verdict | None], None]
"""Hears of each job what became of it; None: it could not be reported and comes back when its lease runs out."""


class Acknowledger:
    """Settles finished jobs.

    :param trouble: seconds between tries while the database does not answer: first, longest.
    :param outage: logs that it does not.
    """

    def __init__(self, told: Told, trouble: tuple[float, float], outage: Activity | None = None) -> None:
        self._outage = outage or Activity()
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
        for settling, ones in _plan(batch):
            self._settle_each(settling, ones)

    def _settle_each(self, settling: _Settling, ones: Sequence[Done]) -> None:
        """:meth:`_settle`; where one of the jobs cannot be settled, the others are."""
        try:
            self._settle(settling, ones)
        except Exception:
            rest = [one for one in ones if one.ticket in self._expected]
            if len(ones) > 1:
                for one in rest:
                    self._settle_each(settling, [one])
                return
            # Nothing of what is foreseen: the job comes back when its lease runs out, and the worker goes on.
            log.exception("%s could not be settled and comes back when its lease runs out", _these(ones), extra=_about(ones))
            for one in rest:
                self._tell(one, None)

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
                    self._outage.ended()
                    for one in ones:
                        self._tell(one, None)
                    return
                self._outage.failed(f"settling {_these(ones)}", error, wait, _about(ones))
            else:
                self._outage.worked()
                for one, verdict in zip(ones, verdicts, strict=True):
                    self._tell(one, verdict)
                return

    def _tell(self, one: Done, verdict: Verdict | None) -> None:
        try:
            self._told(one, verdict)
        finally:
            self._expected.pop(one.ticket, None)


_Settling = Callable[[Sequence[Done]], list[Verdict]]


def settle(done: Done) -> Verdict:
    """Settle one job at once."""
    ((settling, ones),) = _plan([done])
    return settling(ones)[0]


def _plan(batch: Sequence[Done]) -> list[tuple[_Settling, Sequence[Done]]]:
    """The verbs that settle these jobs, each with its own. Raises nothing: an impossible outcome fails its job."""
    groups: dict[tuple[Queue, str, Any], list[Done]] = {}
    for one in batch:
        done, verb, detail = _verb(one)
        queue: Queue = one.job.source  # type: ignore[assignment]
        groups.setdefault((queue, verb, detail), []).append(done)
    return [(_settling(queue, verb, detail), ones) for (queue, verb, detail), ones in groups.items()]


def _verb(one: Done) -> tuple[Done, str, Any]:
    """The outcome as it will be told, the verb, and what it needs: seconds of a snooze, why a job is dead, for what it waits."""
    outcome = one.outcome
    detail: Any = None
    match outcome:
        case LeaseLost():
            verb = "lost"
        case Unknown():
            verb, detail = "defer", (f"parked: {outcome.error}", outcome.grace)
        case Snooze() | Retry() if (wrong := _wrong_wait(outcome)) is not None:
            log.warning("%r failed: %s", one.job, wrong, extra=about(one.job, EventType.FAILED, one.seconds))
            one, verb = one._replace(outcome=wrong), "fail"
        case Snooze():
            verb, detail = "snooze", float(outcome.seconds)
        case BaseException() | Retry():
            verb = "fail"
        case _ if one.job.settled:
            verb = "settled"
        case Dead():
            verb, detail = "bury", one.reason or DeathReason.REJECTED
        case _:
            verb = "cancel" if isinstance(outcome, Cancel) else "complete"
    return one, verb, detail


def _wrong_wait(outcome: Snooze | Retry) -> Exception | None:
    try:
        arguments.seconds(f"{type(outcome).__name__}.seconds", 0 if outcome.seconds is None else outcome.seconds)
    except Exception as error:  # noqa: BLE001 - whatever a handler returns fails its own job only
        return error
    return None


def _settling(queue: Queue, verb: str, detail: Any) -> _Settling:
    return {
        "complete": lambda ones: queue.complete_many(_jobs(ones), kept=_kept(queue, ones)),
        "settled": lambda ones: [Verdict.APPLIED for _ in ones],
        "lost": lambda ones: [Verdict.LOST for _ in ones],
        "snooze": lambda ones: queue.snooze_many(_jobs(ones), detail),
        "defer": lambda ones: queue.defer_unknown_many(_jobs(ones), detail[0], grace=detail[1]),
        "cancel": lambda ones: queue.cancel_many(_jobs(ones)),
        "bury": lambda ones: queue.bury_many(_jobs(ones), [_reason(one.outcome) for one in ones], reason=detail),
        "fail": lambda ones: _fail(queue, ones),
    }[verb]


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
    except Exception as error:  # noqa: BLE001 - the codec is the application's
        # The work is done: to do it again would not make its result any better.
        log.warning("%r: the result cannot be kept: %s", one.job, error, extra=about(one.job, EventType.COMPLETED, one.seconds))
    return Kept(result, arguments.seconds("keep", one.keep))


def _fail(queue: Queue, ones: Sequence[Done]) -> list[Verdict]:
    waits = [_wait(one) for one in ones]
    return queue.fail_many(_jobs(ones), [_reason(one.outcome) for one in ones], retry_in=waits)


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
        log.exception(message, one.job, one.job.attempts, extra=about(one.job, EventType.FAILED, one.seconds))
        return None
    return seconds


def _reason(outcome: object) -> BaseException | str:
    said: object = outcome.reason if isinstance(outcome, Retry | Dead) else outcome
    return said if isinstance(said, BaseException | str) else text_of(said)


def _jobs(ones: Sequence[Done]) -> list[LeasedJob]:
    return [one.job for one in ones]


def _these(ones: Sequence[Done]) -> str:
    return repr(ones[0].job) if len(ones) == 1 else f"{len(ones)} jobs"


def _about(ones: Sequence[Done]) -> dict[str, Any] | None:
    return about(ones[0].job, seconds=ones[0].seconds) if len(ones) == 1 else None
