"""Operations on schedules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from queue_db.db import QueueDB
from queue_db.model import UNCHANGED, Unchanged
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry
from queue_db.schedules import CatchUp, store
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A schedule, as ``db.schedules.set`` takes it."""

    queue: str
    kind: str
    payload: Any = None
    cron: str | None = None
    every: float | None = None
    zone: str = "UTC"
    catch_up: CatchUp = "one"
    first_at: datetime | None = None
    # UNCHANGED: as in the schedule that is there; of a new one the default.
    priority: int | Unchanged = 0
    max_attempts: int | Unchanged = DEFAULT_MAX_ATTEMPTS
    headers: Mapping[str, Any] | Unchanged | None = None


def set(db: QueueDB, actor: Actor, name: str, definition: Definition) -> bool | None:  # noqa: A001 - the verb of the log
    """Create or change the schedule.

    :return: whether it is new; None: the name is taken by a schedule that the actor may not change.
    """
    actor.check("manage", definition.queue)
    if any(one.name == name and not actor.allows("manage", one.queue) for one in db.schedules.list()):
        return None
    values = {one.name: getattr(definition, one.name) for one in fields(definition)}
    if UNCHANGED in values.values():
        kept = _of_jobs(db, name)
        values |= {one: kept[one] for one, value in values.items() if value is UNCHANGED}
    detail = {one: values[one] for one in ("queue", "kind", "cron", "every", "priority", "max_attempts")}
    with entry(db, actor, "set", f"schedule {name}", detail=detail, of="schedules.put", number=lambda _: None):
        return db.schedules.set(name, **values)


def run(db: QueueDB, actor: Actor, name: str) -> int | None:
    """Enqueue the job of the schedule now, paused or not.

    :return: the id of the job; None: the actor has no such schedule.
    """
    if rights.schedule(db, actor, "manage", name) is None:
        return None
    with entry(db, actor, "run", f"schedule {name}", of="run_now", number=lambda job: 0 if job is None else None):
        return db.schedules.run_now(name)


def pause(db: QueueDB, actor: Actor, name: str) -> bool:
    """Enqueue no jobs of the schedule until it is resumed; False: the actor has no such schedule."""
    return _change(db, actor, "pause", name, db.schedules.pause, of="schedules.change")


def resume(db: QueueDB, actor: Actor, name: str) -> bool:
    """Enqueue jobs of the schedule again; False: the actor has no such schedule."""
    return _change(db, actor, "resume", name, db.schedules.resume, of="schedules.change")


def remove(db: QueueDB, actor: Actor, name: str) -> bool:
    """Delete the schedule; its jobs stay. False: the actor has no such schedule."""
    return _change(db, actor, "remove", name, db.schedules.remove, of="schedules.remove")


def _change(db: QueueDB, actor: Actor, word: str, name: str, verb: Callable[[str], bool | None], *, of: str) -> bool:
    if rights.schedule(db, actor, "manage", name) is None:
        return False
    with entry(db, actor, word, f"schedule {name}", of=of):
        return verb(name) is not False


def _of_jobs(db: QueueDB, name: str) -> dict[str, Any]:
    """Priority, attempts and headers of the jobs of a schedule; those of a new one if there is none."""
    row = db.core.read("schedules.find_schedule", store.find_schedule, name)
    if row is None:
        return {"priority": 0, "max_attempts": DEFAULT_MAX_ATTEMPTS, "headers": None}
    headers = json.loads(row.headers) if row.headers else None
    return {"priority": row.priority, "max_attempts": row.max_attempts, "headers": headers}
