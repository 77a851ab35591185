"""``db.actions``: the log of what people and programs with tokens changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from queue_db import arguments
from queue_db.core import Core, observe
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError
from queue_db.model import from_micros
from queue_db.monitoring.store import actions
from queue_db.monitoring.tables import ACTION_LENGTH, TARGET_LENGTH, WHO_LENGTH

#: Longest detail of an action, characters of JSON.
MAX_DETAIL = 10_000


@dataclass(frozen=True, slots=True)
class Action:
    """An entry of the action log."""

    id: int
    at: datetime
    who: str  #: a user, or the name of a token
    action: str  #: such as ``purge``
    target: str  #: such as the name of a queue or the id of a job
    number: int | None  #: how many jobs or other things were changed; None: not counted
    detail: Mapping[str, Any] | None


class Actions:
    """The action log of one database: who changed what, how much and when. Workers delete entries after 90 days."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def add(
        self,
        who: str,
        action: str,
        target: str,
        number: int | None = None,
        detail: Mapping[str, Any] | None = None,
        *,
        using: Using | None = None,
    ) -> None:
        """Record an action that was done.

        :param who: a user, or the name of a token; at most 100 characters.
        :param action: such as ``purge``; at most 40 characters.
        :param target: such as the name of a queue or the id of a job; cut to 250 characters.
        :param number: how many jobs or other things were changed.
        :param detail: further data, stored as JSON; at most 10,000 characters. No passwords and no payloads.
        :param using: a Connection or Session: the entry commits or rolls back with its transaction.
        """
        values = checked(who, action, target, number, detail)
        if using is None:
            self._core.write("monitoring.add", actions.add, values)
            return
        with self._core.joined(using, "actions.add") as tx:
            actions.add(tx, values)

    def list(self, *, limit: int = 100, after: int | None = None) -> list[Action]:
        """The actions, newest first. ``after``: the id of the last action of the previous page."""
        arguments.whole("limit", limit, 1)
        below = None if after is None else arguments.whole("after", after, 0, 2**63 - 1)
        return [
            _action(row)
            for row in observe(self._core, "monitoring.page_of_actions", actions.page_of_actions, below=below, limit=limit)
        ]


def checked(who: str, action: str, target: str, number: int | None, detail: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of an action.

    :raises ArgumentError: a value is out of range.
    """
    return {
        "who": arguments.name("who", who, WHO_LENGTH),
        "action": arguments.name("action", action, ACTION_LENGTH),
        "target": arguments.text("target", target, TARGET_LENGTH) or "",
        "number": None if number is None else arguments.whole("number", number, 0, 2**63 - 1),
        "detail": _encoded(detail),
    }


def _action(row: Row[Any]) -> Action:
    detail = None if row.detail is None else json.loads(row.detail)
    return Action(row.id, from_micros(row.at), row.who, row.action, row.target, row.number, detail)


def _encoded(detail: Mapping[str, Any] | None) -> str | None:
    if detail is None:
        return None
    if not isinstance(detail, Mapping) or not all(isinstance(key, str) for key in detail):
        raise arguments.wrong("detail", detail, ": must be a mapping with string keys")
    try:
        text = json.dumps(dict(detail), allow_nan=False)  # only ASCII, which every database can store
    except (TypeError, ValueError, RecursionError) as error:
        raise arguments.wrong("detail", detail, f": cannot be written as JSON: {error}") from None
    if len(text) > MAX_DETAIL:
        raise ArgumentError(f"detail has {len(text):,} characters of JSON; {MAX_DETAIL:,} is the limit")
    return text
