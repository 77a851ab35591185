"""When the next job of each queue is due, read from where claims start, so that it can be asked often."""

from __future__ import annotations

import time
from collections.abc import Iterable

from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.model import Capability
from queue_db.store import upcoming as store_upcoming

# A read that meets a new priority is repeated with one more range. With more priorities than the marks keep, one range is read.
_READS = 64

_READ = Run(write=False, direct=True, repeatable=True)


def upcoming(core: Core, queues: Iterable[str]) -> dict[str, float | None]:
    """Seconds until the next job of each queue is due: 0 or less where one is, None where there is no job. One statement.

    A job that appeared below a queue's low-water mark is found by the next rescan, as claims find it.
    """
    core.ready()
    found: dict[str, float | None] = {}
    asked = {queue: core.marks[queue] for queue in queues}
    for _ in range(_READS):
        if not asked:
            break
        rescanning = {queue for queue, marks in asked.items() if marks.rescan_due()}
        ranges = {queue: marks.ranges(rescan=queue in rescanning) for queue, marks in asked.items()}
        began = time.monotonic()
        seen = core.run(_READ, store_upcoming.look, ranges)
        seconds = time.monotonic() - began
        again = {}
        for queue, one in seen.items():
            marks = asked[queue]
            marks.add(*one.unseen, *one.seen)
            found[queue] = None if one.wait is None else one.wait / 1_000_000
            if one.unseen:
                again[queue] = marks
            elif not _due(found[queue]):
                if Capability.CONCURRENT_WRITERS in core.store.capabilities:  # elsewhere deleted index entries are really gone
                    marks.nothing_due(ranges[queue], one.asked_at)
                if queue in rescanning:
                    # Where one is due the claim has to rescan too, or it would not find it.
                    marks.rescanned(seconds)
        asked = again
    return found


def _due(wait: float | None) -> bool:
    return wait is not None and wait <= 0
