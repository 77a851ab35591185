"""The row of a worker in the table ``workers``, and the rescue of the jobs and spans of dead processes of this machine."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from queue_db.concurrency.pauses import Pause
from queue_db.core import ONCE, names_process, process_name
from queue_db.database.transaction import Run
from queue_db.db import QueueDB
from queue_db.errors import QueueDBError, TransientStorageError
from queue_db.store import worker_registry
from queue_db.worker.logs import Activity

log = logging.getLogger("queue_db.worker")

#: Seconds between two updates of a worker's row.
REPORT_EVERY = 5.0

#: Seconds between two searches for dead processes of this machine.
RESCUE_EVERY = 15.0

# A row without an update for this many seconds is deleted.
_DELETE_AFTER = 3600.0

_NUMBERS = itertools.count(1)


def host_identity() -> str:
    """A name for the scope in which a process id is unique: the machine, its boot, and the namespace of process ids.

    The host name is not enough, since containers may have the same host name. Empty if the system does not tell boot or namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()[:50]}/{boot[:8]}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 - a dangling link
    except OSError:
        return ""


class Status(NamedTuple):
    """What a worker's row shows."""

    state: str
    in_hand: int
    counters: dict[str, int]
    #: Slots of handlers that have not returned although their jobs were abandoned.
    stuck: int = 0


def own_name(db: QueueDB) -> str:
    """A new name for a worker's row, or for the owner of its shares. No other process uses it."""
    unique = "" if db.worker == process_name() else f"{process_name().rpartition('-')[2]}."
    return f"{db.worker[:80]}#{unique}{next(_NUMBERS)}"


class Registration:
    """The row of one worker.

    :param status: returns what the row shows.
    :param outage: logs failures.
    :param retry: the first and the longest pause between tries until the row is written, seconds.
    """

    def __init__(
        self,
        db: QueueDB,
        queues: Mapping[str, int],
        status: Callable[[], Status | tuple[str, int, dict[str, int]]],
        outage: Activity | None = None,
        retry: tuple[float, float] = (0.1, 3.0),
    ) -> None:
        self._db = db
        self._outage = outage or Activity()
        self._retry = Pause(*retry)
        self._refused = False
        #: Set when the row is written, or cannot be written. The worker claims only afterwards, because other workers find the
        #: jobs of a killed worker by its row. Without a row these jobs wait until their leases end.
        self.decided = threading.Event()
        self._core = db.core
        self._queues = json.dumps(dict(queues))
        self._status = status
        self._name = own_name(db)
        self._left = False
        self._host = host_identity()

    def report(self) -> float:
        """A periodic task: write the row."""
        state, in_hand, counters, stuck = Status(*self._status())
        values = {
            "host": self._host or socket.gethostname()[:100],
            "pid": os.getpid(),
            "queues": self._queues,
            "state": state,
            "in_hand": in_hand,
            "stuck": stuck,
            "counters": json.dumps(counters),
        }
        try:
            self._core.run(ONCE.named("worker_registry.heartbeat"), worker_registry.heartbeat, self._name, values)
        except TransientStorageError as error:
            if not self.decided.is_set():
                wait = self._retry.next()
                self._outage.failed("registering this worker", error, wait)
                self._delete_if_left()
                return wait
            self._outage.failed_rarely("writing the row of this worker", error)
        except QueueDBError as error:
            self._refuse("this worker is not registered: if it is killed, its jobs and spans wait until their leases end", error)
        else:
            self._outage.worked()
        self._delete_if_left()
        self.decided.set()
        return REPORT_EVERY * random.uniform(0.75, 1.25)

    def _delete_if_left(self) -> None:
        """Delete the row if the worker has ended: a report that was under way may have written it again."""
        if self._left:
            self.deregister()

    def _refuse(self, what: str, error: QueueDBError) -> None:
        """Log and count an error that a retry does not cure, the first time only. An error of a closed database is ignored."""
        if self._refused or self._core.database.closed:
            return
        self._refused = True
        counters = self._core.database.counters
        with self._core.database.counting:
            counters.unregistered += 1
        table = self._core.store.tables.workers.fullname
        fix = f"if a right is missing: GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO the user of this worker"
        log.warning("%s: %s; %s", what, error, fix, extra={"worker": self._name, "outcome": "unregistered"})

    def deregister(self) -> None:
        """Delete the row. A report that is under way may write the row again; that report then deletes it."""
        self._left = True
        with suppress(QueueDBError):
            self._core.run(ONCE.named("worker_registry.deregister"), worker_registry.deregister, self._name)

    def rescue_dead(self) -> int:
        """Return the jobs of dead processes of this machine to their queues, and release their spans of shared cursors.

        Returns the number of jobs and spans.
        """
        rescued = 0
        try:
            rows = self._core.run(
                Run("worker_registry.all_workers", write=False, attempts=1), worker_registry.all_workers, self._host
            )
            for row in rows:
                worker = row.name.rpartition("#")[0]
                # A worker name that the application has chosen may belong to several processes, so its jobs are not rescued.
                if not self._host or not names_process(worker, row.pid) or is_alive(worker, row.pid):
                    continue
                rescued += rescue(self._db, worker)
                self._core.write("worker_registry.deregister", worker_registry.deregister, row.name)
            # Last: after hours without a worker, the first worker of a machine must find the rows of the workers before it.
            self._core.run(
                ONCE.named("worker_registry.deregister_unseen"), worker_registry.deregister_unseen, round(_DELETE_AFTER * 1e6)
            )
        except TransientStorageError as error:
            self._outage.failed_rarely("returning the jobs of dead processes of this machine", error)
        except QueueDBError as error:
            self._refuse("jobs of killed processes of this machine wait until their leases end", error)
        return rescued


def rescue(db: QueueDB, worker: str) -> int:
    """Return the jobs of a dead process to their queues, release its spans, log that, and return their number."""
    count = db.rescue(worker)
    level = logging.WARNING if count else logging.DEBUG  # another process may have returned them already
    log.log(level, "the process of worker %s is dead: returned its %d jobs and spans", worker, count)
    return count


def is_alive(worker: str, pid: int) -> bool:
    """Whether a process with this id runs on this machine. If the id is our own, only our worker name counts as alive."""
    if pid == os.getpid():
        return worker == process_name()  # otherwise an earlier process had our process id
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
