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
from queue_db.feeds.store.messages import NewMessage
from queue_db.routes.tables import COUNTED_KEY_LENGTH

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

#: What a condition sees of a message.
FIELDS = ("topic", "kind", "key", "client", "headers", "payload")

#: Nodes of JMESPath whose first part is what the other parts look into.
_STEPS = {"subexpression", "index_expression", "projection", "value_projection", "filter_projection", "flatten"}

#: A condition, for errors and help.
EXAMPLE = "payload.celsius > `70` && headers.site == 'north'"

# Expressions that need no package: names of fields of a message.
_PLAIN = frozenset({"topic", "kind", "key", "client"})


class ConditionError(Exception):
    """A condition cannot be evaluated for a message, as a function got a value of the wrong type; or a key is none."""


class Options(NamedTuple):
    """What the options of a definition say beside the group of its jobs."""

    where: str | None = None  #: the condition under which the route acts
    matched: bool = False  #: whether what the route makes has the header ``matched``
    by: str | None = None  #: what the route counts by


def options_of(stored: str | None) -> Options:
    """The options of a stored definition."""
    found = json.loads(stored) if stored else {}
    return Options(found.get("where"), found.get("matched", False), found.get("by"))


def check(where: object, what: str = "where", example: str = EXAMPLE) -> str:
    """Check a condition, or another expression.

    :raises ArgumentError: it is no JMESPath expression, or has a name, function or ``!`` by which it can hold for no message.
    :raises ConfigurationError: the package jmespath is not installed.
    """
    text = arguments.name(what, where, CONDITION_LENGTH)
    try:
        wrong = None if text in _PLAIN else _mistake(_compiled(text), of_message=True)
    except (ValueError, RecursionError) as error:
        wrong = f"is no JMESPath expression for a route ({' '.join(str(error).split())})"
    if wrong:
        raise arguments.wrong(what, text, f": {wrong}; one is: {example}")
    return text


def holds(where: str, message: Mapping[str, Any]) -> bool:
    """Whether a condition holds for a message (:func:`content`): its result is neither false, null, nor empty.

    :raises ConditionError: it cannot be evaluated.
    :raises ConfigurationError: the package jmespath is not installed.
    """
    found = _search(where, message)
    return found is not None and found is not False and found not in ("", [], {})


def counted_key(by: str, message: Mapping[str, Any]) -> str | None:
    """The key by which a message is counted; None: the expression gives null.

    :raises ConditionError: the expression cannot be evaluated, or gives no text, number or boolean, or one that is no key.
    :raises ConfigurationError: the package jmespath is not installed.
    """
    found = _search(by, message)
    if found is None:
        return None
    if not isinstance(found, str | int | float):
        raise ConditionError(f"by={arguments.shown(by)} gives {arguments.shown(found)}: a key is a text, a number or a boolean")
    try:
        return arguments.name("key", found if isinstance(found, str) else json.dumps(found), COUNTED_KEY_LENGTH)
    except (ArgumentError, ValueError) as error:  # an integer of thousands of digits is a ValueError
        raise ConditionError(str(error)) from error


def content(
    topic: str, kind: str, payload: Any, key: str | None, client: str | None, headers: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A message as conditions see it."""
    return dict(zip(FIELDS, (topic, kind, key, client, dict(headers or {}), payload), strict=True))


def content_of(topic: str, message: NewMessage) -> dict[str, Any]:
    """A stored message as conditions see it; a payload that is no JSON, as of another codec, is null."""
    try:
        payload = json.loads(message.payload)
    except (ValueError, RecursionError):
        payload = None
    headers = json.loads(message.headers) if message.headers else None
    return content(topic, message.kind, payload, message.message_key, message.client, headers)


def _search(expression: str, message: Mapping[str, Any]) -> Any:
    """What an expression gives.

    :raises ConditionError: it cannot be evaluated.
    """
    if expression in _PLAIN:
        return message.get(expression)
    try:
        tree = _compiled(expression)
        _, interpreter = _language()
        return interpreter().visit(tree, message)
    except _EVALUATION as error:
        raise ConditionError(str(error)) from error


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
        raise ConfigurationError(
            'a route has an expression, and jmespath is not installed: pip install "queue-db[routes]"'
        ) from None

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
        raise ValueError("routes cannot make objects, or join texts")
    if kind == "multi_select_list" and any(child["type"] != "literal" for child in children):
        raise ValueError("routes cannot make lists of anything but literals")
    for child in children:
        _check_growth(child, depth + 1)


def _mistake(node: Mapping[str, Any], *, of_message: bool) -> str | None:
    """Why a part of an expression is null or an error for each message; None: it is not. JMESPath itself accepts all of these.

    :param of_message: whether the part sees the message, and not what another part has found in it.
    """
    kind, parts = node["type"], [part for part in node["children"] if isinstance(part, dict)]
    if kind == "field" and of_message and node["value"] not in FIELDS:
        known = ", ".join(FIELDS)
        return f"a message has no {node['value']!r}, only {known}; a text stands in single quotes, other literals in backticks"
    if kind in _STEPS and parts[0]["type"] == "not_expression":
        return "! takes the first name after it alone, and true has no fields: write !(payload.urgent)"
    if kind == "function_expression" and (wrong := _miscall(node["value"], len(parts))):
        return wrong
    for number, part in enumerate(parts):
        inside = kind == "expref" or (number > 0 and (kind in _STEPS or kind == "pipe"))
        if wrong := _mistake(part, of_message=of_message and not inside):
            return wrong
    return None


def _miscall(name: str, given: int) -> str | None:
    from jmespath.functions import Functions

    if (function := Functions.FUNCTION_TABLE.get(name)) is None:
        return f"there is no function {name!r}"
    takes, more = len(function["signature"]), any(one.get("variadic") for one in function["signature"])
    if given == takes or (more and given > takes):
        return None
    return f"{name} takes {takes}{' or more' if more else ''} argument{'s' if more or takes != 1 else ''}, not {given}"
