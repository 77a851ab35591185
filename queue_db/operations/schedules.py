"""Operations on schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from queue_db.db import QueueDB
from queue_db.model import UNCHANGED, Unchanged
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry
from queue_db.schedules import CatchUp
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A schedule, as ``db.schedules.set`` takes it."""

    queue: str
    kind: str
    cron: str | None = None
    every: float | None = None
    first_at: datetime | None = None
    # UNCHANGED: as in the schedule that is there; of a new one the default.
    payload: Any | Unchanged = None
    zone: str | Unchanged = "UTC"
    catch_up: CatchUp | Unchanged = "one"
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
    logged = ("queue", "kind", "cron", "every", "zone", "catch_up", "priority", "max_attempts")
    detail = {one: values[one] for one in logged if values[one] is not UNCHANGED}
    with entry(db, actor, "set", f"schedule {name}", detail=detail, of="schedules.put", number=_put):
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


def _put(new: bool | None) -> int | None:
    """None: there is no such schedule, and it cannot be new."""
    return 0 if new is None else None
