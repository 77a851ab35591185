"""The verb that changes the limits of a queue."""

from __future__ import annotations

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import ArgumentError
from queue_db.limits import store
from queue_db.model import Controls, Unchanged
from queue_db.store import controls

#: The transaction that changes the limits. Others may follow it, which unblock jobs of groups.
CHANGE = Run("limits.change", upserts=True)


def change(core: Core, queue: str, **limits: float | Unchanged | None) -> None:
    """Change ``concurrency``, ``rate``, ``per`` and ``per_group`` as ``Queue.limit`` documents it."""
    changes = {name: value for name, value in limits.items() if not isinstance(value, Unchanged)}
    if not changes:
        remedy = f"give at least one of {', '.join(limits)}; None removes a limit"
        raise ArgumentError(f"limit() changes nothing: {remedy}", wire=remedy, cli=remedy)
    values: dict[str, int | None] = {}
    for name, value in changes.items():
        if value is None:
            values[name] = None
        elif name == "per":
            values[name] = arguments.seconds(name, value, zero=False)
        else:
            values[name] = arguments.whole(name, value, 1)
    if values.get("per_group") is not None and core.read("controls.read", controls.read, [queue]).get(queue, Controls()).fair:
        raise ArgumentError("per_group orders groups, and this queue is fair: use limit_groups(concurrency=…)")
    if not core.run(CHANGE, store.change, queue, values):
        raise ArgumentError("per is the time span of rate, and this queue has no rate: give rate too")
    if "per_group" in values:
        core.groups.repair(queue)
