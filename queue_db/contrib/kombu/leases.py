"""What a consumer holds: it extends the leases of messages, keeps its queues from expiring, and deletes expired ones."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

from queue_db import LeasedJob, QueueDB, QueueDBError
from queue_db.contrib.kombu.topology import Topology

log = logging.getLogger("queue_db.kombu")

#: A lease is extended after this share of it, and a queue's expiry is delayed again after this share.
_SHARE = 1 / 3

#: Seconds between two looks for expired queues, and after an error.
_SWEEP_EVERY, _RETRY = 10.0, 1.0


class Leases:
    """The messages that one connection holds, by delivery tag. A thread extends their leases until the connection is closed.

    After a fork the child has none of them: they are its parent's.

    :param seconds: of a lease.
    :param redeclare: declares a queue again, with its bindings.
    """

    def __init__(self, db: QueueDB, topology: Topology, seconds: float, redeclare: Callable[[str, float], None]) -> None:
        self._db = db
        self._topology = topology
        self._redeclare = redeclare
        self.seconds = seconds
        self._jobs: dict[str, LeasedJob] = {}
        self._expiring: dict[str, float] = {}
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is the process of the connection."""
        return self._pid == os.getpid()

    def add(self, tag: str, job: LeasedJob) -> None:
        """Extend the lease of a message from now on."""
        with self._lock:
            self._jobs[tag] = job
        self.start()

    def take(self, tag: str) -> LeasedJob | None:
        """The message, whose lease is no longer extended; None: it is not held here, or its lease was lost."""
        with self._lock:
            return self._jobs.pop(tag, None) if self.is_here else None

    def take_all(self, tags: Iterable[str]) -> list[LeasedJob]:
        """:meth:`take` for several."""
        return [job for job in map(self.take, tags) if job is not None]

    def keep(self, queue: str, expires: float) -> None:
        """Keep a queue from expiring from now on."""
        with self._lock:
            self._expiring[queue] = expires
        self.start()
        self._changed.set()

    def leave(self, queue: str) -> None:
        """End :meth:`keep`."""
        with self._lock:
            self._expiring.pop(queue, None)

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None and not self._ended and self.is_here:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="queue_db.kombu leases", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """End the thread. What is still held returns to its queue when its lease ends."""
        self._ended = True
        self._changed.set()
        if self._thread is not None and self.is_here and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        now = time.monotonic()
        extend_at = now + self.seconds * _SHARE
        sweep_at = now + random.random() * _SWEEP_EVERY
        used_at: dict[str, float] = {}
        while not self._ended:
            now = time.monotonic()
            if now >= extend_at:
                extend_at = now + (self.seconds * _SHARE if self._try("extending leases", self._extend) else _RETRY)
            if now >= sweep_at:
                self._try("deleting expired queues", self._topology.sweep)
                sweep_at = now + _SWEEP_EVERY * (0.75 + 0.5 * random.random())
            with self._lock:
                expiring = dict(self._expiring)
            for queue in used_at.keys() - expiring.keys():
                del used_at[queue]
            for queue, expires in expiring.items():
                if now >= used_at.get(queue, 0.0):
                    done = self._try("using a queue", partial(self._use, queue, expires))
                    used_at[queue] = now + (expires * _SHARE if done else _RETRY)
            self._changed.wait(max(0.0, min([extend_at, sweep_at, *used_at.values()]) - time.monotonic()))
            self._changed.clear()

    def _try(self, what: str, change: Callable[[], object]) -> bool:
        """Whether it succeeded. If not, it is tried again: a lease lasts three times the pause between two extensions."""
        try:
            change()
        except QueueDBError as error:
            if not self._ended:
                log.warning("%s failed: %s", what, error)
            return False
        except Exception:  # the thread goes on: without it leases end
            log.exception("%s failed", what)
            return False
        return True

    def _use(self, queue: str, expires: float) -> None:
        self._topology.used(queue, expires)
        if not self._topology.exists(queue):
            # It expired although it has a consumer: the database was away for long, or this process stood still.
            log.warning("queue %r had expired, so it is declared again; messages published meanwhile are lost", queue)
            self._redeclare(queue, expires)

    def _extend(self) -> None:
        by_queue: dict[str, list[tuple[str, LeasedJob]]] = defaultdict(list)
        with self._lock:
            for tag, job in self._jobs.items():
                by_queue[job.queue].append((tag, job))
        for queue, held in by_queue.items():
            verdicts = self._db.queue(queue).extend_many([job for _, job in held], self.seconds)
            for (tag, job), verdict in zip(held, verdicts, strict=True):
                if not verdict and self.take(tag) is not None:
                    log.warning("the lease of message %d in %r was lost: another consumer gets it", job.id, queue)
