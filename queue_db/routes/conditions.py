"""Conditions of routes: JMESPath expressions over a message, with one meaning on every database.

A publisher evaluates them itself: the databases disagree about the equality and the order of JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.store.feeds.messages import NewMessage

#: Longest condition, in characters.
CONDITION_LENGTH = 2000


#: A condition, for errors and help.
EXAMPLE = "payload.celsius > `70` && headers.site == 'north'"


class ConditionError(Exception):
    """A condition cannot be evaluated for a message: a function got a value of the wrong type."""


class Options(NamedTuple):
    """What the options of a definition say beside the group of its jobs."""

    where: str | None = None  #: the condition under which the route acts
    matched: bool = False  #: whether what the route makes has the header ``matched``


def options_of(stored: str | None) -> Options:
    """The options of a stored definition."""
    found = json.loads(stored) if stored else {}
    return Options(found.get("where"), found.get("matched", False))


def check(where: object) -> str:
    """Check a condition.

    :raises ArgumentError: it is no JMESPath expression.
    :raises ConfigurationError: the package jmespath is not installed.
    """
    text = arguments.name("where", where, CONDITION_LENGTH)
    try:
        _compiled(text)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(f"where={arguments.shown(text)}: is no JMESPath expression ({reason}); one is: {EXAMPLE}") from None
    return text


def holds(where: str, message: Mapping[str, Any]) -> bool:
    """Whether a condition holds for a message (:func:`content`): its result is neither false, null, nor empty.

    :raises ConditionError: it cannot be evaluated.
    :raises ConfigurationError: the package jmespath is not installed.
    """
    try:
        found = _compiled(where).search(message)
    except (ValueError, TypeError) as error:  # JMESPathError is a ValueError; the order of a text and a number a TypeError
        raise ConditionError(str(error)) from error
    return found is not None and found is not False and found not in ("", [], {})


def content(
    topic: str, kind: str, payload: Any, key: str | None, client: str | None, headers: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A message as conditions see it."""
    return {"topic": topic, "kind": kind, "key": key, "client": client, "headers": dict(headers or {}), "payload": payload}


def content_of(topic: str, message: NewMessage) -> dict[str, Any]:
    """A stored message as conditions see it; a payload that is no JSON, as of another codec, is null."""
    try:
        payload = json.loads(message.payload)
    except ValueError:
        payload = None
    headers = json.loads(message.headers) if message.headers else None
    return content(topic, message.kind, payload, message.message_key, message.client, headers)


@lru_cache(maxsize=1024)
def _compiled(where: str) -> Any:
    try:
        import jmespath
    except ImportError:
        raise ConfigurationError('a route has a condition, and jmespath is not installed: pip install "queue-db[routes]"') from None
    return jmespath.compile(where)
