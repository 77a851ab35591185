"""What a worker holds: a thread extends the leases of messages, and settles those that are acknowledged or given back.

It is a thread, so that leases last while a task blocks the event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Literal

from queue_db import LeasedJob, QueueDB, StorageError, Verdict
from queue_db.contrib.taskiq.outages import Outage, pause

log = logging.getLogger("queue_db.taskiq")

#: Seconds for which an acknowledgement is tried again while the database does not answer. Then the message comes again.
OUTAGE = 600.0

#: A lease is extended after this share of it.
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
        self._db, self._lease, self._outage = db, lease, outage
        # Its put() may be called anywhere, also when garbage is collected within this thread. All else belongs to the thread.
        self._inbox: SimpleQueue[tuple[str, LeasedJob] | _Answer | None] = SimpleQueue()
        self._jobs: dict[str, LeasedJob] = {}
        self._answers: list[_Answer] = []
        self._failed = 0
        self._open, self._closed = True, False
        self._thread = threading.Thread(target=self._run, name="queue_db.taskiq leases", daemon=True)
        self._thread.start()

    def add(self, job: LeasedJob) -> str:
        """Extend the lease of a message from now on; return its tag."""
        tag = job.fence
        self._inbox.put((tag, job))
        return tag

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
        settle_at, extend_at = 0.0, time.monotonic() + self._lease * _SHARE
        while self._open:
            self._take(min(extend_at, settle_at) if self._answers else extend_at)
            if time.monotonic() >= extend_at:
                extended = self._tried("extending leases", self._extend)
                extend_at = time.monotonic() + (self._lease * _SHARE if extended else self._pause())
            if self._answers and time.monotonic() >= settle_at:
                settle_at = 0.0 if self._tried("settling", self._settle) else time.monotonic() + self._pause()
        for tag in self._jobs.keys() - {one.tag for one in self._answers}:
            self._answers.append(_Answer(tag, "release", 0.0))
        self._tried("settling", self._settle)
        for one in self._answers:
            self._give_up(one)
        self._closed = True
        self._refuse()

    def _refuse(self) -> None:
        """Answers that come after the end: what they are about was given back."""
        with suppress(Empty):
            while True:
                if isinstance(item := self._inbox.get_nowait(), _Answer):
                    item.done.set_result(None)

    def _take(self, until: float) -> None:
        """Take what is in the inbox; wait for it until then."""
        with suppress(Empty):
            self._sort(self._inbox.get(timeout=max(0.001, until - time.monotonic())))
            while True:
                self._sort(self._inbox.get_nowait())

    def _sort(self, item: tuple[str, LeasedJob] | _Answer | None) -> None:
        if item is None:
            self._open = False
        elif isinstance(item, tuple):
            self._jobs[item[0]] = item[1]
        elif item.tag in self._jobs:
            self._answers.append(item)
        else:  # its lease was lost, which was logged
            item.done.set_result(None)

    def _pause(self) -> float:
        return min(pause(self._failed), self._lease * _SHARE)

    def _tried(self, what: str, change: Callable[[], None]) -> bool:
        try:
            change()
        except StorageError as error:
            self._outage.began(error)
        except Exception:  # the thread goes on: without it all leases end
            log.exception("%s failed", what)
        else:
            self._outage.ended()
            self._failed = 0
            return True
        self._failed += 1
        return False

    def _extend(self) -> None:
        by_queue: dict[str, list[str]] = defaultdict(list)
        for tag, job in self._jobs.items():
            by_queue[job.queue].append(tag)
        for queue, tags in by_queue.items():
            verdicts = self._db.queue(queue).extend_many([self._jobs[tag] for tag in tags], self._lease)
            for tag, verdict in zip(tags, verdicts, strict=True):
                if not verdict:
                    log.warning("the lease of %s was lost: another worker gets it", self._name(self._jobs.pop(tag)))

    def _settle(self) -> None:
        groups: dict[tuple[str, Verb], list[_Answer]] = defaultdict(list)
        grouped: set[str] = set()
        for one in self._answers:
            if one.tag not in self._jobs:  # lost meanwhile, or answered twice
                self._finish(one)
            elif one.tag in grouped:  # the first answer counts; this one is finished with the next round
                continue
            elif self._open and time.monotonic() > one.until:
                self._give_up(one)
            else:
                grouped.add(one.tag)
                groups[self._jobs[one.tag].queue, one.verb].append(one)
        for (queue, verb), answers in groups.items():
            jobs = [self._jobs[one.tag] for one in answers]
            for one, verdict in zip(answers, self._settled(queue, verb, jobs), strict=True):
                if not verdict:
                    log.warning("%s was answered after its lease was lost", self._name(self._jobs[one.tag]))
                self._finish(one)

    def _settled(self, queue: str, verb: Verb, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        to = self._db.queue(queue)
        if verb == "fail":
            for job in jobs:
                log.warning("%s ended without an acknowledgement, so it is tried again", self._name(job))
            return to.fail_many(jobs, "the worker has dropped the message without an acknowledgement")
        return to.complete_many(jobs) if verb == "complete" else to.release_many(jobs)

    def _give_up(self, answer: _Answer) -> None:
        if answer.tag in self._jobs:
            log.warning("%s could not be settled, and comes again when its lease ends", self._name(self._jobs[answer.tag]))
        self._finish(answer)

    def _finish(self, answer: _Answer) -> None:
        self._jobs.pop(answer.tag, None)
        self._answers = [one for one in self._answers if one is not answer]
        answer.done.set_result(None)

    @staticmethod
    def _name(job: LeasedJob) -> str:
        return f"message {job.id} ({job.kind}) in {job.queue!r}"
