"""When the next jobs of some queues are due, asked from where their claims start, so that it costs little to ask again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from queue_db.database.database import Database
from queue_db.model import Capability
from queue_db.store import Marks, Store
from queue_db.store import upcoming as outlook

# Each look that meets a new priority asks again with one more range; beyond the most that marks keep there is one plain range.
_LOOKS = 64


def look(database: Database, store: Store, marks: Mapping[str, Marks]) -> dict[str, float | None]:
    """Seconds until the next job of each queue is due: 0 or less where one is, None where there is no job. One statement.

    A job that appeared below a queue's mark is found by the sweep that is made now and then, as claims find it.
    """
    found: dict[str, float | None] = {}
    asked = dict(marks)
    for _ in range(_LOOKS):
        sweeping = {queue for queue, its in asked.items() if its.sweep_due()}
        ranges = {queue: its.ranges(sweep=queue in sweeping) for queue, its in asked.items()}
        began = time.monotonic()
        seen = database.run(
            lambda connection, ranges=ranges: outlook.look(connection, store, ranges),  # type: ignore[misc]
            name="upcoming",
            write=False,
            direct=True,
            repeatable=True,
        )
        seconds = time.monotonic() - began
        again = {}
        for queue, one in seen.items():
            marks[queue].add(*one.unseen, *one.seen)
            found[queue] = None if one.wait is None else one.wait / 1_000_000
            if one.unseen:
                again[queue] = marks[queue]
            elif not _due(found[queue]):
                if Capability.CONCURRENT_WRITERS in store.capabilities:  # elsewhere deleted index entries are really gone
                    marks[queue].nothing_due(ranges[queue], one.asked_at)
                if queue in sweeping:
                    # Where one is due the claim has to sweep too, or it would not find it.
                    marks[queue].swept(seconds)
        asked = again
        if not asked:
            break
    return found


def _due(wait: float | None) -> bool:
    return wait is not None and wait <= 0
