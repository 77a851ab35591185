"""Waits for messages and claims them, in a thread beside the event loop."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from queue_db import Arrivals, LeasedJob, QueueDB, StorageError
from queue_db.contrib.taskiq.held import Held
from queue_db.contrib.taskiq.messages import message_of
from queue_db.contrib.taskiq.outages import Outage, pause

log = logging.getLogger("queue_db.taskiq")

#: The longest wait for an arrival, seconds. Notifications and polls end it; a missed one costs this.
_WAIT = 3600.0

#: Seconds for which :meth:`Consumer.stop` waits for a claim that runs.
_CLAIM = 2.0

#: Seconds until the next claim when an arrival was told and nothing was won: another worker has it.
_MISSED = 0.05

Message = tuple[str, bytes]


class Consumer:
    """The messages for one :meth:`~queue_db.contrib.taskiq.QueueBroker.listen`.

    :param opener: opens the database for threads; in the thread, and again while the server does not answer.
    :param queues: names; in turn, each is asked first.
    :param lease: seconds.
    :param poll: the longest pause between two looks, seconds.
    :param batch: most messages of one claim.
    """

    def __init__(self, opener: Callable[[], QueueDB], queues: Sequence[str], lease: float, poll: float, batch: int) -> None:
        self._opener, self._queues, self._lease, self._poll, self._batch = opener, deque(queues), lease, poll, batch
        self._outage = Outage()
        self._buffer: deque[Message] = deque()
        self._demand: Future[list[Message]] | None = None
        self._asked: asyncio.Future[list[Message]] | None = None
        self._demands: SimpleQueue[Future[list[Message]] | None] = SimpleQueue()
        self._stopped, self._closed = threading.Event(), False
        self._db: QueueDB | None = None
        self._arrivals: Arrivals | None = None
        self._held: Held | None = None
        self._thread = threading.Thread(target=self._run, name="queue_db.taskiq claims", daemon=True)
        self._thread.start()

    @property
    def held(self) -> Held:
        """What was claimed: there is a first message."""
        assert self._held is not None  # noqa: S101 - a message is claimed after it is made
        return self._held

    async def next(self) -> Message:
        """The tag and the text of the next message. If the task that waits is cancelled, what was claimed is not lost.

        :raises ConfigurationError: the tables are missing, or there is no driver for threads.
        """
        while not self._buffer:
            if self._asked is None:
                demand: Future[list[Message]] = Future()
                self._demand = demand
                demand.set_running_or_notify_cancel()
                self._demands.put(demand)
                self._asked = asyncio.wrap_future(demand)
            await asyncio.shield(self._asked)
            asked, self._asked = self._asked, None
            self._buffer.extend(asked.result())
        return self._buffer.popleft()

    async def stop(self) -> None:
        """Claim no more, and give back what was claimed and not handed over."""
        self._stopped.set()
        if self._arrivals is not None:
            self._arrivals.wake()
        if self._asked is not None and self._demand is not None:
            await asyncio.wait({self._asked}, timeout=_CLAIM)
            self._demand.add_done_callback(self._return)  # now, or when a claim ends that takes long
        self._demands.put(None)
        while self._buffer:
            self.held.answer(self._buffer.popleft()[0], "release")

    def close(self) -> None:
        """Give back what is still held, also what runs. This blocks for some seconds at most."""
        self._closed = True
        self._stopped.set()
        self._demands.put(None)
        if self._arrivals is not None:
            self._arrivals.wake()
        if self._held is not None:
            self._held.close()
        self._thread.join(_CLAIM)
        self._end()

    def _return(self, demand: Future[list[Message]]) -> None:
        """Give back what a claim has won that ended with the stop, or after it."""
        if (error := demand.exception()) is not None:
            log.warning("a claim failed while the worker stopped: %s", error)
            return
        for tag, _ in demand.result():
            self.held.answer(tag, "release")

    def _end(self) -> None:
        for opened in (self._arrivals, self._held, self._db):
            if opened is not None:
                opened.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (demand := self._demands.get()) is not None:
            try:
                demand.set_result(self._fetch())
            except BaseException as error:  # noqa: BLE001 - it is raised where the message is awaited
                demand.set_exception(error)
        if self._closed:
            self._end()  # also what was opened after close() had looked

    def _fetch(self) -> list[Message]:
        """Wait until there are messages. None, if the worker stops."""
        tries = 0
        while not self._stopped.is_set():
            try:
                arrivals = self._waiting()
                if self._stopped.is_set():
                    break  # to open takes long where the server is slow
                if found := self._claim():
                    return found
                if arrivals.wait(self._queues, _WAIT):
                    if found := self._claim():
                        return found
                    self._stopped.wait(_MISSED * random.uniform(0.5, 1.5))
                self._outage.worked()
                tries = 0
            except StorageError as error:
                self._outage.failed("claiming", error)
                tries += 1
                self._stopped.wait(pause(tries))
        return []

    def _waiting(self) -> Arrivals:
        if self._arrivals is None:
            self._arrivals = self._opened().arrivals(poll=self._poll)
        return self._arrivals

    def _opened(self) -> QueueDB:
        if self._db is None:
            self._db = self._opener()
            self._held = Held(self._db, self._lease, self._outage)
        return self._db

    def _claim(self) -> list[Message]:
        db = self._opened()
        for _ in range(len(self._queues)):
            queue = db.queue(self._queues[0])
            self._queues.rotate(-1)
            if jobs := queue.claim(self._batch, lease=self._lease):
                self._outage.worked()
                if found := self._read(jobs):
                    return found
        return []

    def _read(self, jobs: Sequence[LeasedJob]) -> list[Message]:
        found = []
        for job in jobs:
            try:
                data = message_of(job)
            except ValueError as error:
                self._bury(job, f"no message of Taskiq: {error}")
            else:
                found.append((self.held.add(job), data))
        return found

    @staticmethod
    def _bury(job: LeasedJob, reason: str) -> None:
        try:
            job.bury(reason)  # which logs a warning
        except StorageError as error:  # the messages beside it are handed over; it comes again
            log.warning("job %d in %r could not be buried: %s", job.id, job.queue, error)
