"""What must be done now and then beside the jobs, on the threads keeper, scheduler and housekeeper. The heartbeat has its own."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.worker.outages import Activity
from queue_db.worker.pauses import Pause

log = logging.getLogger("queue_db.worker")

Chore = Callable[[], float]
"""Does its work and returns how many seconds to wait until it is to be done again."""

# Seconds until a chore is done again that has failed in a way that nobody foresaw: the others must go on.
_AFTER_A_MISTAKE = 5.0

#: Seconds between two looks at the schedules: where there are some, and where there are none.
LOOK_AT_SCHEDULES = (1.0, 5.0)

#: Seconds between two deletions of what has expired.
FORGET_EVERY = 60.0

#: Seconds between two sweeps under a removal that marks, and the most jobs that one deletes.
SWEEP_EVERY = 5.0
SWEEP_LIMIT = 10_000

#: The most dead jobs of a queue deleted at a time, and seconds until it goes on if there are more, so that other chores get a turn.
PURGE_LIMIT = 1000
PURGE_AGAIN = 0.1


def keep(chores: Sequence[tuple[float, Chore]], ended: threading.Event) -> None:
    """Do each chore, the first time after so many seconds, until ``ended``."""
    now = time.monotonic()
    due = {chore: now + first for first, chore in chores}
    while due:
        chore = min(due, key=due.__getitem__)
        if ended.wait(max(0.0, due[chore] - time.monotonic())):
            return
        try:
            wait = chore()
        except Exception:
            log.exception("%r failed", chore)
            wait = _AFTER_A_MISTAKE
        due[chore] = time.monotonic() + wait


def scheduler(db: QueueDB, trouble: tuple[float, float], outage: Activity) -> Chore:
    """Enqueues what schedules say."""
    pause = Pause(*trouble)

    def tick() -> float:
        try:
            enqueued, wait = db.schedules.tick()
        except Exception as error:  # noqa: BLE001 - logged there, with the traceback of what is not foreseen
            seconds = pause.next() if isinstance(error, QueueDBError) else LOOK_AT_SCHEDULES[1]
            outage.failed("looking at the schedules", error, seconds)
            return seconds
        pause.reset()
        outage.worked()
        if enqueued:
            log.debug("enqueued %d jobs of schedules", enqueued)
        with_schedules, without = LOOK_AT_SCHEDULES
        return without if wait is None else min(wait, with_schedules)

    return tick


def mender(db: QueueDB, queues: Iterable[str], outage: Activity | None = None) -> Chore:
    """Lets groups go on that nobody lets go on, because their jobs were deleted by hand."""

    def mend() -> float:
        try:
            for queue in queues:
                db.queue(queue).mend()
        except Exception as error:  # noqa: BLE001 - the next time finds the same groups
            (outage or Activity()).hiccup("mending groups", error)
        return FORGET_EVERY * random.uniform(0.75, 1.25)

    return mend


def forgetter(db: QueueDB, outage: Activity | None = None) -> Chore:
    """Deletes results that have expired and errors of long ago, and releases streams that nobody reads any more."""

    def forget() -> float:
        try:
            db.forget()
            for name in db.streams.expire():
                log.warning("stream %r has had no reader for longer than it keeps jobs: they are back in their queue", name)
        except Exception as error:  # noqa: BLE001 - the next time finds the same rows
            (outage or Activity()).hiccup("deleting what has expired", error)
        return FORGET_EVERY * random.uniform(0.75, 1.25)

    return forget


def purger(
    db: QueueDB, queues: Collection[str], dead_for: float | None, dead_at_most: int | None, outage: Activity | None = None
) -> Chore:
    """Deletes jobs of these queues that have been dead for longer than ``dead_for`` seconds, and the longest dead of too many."""

    def purge() -> float:
        more = False
        try:
            for queue in queues:
                for wish in ({"older_than": dead_for}, {"keep": dead_at_most}):
                    if None in wish.values():
                        continue
                    deleted = db.dead.purge(queue, limit=PURGE_LIMIT, **wish)
                    more = more or deleted == PURGE_LIMIT
                    if deleted:
                        log.info("deleted %d dead jobs of %r", deleted, queue)
        except Exception as error:  # noqa: BLE001 - the next time finds the same rows
            (outage or Activity()).hiccup("deleting dead jobs", error)
            more = False
        return PURGE_AGAIN if more else FORGET_EVERY * random.uniform(0.75, 1.25)

    return purge


def sweeper(db: QueueDB, outage: Activity | None = None) -> Chore:
    """Deletes what was marked as done, from the start on: a worker that runs for a second each minute sweeps too."""
    pause = Pause(SWEEP_EVERY, SWEEP_EVERY)

    def sweep() -> float:
        try:
            db.sweep(limit=SWEEP_LIMIT)
        except Exception as error:  # noqa: BLE001 - the next sweep finds the same rows
            (outage or Activity()).hiccup("sweeping", error)
        return pause.next()

    return sweep
