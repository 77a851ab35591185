"""Facts for alerts, beside the counts: workers, pauses, late schedules, cursors. They cost a few reads of small tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from queue_db.core import Core
from queue_db.slices import load, slices
from queue_db.store import controls, worker_registry

#: Seconds after which an occurrence of a schedule is late.
LATE = 60.0

#: At most this many cursors are kept: those that are the furthest behind.
MOST_CURSORS = 100


@dataclass(frozen=True, slots=True)
class Operations:
    """The workers, pauses, late schedules and cursors of one sample."""

    #: By queue, how many workers claim from it. Silent, quiet and stopping workers are not counted.
    workers: Mapping[str, int] = field(default_factory=dict)
    #: Workers without a heartbeat for 30 s.
    silent: int = 0
    #: Stuck slots of all workers.
    stuck: int = 0
    paused: tuple[str, ...] = ()
    #: How many schedules are more than a minute late, and by how many seconds the latest of these schedules is late.
    late: int = 0
    latest: float = 0.0
    #: (feed, cursor, number of messages that the cursor is behind)
    cursors: tuple[tuple[str, str, int], ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Make the object from the JSON of a sample; ``data`` is empty for a sample of an earlier version of the package."""
        found = dict(data)
        found["paused"] = tuple(found.get("paused", ()))
        found["cursors"] = tuple((feed, cursor, behind) for feed, cursor, behind in found.get("cursors", ()))
        return cls(**found)


def look(core: Core) -> Operations:
    """Read the :class:`Operations` from the database."""
    alive: Counter[str] = Counter()
    silent = stuck = 0
    for row in core.read("worker_registry.all_workers", worker_registry.all_workers):
        stuck += row.stuck
        if row.now - row.seen_at >= worker_registry.SILENT * 1e6:
            silent += 1
        elif row.state == "working":
            alive.update(json.loads(row.queues).keys())
    late = core.read("schedules.late", load("schedules.store", "late"), round(LATE * 1e6))
    behind = [
        reader for name, part in slices().items() if part.behind is not None for reader in core.read(f"{name}.behind", part.behind)
    ]
    return Operations(
        workers=dict(alive),
        silent=silent,
        stuck=stuck,
        paused=tuple(sorted(name for name, one in core.read("controls.read", controls.read).items() if one.paused)),
        late=len(late),
        latest=max((row.late / 1e6 for row in late), default=0.0),
        cursors=tuple(sorted(behind, key=lambda one: -one[2])[:MOST_CURSORS]),
    )
