"""The pause of one queue."""

from __future__ import annotations

import time

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.store import controls

#: Seconds within which workers obey the controls of a queue.
OBEY_WITHIN = 1.5

_CHANGE = Run("controls.change", upserts=True)

# Seconds between two looks for running jobs of a queue that was paused.
_BETWEEN_LOOKS = 0.05

# About the most jobs of each state that the first read of a look counts.
_LOOKED_AT = 1000


def pause_queue(core: Core, queue: str, wait: float | None) -> bool:
    """Stop the claims of workers from ``queue``, and wait until none of its jobs runs.

    :param wait: the most seconds to wait; None: do not wait.
    :return: whether no job runs; True without ``wait``.
    :raises ArgumentError: ``wait`` is out of range; nothing was paused.
    """
    patience = None if wait is None else arguments.seconds("wait", wait) / 1_000_000
    set_paused(core, queue, paused=True)
    if patience is None:
        return True
    until = time.monotonic() + patience
    # Workers may notice the pause OBEY_WITHIN seconds late. So the queue is at rest only after no job has run for OBEY_WITHIN
    # seconds. While no job runs, the end of `wait` does not end the loop.
    quiet_since: float | None = None
    while True:
        now = time.monotonic()
        running = _runs(core, queue)
        quiet_since = None if running else quiet_since or now
        if quiet_since is not None and now - quiet_since > OBEY_WITHIN:
            return True
        if running and now >= until:
            return False
        core.database.pause(_BETWEEN_LOOKS)


def _runs(core: Core, queue: str) -> bool:
    """Whether a job of ``queue`` runs. Reads the first jobs by due time, and all jobs only if the first jobs give no answer."""
    stats = core.inspection.stats(queue, _LOOKED_AT)
    return bool(stats.running or ("running" in stats.capped and core.inspection.stats(queue).running))


def set_paused(core: Core, queue: str, *, paused: bool) -> None:
    """Pause the queue, or let workers claim from it again."""
    core.run(_CHANGE, controls.change, queue, {"paused": int(paused)})
