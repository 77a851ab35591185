"""Operations on schedules."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from queue_db.db import QueueDB
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import Entry, entry
from queue_db.schedules import CatchUp
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
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    headers: Mapping[str, Any] | None = None


def set(db: QueueDB, actor: Actor, name: str, definition: Definition) -> bool | None:  # noqa: A001 - the verb of the log
    """Create or change the schedule.

    :return: whether it is new; None: the name is taken by a schedule that the actor may not change.
    """
    actor.check("manage", definition.queue)
    if any(one.name == name and not actor.allows("manage", one.queue) for one in db.schedules.list()):
        return None
    values = {one.name: getattr(definition, one.name) for one in fields(definition)}
    shown = {one: values[one] for one in ("queue", "kind", "cron", "every")}
    with _entry(db, actor, "set", name, **shown):
        return db.schedules.set(name, **values)


def run(db: QueueDB, actor: Actor, name: str) -> int | None:
    """Enqueue the job of the schedule now, paused or not.

    :return: the id of the job; None: the actor has no such schedule.
    """
    if rights.schedule(db, actor, "manage", name) is None:
        return None
    with _entry(db, actor, "run", name):
        return db.schedules.run_now(name)


def pause(db: QueueDB, actor: Actor, name: str) -> bool:
    """Enqueue no jobs of the schedule until it is resumed; False: the actor has no such schedule."""
    if rights.schedule(db, actor, "manage", name) is None:
        return False
    with _entry(db, actor, "pause", name):
        db.schedules.pause(name)
    return True


def resume(db: QueueDB, actor: Actor, name: str) -> bool:
    """Enqueue jobs of the schedule again; False: the actor has no such schedule."""
    if rights.schedule(db, actor, "manage", name) is None:
        return False
    with _entry(db, actor, "resume", name):
        db.schedules.resume(name)
    return True


def remove(db: QueueDB, actor: Actor, name: str) -> bool:
    """Delete the schedule; its jobs stay. False: the actor has no such schedule."""
    if rights.schedule(db, actor, "manage", name) is None:
        return False
    with entry(db, actor, "remove", f"schedule {name}"):
        return db.schedules.remove(name)


def _entry(db: QueueDB, actor: Actor, word: str, name: str, **detail: Any) -> AbstractContextManager[Entry]:
    """The entry of a change whose answer is no number of changes."""
    return entry(db, actor, word, f"schedule {name}", detail=detail, number=lambda _: None)
