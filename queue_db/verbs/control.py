"""The controls of one queue: its pause and its limits."""

from __future__ import annotations

import time
from collections.abc import Mapping

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import ArgumentError
from queue_db.store import controls

#: Seconds within which workers obey the controls of a queue.
OBEY_WITHIN = 1.5

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
    change_controls(core, queue, {"paused": True})
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


def change_controls(core: Core, queue: str, changes: Mapping[str, float | None]) -> None:
    """Change the given controls: ``paused``, ``concurrency``, ``rate``, ``per``, ``per_group``. Other controls stay.

    None removes a limit. ``per=None`` is one second.

    :raises ArgumentError: a limit is out of range, or ``per`` is given and the queue has no rate. Nothing was changed.
    """
    values: dict[str, int | None] = {}
    for name, value in changes.items():
        if name == "paused":
            values[name] = int(bool(value))
        elif name == "per":
            values[name] = None if value is None else arguments.seconds(name, value, zero=False)
        else:
            values[name] = None if value is None else arguments.whole(name, value, 1)
    if not core.run(Run("controls.change", upserts=True), controls.change, queue, values):
        raise ArgumentError("per is the time span of rate, and this queue has no rate: give rate too")
