"""Operations on a queue as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from queue_db.db import QueueDB
from queue_db.model import UNCHANGED, Unchanged
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a queue, as ``Queue.limit`` takes them: what is UNCHANGED stays, None removes a limit."""

    concurrency: int | Unchanged | None = UNCHANGED
    rate: int | Unchanged | None = UNCHANGED
    per: float | Unchanged | None = UNCHANGED
    per_group: int | Unchanged | None = UNCHANGED


#: Removes all limits of a queue.
NO_LIMITS = Limits(concurrency=None, rate=None, per=None, per_group=None)

#: Removes all limits of groups.
NO_GROUP_LIMITS = Limits(concurrency=None, rate=None, per=None)


def pause(db: QueueDB, actor: Actor, queue: str, *, wait: float | None = None) -> bool:
    """Stop all workers from claiming jobs of the queue until it is resumed.

    :param wait: the most seconds to wait until no job of the queue runs.
    :return: whether no job runs; True if ``wait`` is not given.
    """
    actor.check("manage", queue)
    with entry(db, actor, "pause", f"queue {queue}", of="controls.change"):
        return db.queue(queue).pause(wait=wait)


def resume(db: QueueDB, actor: Actor, queue: str) -> None:
    """Let workers claim from the queue again."""
    actor.check("manage", queue)
    with entry(db, actor, "resume", f"queue {queue}", of="controls.change"):
        db.queue(queue).resume()


def limit(db: QueueDB, actor: Actor, queue: str, limits: Limits) -> None:
    """Change the given limits of the queue."""
    actor.check("manage", queue)
    given = {name: value for name, value in asdict(limits).items() if not isinstance(value, Unchanged)}
    detail = {name: "none" if value is None else value for name, value in given.items()}
    if detail.get("per") == "none" and given.get("rate", db.queue(queue).controls().rate) is not None:
        detail["per"] = 1.0  # a rate is one of some seconds
    # A new limit of groups may unblock jobs, in transactions that follow.
    with entry(db, actor, "limit", f"queue {queue}", detail=detail, of="limits.change"):
        db.queue(queue).limit(**given)


def fair(db: QueueDB, actor: Actor, queue: str, *, enabled: bool, weights: Mapping[str, int]) -> None:
    """Let claims of the queue take turns among its groups, or not, and set the weights of some groups."""
    actor.check("manage", queue)
    detail = {"fair": "yes" if enabled else "no", **{f"weight of {group}": weight for group, weight in weights.items()}}
    with entry(db, actor, "fair", f"queue {queue}", detail=detail, of="fairness.set_fair"):
        db.queue(queue).fair(enabled, weights=weights)


def limit_groups(db: QueueDB, actor: Actor, queue: str, limits: Limits, *, group: str | None, prefix: str | None) -> None:
    """Change the given limits of each group, of one group, or of all groups with a prefix together."""
    actor.check("manage", queue)
    given = {name: value for name, value in asdict(limits).items() if not isinstance(value, Unchanged)}
    detail = {"group": group, "prefix": prefix} | given
    detail = {name: "none" if value is None else value for name, value in detail.items() if name in given or value is not None}

    def number(refused: str | None) -> int | None:
        return None if refused is None else 0

    with entry(db, actor, "limit groups", f"queue {queue}", detail=detail, of="fairness.change", number=number):
        db.queue(queue).limit_groups(group=group, prefix=prefix, **given)


def purge(db: QueueDB, actor: Actor, queue: str) -> int:
    """Delete all due, scheduled and blocked jobs of the queue; return how many."""
    actor.check("manage", queue)
    with entry(db, actor, "purge", f"queue {queue}", of="purge", number=lambda answer: answer[0]):
        return db.queue(queue).purge()
