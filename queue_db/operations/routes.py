"""Operations on routes, their subscriptions and counters."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from queue_db import arguments
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, RouteError
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry
from queue_db.routes.definition import ACTIONS, WEBHOOKS
from queue_db.routes.patterns import PatternForm

# Characters of a condition in the detail of an entry.
_SHOWN = 500


@dataclass(frozen=True, slots=True)
class RouteAction:
    """What a route does with a message."""

    action: str  #: one of ``feed``, ``enqueue``, ``forward``, ``webhook``, ``count``, ``drop``
    target: str = ""  #: the feed, queue, topic, address or counter
    kind: str | None = None  #: of the jobs (``enqueue``)
    group: bool | str = False  #: of the jobs (``enqueue``)
    where: str | None = None  #: the condition under which it acts
    by: str | None = None  #: what the counter counts by (``count``)
    matched: bool = False  #: whether what it makes has the header ``matched``


def set(db: QueueDB, actor: Actor, route: str, does: RouteAction) -> str:  # noqa: A001 - the word of the log
    """Create a route, or let it do something else from now on; return the SHA-256 of its definition.

    The actor needs ``manage`` also for the feed, queue, topic or counter that it leads to; for webhooks, for their queue.
    """
    actor.check("manage", route)
    if does.action not in ACTIONS:
        raise arguments.wrong("action", does.action, f": must be one of {', '.join(ACTIONS)}")
    actor.check("manage", _reached(does.action, does.target))
    given: dict[str, Any] = {does.action: True if does.action == "drop" else does.target}
    if does.action == "enqueue":
        given = {"enqueue": does.target if does.kind is None else (does.target, does.kind), "group": does.group}
    elif does.kind is not None or does.group is not False:
        raise ArgumentError("kind and group are of jobs: for the action enqueue")
    logged = replace(does, target=_site(does.target)) if does.action == "webhook" else does
    detail = {name: value[:_SHOWN] if isinstance(value, str) else value for name, value in asdict(logged).items() if value}
    with entry(db, actor, "set", f"route {route}", detail=detail, of="routes.assign"):
        return db.routes.set(route, **given, where=does.where, matched=does.matched, by=does.by)


def assign(db: QueueDB, actor: Actor, route: str, definition: str) -> None:
    """Point a route at a definition that it or another route had before.

    :param definition: its SHA-256, or the first digits.
    :raises RouteError: there is no such route, or no such definition that the actor may use.
    """
    actor.check("manage", route)
    _check_there(db, route)
    for one in db.routes.definitions():
        if one.sha.startswith(definition) and not actor.allows("manage", _reached(one.action, one.target)):
            raise RouteError(f"no definition begins with {definition!r}")
    with entry(db, actor, "set", f"route {route}", detail={"definition": definition}, of="routes.assign"):
        db.routes.assign(route, definition)


def subscribe(db: QueueDB, actor: Actor, route: str, pattern: str, form: PatternForm = "glob") -> bool:
    """Lead the messages of matching topics to a route; False: it has this subscription.

    Any form but ``exact`` needs ``manage`` for all queues: its pattern may match every topic.

    :raises RouteError: there is no such route.
    """
    actor.check("manage", route)
    if form == "exact":
        actor.check("manage", pattern)
    else:
        actor.check_all("manage")
    _check_there(db, route)
    detail = {"pattern": pattern, "form": form}
    with entry(db, actor, "subscribe", f"route {route}", detail=detail, of="routes.subscribe", number=_added):
        return db.routes.subscribe(pattern, route, form)


def unsubscribe(db: QueueDB, actor: Actor, route: str, pattern: str, form: PatternForm = "glob") -> bool:
    """Take a subscription back; False: there is none."""
    actor.check("manage", route)
    detail = {"pattern": pattern, "form": form}
    with entry(db, actor, "unsubscribe", f"route {route}", detail=detail, of="routes.unsubscribe"):
        return db.routes.unsubscribe(pattern, route, form)


def pause(db: QueueDB, actor: Actor, route: str) -> None:
    """Let a route do nothing; messages that are published meanwhile are not kept for it.

    :raises RouteError: there is no such route.
    """
    actor.check("manage", route)
    _check_there(db, route)
    with entry(db, actor, "pause", f"route {route}", of="routes.pause"):
        db.routes.pause(route)


def resume(db: QueueDB, actor: Actor, route: str) -> None:
    """End a pause.

    :raises RouteError: there is no such route.
    """
    actor.check("manage", route)
    _check_there(db, route)
    with entry(db, actor, "resume", f"route {route}", of="routes.pause"):
        db.routes.resume(route)


def remove(db: QueueDB, actor: Actor, route: str) -> bool:
    """Delete a route with its subscriptions; False: there is none."""
    actor.check("manage", route)
    with entry(db, actor, "remove", f"route {route}", of="routes.remove"):
        return db.routes.remove(route)


def reset(db: QueueDB, actor: Actor, counter: str, key: str | None = None) -> bool:
    """Delete a counter, or the count of one of its keys: it begins at 0 again; False: it has counted nothing."""
    actor.check("manage", counter)
    with entry(db, actor, "reset", f"counter {counter}", detail={"key": key}, of="routes.reset"):
        return db.routes.reset(counter, key=key)


def _site(address: str) -> str:
    """The scheme and host of a webhook. The rest is often a secret, and the log has more readers than routes."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}"


def _reached(action: str, target: str) -> str | None:
    """What an actor must have the scope for, so that they lead messages to nothing else."""
    return {"drop": None, "webhook": WEBHOOKS}.get(action, target)


def _check_there(db: QueueDB, route: str) -> None:
    """Raise unless there is such a route: the verb's error has the names of all, which not everybody may know."""
    known = [one.name for one in db.routes.list()]
    if route not in known:
        none = f"there is no route {route!r}"
        raise RouteError(none, cli=f"{none}; known: {', '.join(known) or 'none'}")


def _added(added: bool | None) -> int | None:
    """None: there is no such route."""
    return None if added else 0
