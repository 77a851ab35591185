"""Keeps the queues of a consumer from expiring, and deletes those that have expired.

Each has a thread of its own: to delete a queue with many messages takes long, and may lock what says that another one is used.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from functools import partial

from queue_db.contrib.kombu.rounds import RETRY, Rounds
from queue_db.contrib.kombu.topology import Topology

log = logging.getLogger("queue_db.kombu")

#: The expiry of a queue is delayed again after this share of its time.
_SHARE = 1 / 3

#: Seconds between two looks for expired queues.
_SWEEP_EVERY = 10.0

#: Seconds until a thread without a queue looks again. It is woken earlier.
_IDLE = 3600.0


class Upkeep:
    """The queues that one connection consumes and that expire, and the sweeps.

    :param redeclare: declares a queue again, with its bindings.
    """

    def __init__(self, topology: Topology, redeclare: Callable[[str, float], None]) -> None:
        self._topology = topology
        self._redeclare = redeclare
        self._expiring: dict[str, float] = {}
        self._used_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._uses = Rounds("queues", self._use_all)
        self._sweeps = Rounds("sweeps", self._sweep, first=random.random() * _SWEEP_EVERY)

    @property
    def is_here(self) -> bool:
        """Whether this is the process of the connection."""
        return self._uses.is_here

    def keep(self, queue: str, expires: float) -> None:
        """Keep a queue from expiring from now on."""
        with self._lock:
            self._expiring[queue] = expires
            self._used_at.pop(queue, None)
        self._uses.start()
        self._uses.hurry()

    def leave(self, queue: str) -> None:
        """End :meth:`keep`."""
        with self._lock:
            self._expiring.pop(queue, None)

    def start_sweeps(self) -> None:
        """Look for expired queues from now on."""
        self._sweeps.start()

    def close(self) -> None:
        """End the threads."""
        self._uses.close()
        self._sweeps.close()

    # --- the threads ------------------------------------------------------------------------------------------------

    def _use_all(self) -> float:
        now = time.monotonic()
        with self._lock:
            expiring = dict(self._expiring)
        self._used_at = {queue: at for queue, at in self._used_at.items() if queue in expiring}
        for queue, expires in expiring.items():
            if now >= self._used_at.get(queue, 0.0):
                done = self._uses.succeeds("using a queue", partial(self._use, queue, expires))
                self._used_at[queue] = now + (expires * _SHARE if done else RETRY)
        return min([now + _IDLE, *self._used_at.values()]) - time.monotonic()

    def _use(self, queue: str, expires: float) -> None:
        self._topology.used(queue, expires)
        if not self._topology.exists(queue):
            # It expired although it has a consumer: the database was away for long, or this process stood still.
            level = logging.INFO if queue in self._topology.temporary else logging.WARNING
            log.log(level, "queue %r had expired, so it is declared again; messages published meanwhile are lost", queue)
            self._redeclare(queue, expires)

    def _sweep(self) -> float:
        self._sweeps.succeeds("deleting expired queues", self._topology.sweep)
        return _SWEEP_EVERY * (0.75 + 0.5 * random.random())
