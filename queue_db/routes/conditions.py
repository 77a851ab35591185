"""Conditions of routes: JMESPath expressions over a message, with one meaning on every database.

A publisher evaluates them itself: the databases disagree about the equality and the order of JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from queue_db import arguments
from queue_db.errors import ArgumentError, ConfigurationError
from queue_db.store.feeds.messages import NewMessage

#: Longest condition, in characters.
CONDITION_LENGTH = 2000

#: Most operators within each other: a publisher's own calls need room on the stack, too.
CONDITION_DEPTH = 100

#: Most steps of one evaluation: operators for one value, elements of lists that it flattens, and texts that it makes.
CONDITION_STEPS = 100_000

#: Characters of a text that are made in one step.
CHARACTERS_OF_A_STEP = 100

# What evaluations raise. JMESPathError is a ValueError; the order of a text and a number a TypeError, the integer of infinity an
# ArithmeticError.
_EVALUATION = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ArgumentError(
            f"where={arguments.shown(text)}: is no JMESPath expression for a condition ({reason}); one is: {EXAMPLE}"
        ) from None
    return text


def holds(where: str, message: Mapping[str, Any]) -> bool:
    """Whether a condition holds for a message (:func:`content`): its result is neither false, null, nor empty.

    :raises ConditionError: it cannot be evaluated.
    :raises ConfigurationError: the package jmespath is not installed.
    """
    try:
        tree = _compiled(where)
        _, interpreter = _language()
        found = interpreter().visit(tree, message)
    except _EVALUATION as error:
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
    except (ValueError, RecursionError):
        payload = None
    headers = json.loads(message.headers) if message.headers else None
    return content(topic, message.kind, payload, message.message_key, message.client, headers)


@lru_cache(maxsize=1024)
def _compiled(where: str) -> Any:
    """The tree of a condition.

    :raises ValueError: it is no JMESPath expression, or one whose values could be ever larger than the message.
    """
    parser, _ = _language()
    tree = parser().parse(where).parsed
    _check_growth(tree, 1)
    return tree


@lru_cache(maxsize=1)
def _language() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What makes parsers, and interpreters for one evaluation."""
    try:
        from jmespath.parser import Parser
        from jmespath.visitor import TreeInterpreter
    except ImportError:
        raise ConfigurationError('a route has a condition, and jmespath is not installed: pip install "queue-db[routes]"') from None

    class Interpreter(TreeInterpreter):  # type: ignore[misc]
        """Filters within filters of long lists would take hours, in each publisher."""

        def __init__(self) -> None:
            super().__init__()
            self._left = CONDITION_STEPS

        def visit(self, node: Any, *args: Any, **options: Any) -> Any:
            self._spend(1)
            return super().visit(node, *args, **options)

        def visit_flatten(self, node: Any, value: Any) -> Any:
            base = self.visit(node["children"][0], value)
            if not isinstance(base, list):
                return None
            lists = [one if isinstance(one, list) else [one] for one in base]
            self._spend(sum(map(len, lists)))  # before the long list is made
            return list(chain.from_iterable(lists))

        def visit_function_expression(self, node: Any, value: Any) -> Any:
            found = super().visit_function_expression(node, value)
            if isinstance(found, str):  # to_string of a list with a text doubles its backslashes, each time
                self._spend(len(found) // CHARACTERS_OF_A_STEP)
            return found

        def _spend(self, steps: int) -> None:
            self._left -= steps
            if self._left < 0:
                raise ValueError(f"it takes more than {CONDITION_STEPS:,} steps for this message")

    return Parser, Interpreter


def _check_growth(node: Any, depth: int) -> None:
    """Refuse what makes one value of several others: repeated, each time it doubles what a publisher has in memory.

    :raises ValueError: it does, or it is nested too deep.
    """
    if not isinstance(node, dict):  # a number of a slice
        return
    kind, children = node["type"], node["children"]
    if depth > CONDITION_DEPTH:
        raise ValueError(f"more than {CONDITION_DEPTH} operators are within each other")
    if kind == "multi_select_dict" or (kind == "function_expression" and node["value"] == "join"):
        raise ValueError("conditions cannot make objects, or join texts")
    if kind == "multi_select_list" and any(child["type"] != "literal" for child in children):
        raise ValueError("conditions cannot make lists of anything but literals")
    for child in children:
        _check_growth(child, depth + 1)
