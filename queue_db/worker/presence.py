"""A worker tells that it is there; and gives back what a dead process of the same machine had in hand."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from queue_db.db import QueueDB, names_process, process_name
from queue_db.errors import QueueDBError
from queue_db.store import presence
from queue_db.worker.maintenance import PeriodicTask

log = logging.getLogger("queue_db.worker")

#: Seconds between two words of a worker.
TELL_EVERY = 5.0

# Seconds after which a worker that says nothing is forgotten.
_FORGET_AFTER = 3600.0

_NUMBERS = itertools.count(1)


def place() -> str:
    """Where a process id means one process: the machine, since its start, as seen from here.

    Containers may share a host's name; they do not share its process ids. Empty where that cannot be told.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()[:50]}/{boot[:8]}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 - a link to nowhere
    except OSError:
        return ""


class About(NamedTuple):
    """What a worker's row says of it."""

    state: str
    in_hand: int
    counters: dict[str, int]
    #: Slots of handlers that have not come back although their jobs were taken from them.
    stuck: int = 0


def own_name(db: QueueDB, number: int) -> str:
    """A name for one worker object: no other has it, in this process or in another.

    :param number: tells it from the others of this process.
    """
    unique = "" if db.worker == process_name() else f"{process_name().rpartition('-')[2]}."
    return f"{db.worker[:80]}#{unique}{number}"


class Presence:
    """One worker's row.

    :param about: what it says.
    """

    def __init__(
        self, db: QueueDB, queues: Mapping[str, int], about: Callable[[], About | tuple[str, int, dict[str, int]]]
    ) -> None:
        self._db = db
        self._queues = json.dumps(dict(queues))
        self._about = about
        self._name = own_name(db, next(_NUMBERS))
        self._place = place()

    def tell(self) -> float:
        """A periodic task: say what it does."""
        state, in_hand, counters, stuck = About(*self._about())
        values = {
            "host": self._place or socket.gethostname()[:100],
            "pid": os.getpid(),
            "queues": self._queues,
            "state": state,
            "in_hand": in_hand,
            "stuck": stuck,
            "counters": json.dumps(counters),
        }
        work = partial(presence.tell, store=self._db.store, name=self._name, values=values)
        try:
            self._db.database.run(work, name="presence", attempts=1)
        except QueueDBError as error:
            log.debug("could not tell that this worker is there: %s", error)
        return TELL_EVERY * random.uniform(0.75, 1.25)

    def leave(self) -> None:
        """It goes."""
        with suppress(QueueDBError):
            self._db.database.run(partial(presence.forget, store=self._db.store, name=self._name), name="presence", attempts=1)

    def look_for_dead(self) -> int:
        """Give back what dead processes of this machine had in hand; return how many jobs."""
        back = 0
        with suppress(QueueDBError):
            self._db.database.run(
                partial(presence.forget_unseen, store=self._db.store, age=round(_FORGET_AFTER * 1e6)), name="presence", attempts=1
            )
            rows = self._db.database.run(
                partial(presence.everybody, store=self._db.store, host=self._place), name="presence", write=False, attempts=1
            )
            for row in rows:
                worker = row.name.rpartition("#")[0]
                # Other processes may have the same name if somebody chose it.
                if not self._place or not names_process(worker, row.pid) or _alive(worker, row.pid):
                    continue
                count = self._db.rescue(worker)
                self._db.database.run(partial(presence.forget, store=self._db.store, name=row.name), name="presence")
                level = logging.WARNING if count else logging.DEBUG  # its supervisor may have been faster
                log.log(level, "process %d of this machine is dead: gave back its %d jobs", row.pid, count)
                back += count
        return back


def seen_here(db: QueueDB, within: float) -> list[float]:
    """How long ago the workers of this machine or container have reported, seconds, if less than ``within`` and they live.

    :raises StorageError: as every verb does.
    """
    host = place() or socket.gethostname()[:100]
    rows = db.database.run(partial(presence.everybody, store=db.store, host=host), name="workers", write=False)
    silent = [max(0.0, (row.now - row.seen_at) / 1_000_000) for row in rows if _alive(row.name.rpartition("#")[0], row.pid)]
    return [seconds for seconds in silent if seconds <= within]


def watcher(own: Presence) -> PeriodicTask:
    """Looks for the dead now and then."""

    def look() -> float:
        own.look_for_dead()
        return TELL_EVERY * random.uniform(2.0, 4.0)

    return look


def _alive(worker: str, pid: int) -> bool:
    if pid == os.getpid():
        return worker == process_name()  # or else it had the number that we have now
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
