"""The verbs of fair queues, behind those of ``Queue``, which document them."""

from __future__ import annotations

from collections.abc import Mapping

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import ArgumentError
from queue_db.fairness import store
from queue_db.fairness.rules import EACH, GROUP, PREFIX
from queue_db.model import GroupLimit, Unchanged
from queue_db.store.schema import KEY_LENGTH

#: The transactions that change what is fair, and the limits of groups.
FAIR, LIMIT = Run("fairness.set_fair", upserts=True), Run("fairness.change", upserts=True)

#: The highest weight of a group: the most jobs of one turn.
MOST_WEIGHT = 1000


def set_fair(core: Core, queue: str, fair: bool, weights: Mapping[str, int] | None) -> None:
    """Change what ``Queue.fair`` documents."""
    if not isinstance(fair, bool):
        raise arguments.wrong("enabled", fair, ": must be True or False")
    checked = {
        arguments.name("weights", group, KEY_LENGTH): arguments.whole(f"the weight of {group!r}", weight, 1, MOST_WEIGHT)
        for group, weight in (weights or {}).items()
    }
    core.run(FAIR, store.set_fair, queue, fair=fair, weights=checked)
    core.policies.stale = True
    core.groups.repair(queue)


def limit_groups(core: Core, queue: str, *, group: str | None, prefix: str | None, **limits: float | Unchanged | None) -> None:
    """Change what ``Queue.limit_groups`` documents."""
    if group is not None and prefix is not None:
        raise ArgumentError("group and prefix are two limits: give one of them, or none for a limit of each group")
    scope, name = (GROUP, group) if group is not None else (PREFIX, prefix) if prefix is not None else (EACH, "")
    if scope != EACH:
        arguments.name(scope, name, KEY_LENGTH)
    values: dict[str, int | None] = {}
    for what, value in limits.items():
        if isinstance(value, Unchanged):
            continue
        if value is None:
            values[what] = None
        else:
            values[what] = arguments.seconds(what, value, zero=False) if what == "per" else arguments.whole(what, value, 1)
    if not values:
        raise ArgumentError("limit_groups() changes nothing: give concurrency, rate or per; None removes a limit")
    if values.get("rate", 0) is None:
        values["per"] = None
    wrong = core.run(LIMIT, store.limit, queue, scope, name or "", values)
    if wrong is not None:
        raise ArgumentError(wrong)
    core.policies.stale = True


def group_limits(core: Core, queue: str) -> list[GroupLimit]:
    """What ``Queue.group_limits`` documents."""
    return [
        GroupLimit(
            row.name if row.scope == GROUP else None,
            row.name if row.scope == PREFIX else None,
            row.weight or 1,
            row.concurrency,
            row.rate,
            None if row.per is None else row.per / 1_000_000,
        )
        for row in core.read("fairness.limits", store.limits, queue)
    ]
