"""Changes the controls of one queue: its pause and its limits."""

from __future__ import annotations

from collections.abc import Mapping

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import ArgumentError
from queue_db.store import controls


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
