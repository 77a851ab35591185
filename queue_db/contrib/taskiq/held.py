"""What a worker holds: a thread settles the messages that are acknowledged or given back.

It is a thread, like that which extends their leases, so that a task that blocks the event loop does not end them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Literal

from queue_db import LeasedJob, QueueDB, Verdict
from queue_db.contrib.taskiq.outages import Outage, pause
from queue_db.held_jobs import HeldJobs

log = logging.getLogger("queue_db.taskiq")

#: Seconds for which an acknowledgement is tried again while the database does not answer. Then the message comes again.
OUTAGE = 600.0

#: The longest pause before an acknowledgement is tried again, as a share of the lease.
_SHARE = 1 / 3

#: Seconds for which :meth:`Held.close` waits for its thread: half of what Taskiq gives a broker to shut down.
_LAST = 2.5

Verb = Literal["complete", "release", "fail"]


@dataclass
class _Answer:
    """How a message is settled: acknowledged (``complete``), given back (``release``), or never answered (``fail``)."""

    tag: str
    verb: Verb
    until: float
    done: Future[None] = field(default_factory=Future)


class Held:
    """The leased messages of one worker.

    :param lease: seconds.
    """

    def __init__(self, db: QueueDB, lease: float, outage: Outage) -> None:
        self._db, self._outage = db, outage
        self._jobs = HeldJobs(lease, outage=outage)
        # Its put() may be called anywhere, also when garbage is collected within this thread. All else belongs to the thread.
        self._inbox: SimpleQueue[_Answer | None] = SimpleQueue()
        self._answers: list[_Answer] = []
        self._failed = 0
        self._open, self._closed = True, False
        self._thread = threading.Thread(target=self._run, name="queue_db.taskiq answers", daemon=True)
        self._thread.start()

    def add(self, job: LeasedJob) -> str:
        """Extend the lease of a message from now on; return its tag."""
        return self._jobs.add(job)

    def answer(self, tag: str, verb: Verb) -> Future[None]:
        """Settle a message. The future is done when the database has it, or when it is given up, which is logged."""
        answer = _Answer(tag, verb, time.monotonic() + OUTAGE)
        answer.done.set_running_or_notify_cancel()  # who waits may be cancelled: the message is settled nevertheless
        self._inbox.put(answer)
        if self._closed:
            self._refuse()
        return answer.done

    def abandoned(self, tag: str) -> None:
        """Nobody can acknowledge the message any more: its attempt has failed."""
        self.answer(tag, "fail")

    def close(self) -> None:
        """Give back what is held, and end the thread. What the database cannot be told returns when its lease ends."""
        self._inbox.put(None)
        self._thread.join(_LAST)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        settle_at = 0.0
        while self._open:
            self._take(settle_at if self._answers else None)
            if self._answers and time.monotonic() >= settle_at:
                settle_at = 0.0 if self._settles() else time.monotonic() + min(pause(self._failed), self._jobs.lease * _SHARE)
        for tag in set(self._jobs.tags()) - {one.tag for one in self._answers}:
            self._answers.append(_Answer(tag, "release", 0.0))
        self._settles()
        for one in self._answers:
            self._give_up(one)
        self._closed = True
        self._refuse()
        self._jobs.close()

    def _refuse(self) -> None:
        """Answers that come after the end: what they are about was given back."""
        with suppress(Empty):
            while True:
                if (item := self._inbox.get_nowait()) is not None:
                    item.done.set_result(None)

    def _take(self, until: float | None) -> None:
        """Take what is in the inbox; wait for it, at most until then."""
        with suppress(Empty):
            self._sort(self._inbox.get(timeout=None if until is None else max(0.001, until - time.monotonic())))
            while True:
                self._sort(self._inbox.get_nowait())

    def _sort(self, item: _Answer | None) -> None:
        if item is None:
            self._open = False
        elif self._jobs.get(item.tag) is not None:
            self._answers.append(item)
        else:  # its lease was lost, which was logged
            item.done.set_result(None)

    def _settles(self) -> bool:
        """Whether all answers were settled; if not, that is logged."""
        try:
            self._settle()
        except Exception as error:  # noqa: BLE001 - the thread goes on: without it nothing is settled
            self._failed += 1
            self._outage.failed("settling", error)
            return False
        self._outage.worked()
        self._failed = 0
        return True

    def _settle(self) -> None:
        groups: dict[tuple[str, Verb], list[tuple[_Answer, LeasedJob]]] = defaultdict(list)
        grouped: set[str] = set()
        for one in self._answers:
            job = self._jobs.get(one.tag)
            if job is None:  # lost meanwhile, or answered twice
                self._finish(one)
            elif one.tag in grouped:  # the first answer counts; this one is finished with the next round
                continue
            elif self._open and time.monotonic() > one.until:
                self._give_up(one)
            else:
                grouped.add(one.tag)
                groups[job.queue, one.verb].append((one, job))
        for (queue, verb), answers in groups.items():
            verdicts = self._settled(queue, verb, [job for _, job in answers])
            for (one, job), verdict in zip(answers, verdicts, strict=True):
                if not verdict:
                    log.warning("%s was answered after its lease was lost", self._name(job))
                self._finish(one)

    def _settled(self, queue: str, verb: Verb, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        to = self._db.queue(queue)
        if verb == "fail":
            for job in jobs:
                log.warning("%s ended without an acknowledgement, so it is tried again", self._name(job))
            return to.fail_many(jobs, "the worker has dropped the message without an acknowledgement")
        return to.complete_many(jobs) if verb == "complete" else to.release_many(jobs)

    def _give_up(self, answer: _Answer) -> None:
        if (job := self._jobs.get(answer.tag)) is not None:
            log.warning("%s could not be settled, and comes again when its lease ends", self._name(job))
        self._finish(answer)

    def _finish(self, answer: _Answer) -> None:
        self._jobs.take(answer.tag)
        self._answers = [one for one in self._answers if one is not answer]
        answer.done.set_result(None)

    @staticmethod
    def _name(job: LeasedJob) -> str:
        return f"message {job.id} ({job.kind}) in {job.queue!r}"
