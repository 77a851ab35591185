"""Reports the results of handlers: many jobs in one statement, by one thread with one connection.

Beside the claimer, which does not complete jobs with its claims (:meth:`Queue.exchange`): one completion for the jobs of several
claims costs as little as a completion in each claim, and the claims need not wait for it. benchmarks/README.md has the figures.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy.exc import DataError, IntegrityError

from queue_db.concurrency.pauses import Pause
from queue_db.errors import StorageError
from queue_db.model import Verdict
from queue_db.worker.logs import about
from queue_db.worker.outages import Activity
from queue_db.worker.settling import Done, Ticket, Verb, plan

log = logging.getLogger("queue_db.worker")

#: Seconds for which results are collected before they are reported, and the most in one statement. A worker that dies within this
#: time leaves finished jobs that run once more.
WITHIN = 0.002
AT_MOST = 1000

#: For how long a result is tried to be reported while the database does not answer, seconds.
SETTLE_FOR = 600.0


Settled = Callable[[Done, Verdict | None], None]
"""Called with each result and its verdict; None: it could not be reported, and the job comes back when its lease expires."""


class Acknowledger:
    """Settles the jobs whose handlers have ended.

    :param retry: seconds between tries while the database does not answer: first, longest.
    :param outage: logs failures.
    """

    def __init__(self, settled: Settled, retry: tuple[float, float], outage: Activity | None = None) -> None:
        self._outage = outage or Activity()
        self._settled = settled
        self._retry = retry
        self._results: SimpleQueue[Done | None] = SimpleQueue()
        self._expected: dict[Ticket, None] = {}
        self._closing = threading.Event()

    def expect(self) -> Ticket:
        """Announce a result: :meth:`put` or :meth:`withdraw` follows."""
        ticket = object()
        self._expected[ticket] = None
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """The announced result will not be put."""
        self._expected.pop(ticket, None)

    def put(self, done: Done) -> None:
        """Report this result soon."""
        self._results.put(done)

    def __len__(self) -> int:
        """How many results are announced or not reported yet."""
        return len(self._expected)

    def run(self) -> None:
        """Report until :meth:`close`."""
        closed = False
        while not closed:
            first = self._results.get()
            if first is None:
                return
            if self._results.qsize() < AT_MOST:
                # Not a wait for the next result: to wake up for each costs more than to report it.
                time.sleep(WITHIN)
            batch = [first]
            while len(batch) < AT_MOST and not closed:
                try:
                    one = self._results.get_nowait()
                except Empty:
                    break
                if one is None:
                    closed = True
                else:
                    batch.append(one)
            for verb, ones in plan(batch):
                self._settle_each(verb, ones)

    def close(self) -> None:
        """Report the results that were put, without retries, and end :meth:`run`."""
        self._closing.set()
        self._results.put(None)

    def _settle_each(self, verb: Verb, ones: Sequence[Done]) -> None:
        """Settle these jobs together, and one by one if that raises."""
        try:
            self._settle(verb, ones)
        except Exception:
            rest = [one for one in ones if one.ticket in self._expected]
            if len(ones) > 1:
                for one in rest:
                    self._settle_each(verb, [one])
                return
            # An unexpected error: the job comes back when its lease expires, and the worker goes on.
            log.exception("%s could not be settled and comes back when its lease expires", _text(ones), extra=_about(ones))
            for one in rest:
                self._report(one, None)

    def _settle(self, verb: Verb, ones: Sequence[Done]) -> None:
        """Settle these jobs, with retries while the database does not answer. The fence decides whether the result still counts.

        :raises StorageError: the database refuses what one of several jobs leaves, for example a row that a removal inserts.
        """
        retry = Pause(*self._retry)
        until = time.monotonic() + SETTLE_FOR
        while True:
            try:
                verdicts = verb(ones)
            except StorageError as error:
                refused = isinstance(error.__cause__, IntegrityError | DataError)
                if refused and len(ones) > 1:
                    raise
                wait = retry.next()
                # What is refused now is refused later too, and the results behind it must not wait for that.
                if refused or time.monotonic() + wait > until or self._closing.wait(wait):
                    message = "%s could not be settled and comes back when its lease expires: %s"
                    log.error(message, _text(ones), error, extra=_about(ones))  # noqa: TRY400 - each try was a warning
                    self._outage.ended()
                    for one in ones:
                        self._report(one, None)
                    return
                self._outage.failed(f"settling {_text(ones)}", error, wait, _about(ones))
            else:
                self._outage.worked()
                for one, verdict in zip(ones, verdicts, strict=True):
                    self._report(one, verdict)
                return

    def _report(self, one: Done, verdict: Verdict | None) -> None:
        try:
            self._settled(one, verdict)
        finally:
            self._expected.pop(one.ticket, None)


def _text(ones: Sequence[Done]) -> str:
    return repr(ones[0].job) if len(ones) == 1 else f"{len(ones)} jobs"


def _about(ones: Sequence[Done]) -> dict[str, Any] | None:
    return about(ones[0].job, seconds=ones[0].seconds) if len(ones) == 1 else None
