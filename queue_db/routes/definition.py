"""What a route does with a message: one action. A definition never changes; its name is the SHA-256 of its content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.feeds.forwarding import JobTemplate
from queue_db.routes import conditions
from queue_db.routes.store import CONDITIONAL, COUNT_BY, DefinitionRow
from queue_db.routes.tables import COUNTER_LENGTH
from queue_db.store.schema import FEED_LENGTH, TOPIC_LENGTH

ACTIONS = ("feed", "enqueue", "forward", "webhook", "count", "drop")

#: Where the jobs of the action ``webhook`` go, and their kind. ``queue_db.service.webhooks`` has the handler.
WEBHOOKS, WEBHOOK = "webhooks", "webhook"

_PAIR = 2


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition as it is stored."""

    sha: str
    action: str  #: ``feed``, ``enqueue``, ``forward``, ``webhook``, ``count`` or ``drop``
    target: str  #: the feed, queue, topic, address or counter; empty for ``drop``
    kind: str | None  #: of the jobs; None: that of each message
    group: bool | str  #: of the jobs, see :meth:`Feed.forward <queue_db.Feed.forward>`
    created_at: datetime
    where: str | None = None  #: the condition under which it acts; None: always
    matched: bool = False  #: whether what it makes has the header ``matched``
    by: str | None = None  #: what it counts by: a JMESPath expression; None: it counts all messages together


def new(
    *,
    feed: str | None,
    enqueue: str | tuple[str, str] | None,
    forward: str | None,
    webhook: str | None,
    count: str | None,
    drop: bool,
    group: bool | str,
    where: str | None = None,
    matched: bool = False,
    by: str | None = None,
) -> DefinitionRow:
    """Check and name the definition with this one action.

    :raises ArgumentError: none, or several; or an expression is none of JMESPath.
    """
    if not isinstance(drop, bool):
        raise arguments.wrong("drop", drop, ": must be True or False")
    given = {"feed": feed, "enqueue": enqueue, "forward": forward, "webhook": webhook, "count": count, "drop": drop or None}
    chosen = [action for action, target in given.items() if target is not None]
    if len(chosen) != 1:
        one = f"give one action of {', '.join(ACTIONS)}, not {' and '.join(chosen) or 'none'}"
        raise ArgumentError(one, cli=f"give one action of --{', --'.join(ACTIONS)}")
    if not isinstance(matched, bool):
        raise ArgumentError(f"matched={arguments.shown(matched)}: must be True or False")
    if group is not False and enqueue is None:
        raise ArgumentError("group= is the group of jobs: give it with enqueue=")
    if by is not None and count is None:
        raise ArgumentError("by= is what a counter counts by: give it with count=")
    action = chosen[0]
    target, kind, options = _aim(given, enqueue, group)
    if action == "webhook":
        # Code that does not know webhooks makes the job, too, and in its group the handler finds the address.
        action = "enqueue"
    if by is not None:
        action, options["by"] = COUNT_BY, conditions.check(by, "by", "payload.customer")
    if matched:
        options["matched"] = True
    if where is not None:
        # Code that does not know conditions refuses such an action, and does not act without them.
        action, options["where"] = f"{action}{CONDITIONAL}", conditions.check(where)
    content = {"action": action, "target": target, "kind": kind, "options": options}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    sha = hashlib.sha256(canonical.encode()).hexdigest()
    return DefinitionRow(sha, action, target, kind, _json(options) if options else None)


def _aim(given: dict[str, Any], enqueue: str | tuple[str, str] | None, group: bool | str) -> tuple[str, str | None, dict[str, Any]]:
    """Target, kind and options of the action that is given."""
    if enqueue is not None:
        template = _template(enqueue, group)
        return template.queue, template.kind, {"group": group} if group is not False else {}
    if given["webhook"] is not None:
        return WEBHOOKS, WEBHOOK, {"group": address(given["webhook"]), "webhook": True}
    for action, length in (("feed", FEED_LENGTH), ("forward", TOPIC_LENGTH), ("count", COUNTER_LENGTH)):
        if given[action] is not None:
            return arguments.name(action, given[action], length), None, {}
    return "", None, {}


def group_of(options: str | None) -> bool | str:
    """The group in the stored options."""
    group: bool | str = json.loads(options).get("group", False) if options else False
    return group


def _template(enqueue: object, group: bool | str) -> JobTemplate:
    if isinstance(enqueue, str):
        return JobTemplate(enqueue, None, group)
    if isinstance(enqueue, tuple | list) and len(enqueue) == _PAIR and all(isinstance(part, str) for part in enqueue):
        return JobTemplate(enqueue[0], enqueue[1], group)
    raise arguments.wrong("enqueue", enqueue, ": must be a queue, or (queue, kind)")


def address(url: object) -> str:
    """Check the address of a webhook.

    :raises ArgumentError: it is none.
    """
    text = arguments.name("webhook", url, TOPIC_LENGTH)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not host or not text.isascii() or any(one.isspace() for one in text):
        must = ": must be an address that begins with https:// or http://"
        shown = arguments.shown(text)
        raise ArgumentError(wire=f"target {shown}{must}", argument="webhook", problem=f"={shown}{must}")
    if parts.username is not None or parts.password is not None or parts.fragment:
        bare = ": the address must have no user, password or fragment: all readers of routes see it"
        raise ArgumentError(wire=f"target{bare}", argument="webhook", problem=f"={bare}")
    return text


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
