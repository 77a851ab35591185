"""Which messages a pattern matches: by their topic (exact, Redis' globs, AMQP's words), or by their headers too.

The database finds the subscriptions that may match, by an index or by ``LIKE``. This module decides, the same on every database.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

from queue_db import arguments
from queue_db.routes.tables import PATTERN_LENGTH
from queue_db.store.schema import TOPIC_LENGTH

PatternForm = Literal["exact", "glob", "amqp", "headers"]
"""The form of a pattern of topics."""

#: All forms, the simplest first.
FORMS: tuple[PatternForm, ...] = get_args(PatternForm)

#: The character before ``%``, ``_`` and itself in a LIKE pattern that stands for the character alone.
ESCAPE = "!"

#: The form whose patterns look at headers too.
HEADERS = "headers"

# Stands for any number of items, also none. Any other token is a test of one item.
_MANY = None

_Token = Callable[[str], bool] | None


class Pattern(NamedTuple):
    """A pattern as it is stored."""

    form: str
    text: str
    topic: str  #: the only topic that matches; empty: there are several
    like: str  #: a LIKE pattern that matches all topics that the pattern matches, and maybe others


def pattern(text: str, form: str) -> Pattern:
    """Check a pattern.

    :raises ArgumentError: unknown form, or a text that cannot match.
    """
    if not isinstance(form, str) or (form not in _FORMS and form != HEADERS):
        raise arguments.wrong("form", form, f": must be {', '.join(sorted((*_FORMS, HEADERS)))}")
    arguments.name("pattern", text, PATTERN_LENGTH)
    if form == HEADERS:
        return _by_headers(text)
    _, like = _FORMS[form]
    like_pattern, literal = like(text)
    if literal is not None:
        arguments.name("pattern", literal, TOPIC_LENGTH)
    return Pattern(form, text, literal or "", like_pattern)


def matches(form: str, text: str, topic: str, headers: Mapping[str, Any] | None = None) -> bool:
    """Whether a pattern matches a message with this topic and these headers."""
    if form == HEADERS:
        return _conditions(text).match(topic, headers or {})
    if form == "exact":
        return text == topic
    tokens = _tokens(form, text)
    return _match(tokens, topic.split(".") if form == "amqp" else topic)


@lru_cache(maxsize=16_384)
def _tokens(form: str, text: str) -> tuple[_Token, ...]:
    compiled, _ = _FORMS[form]
    return compiled(text)


def _match(tokens: Sequence[_Token], items: Sequence[str]) -> bool:
    """Whether the tokens match all items. It looks at each item at most once for each token: no pattern takes long."""
    token = item = 0
    star, resume = -1, 0
    while item < len(items):
        test = tokens[token] if token < len(tokens) else _never
        if test is _MANY:
            star, resume = token, item
            token += 1
        elif test(items[item]):
            token, item = token + 1, item + 1
        elif star >= 0:
            # The last star takes one item more; an earlier one need not.
            resume += 1
            token, item = star + 1, resume
        else:
            return False
    return all(one is _MANY for one in tokens[token:])


def _never(item: str) -> bool:
    return False


def _any(item: str) -> bool:
    return True


def _is(text: str) -> Callable[[str], bool]:
    return text.__eq__


# --- globs, as Redis has them ---------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A part of a glob: ``*``, ``?``, a class of characters, or one character."""

    token: _Token
    literal: str | None  #: the character, if it is one


def _pieces(text: str) -> list[_Piece]:
    found: list[_Piece] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "*":
            if not found or found[-1].token is not _MANY:
                found.append(_Piece(_MANY, None))
        elif character == "?":
            found.append(_Piece(_any, None))
        elif character == "[":
            test, at = _class(text, at)
            found.append(_Piece(test, None))
        else:
            if character == "\\" and at < len(text):
                character = text[at]
                at += 1
            found.append(_Piece(_is(character), character))
    return found


def _class(text: str, at: int) -> tuple[Callable[[str], bool], int]:
    """The class that begins after its bracket, and where the rest begins. One that is not closed goes to the end, as in Redis."""
    negated = text[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while at < len(text) and text[at] != "]":
        if text[at] == "\\" and at + 1 < len(text):
            ranges.append((text[at + 1], text[at + 1]))
            at += 2
        elif text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            low, high = sorted((text[at], text[at + 2]))
            ranges.append((low, high))
            at += 3
        else:
            ranges.append((text[at], text[at]))
            at += 1
    return lambda item: any(low <= item <= high for low, high in ranges) != negated, at + 1


def _glob(text: str) -> tuple[_Token, ...]:
    return tuple(piece.token for piece in _pieces(text))


def _glob_like(text: str) -> tuple[str, str | None]:
    pieces = _pieces(text)
    literals = [piece.literal for piece in pieces]
    parts = [_like(piece.literal) if piece.literal is not None else "%" if piece.token is _MANY else "_" for piece in pieces]
    return "".join(parts), None if None in literals else "".join(one for one in literals if one)


# --- AMQP: words with dots between them -----------------------------------------------------------------------------


def _amqp(text: str) -> tuple[_Token, ...]:
    return tuple(_MANY if word == "#" else _any if word == "*" else _is(word) for word in text.split("."))


def _amqp_like(text: str) -> tuple[str, str | None]:
    words = text.split(".")
    if "*" not in words and "#" not in words:
        return _like(text), text
    found = ""
    for at, word in enumerate(words):
        if word == "#":
            # No words are possible too, and then the dots beside it are missing.
            found = found.rstrip(".") + "%"
        else:
            dot = "." if at and words[at - 1] != "#" else ""
            found += dot + ("%" if word == "*" else _like(word))
    return found, None


# --- headers --------------------------------------------------------------------------------------------------------


class _Conditions(NamedTuple):
    """What a pattern of the form ``headers`` asks for."""

    topic: str | None  #: None: any
    every: bool  #: all of the headers, not only one of them
    headers: Mapping[str, Any]  #: header → its value; None: it is there

    def match(self, topic: str, headers: Mapping[str, Any]) -> bool:
        if self.topic is not None and self.topic != topic:
            return False
        found = (name in headers and (value is None or _same(headers[name], value)) for name, value in self.headers.items())
        return all(found) if self.every else any(found)


def _same(one: Any, other: Any) -> bool:
    # In Python 1 is True.
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def _by_headers(text: str) -> Pattern:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise arguments.wrong("pattern", text, ": with the form headers it must be a JSON object of headers and their values")
    topic, match = given.pop("topic", None), given.pop("x-match", "all")
    if not given or not all(_comparable(value) for value in given.values()):
        raise arguments.wrong("pattern", text, ": name one header or more, each with a text, finite number, true, false or null")
    if match not in ("all", "any"):
        raise arguments.wrong("pattern", text, ": x-match must be all or any")
    if topic is not None:
        arguments.name("topic", topic, TOPIC_LENGTH)
    # The same conditions are the same subscription: without what is the default, and 1.0 as 1.
    asked = {name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in given.items()}
    if topic is not None:
        asked["topic"] = topic
    if match == "any" and len(given) > 1:
        asked["x-match"] = match
    stored = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Pattern(HEADERS, arguments.name("pattern", stored, PATTERN_LENGTH), topic or "", "%" if topic is None else _like(topic))


def _comparable(value: Any) -> bool:
    # NaN equals nothing, and JSON has no infinity.
    return math.isfinite(value) if isinstance(value, float) else not isinstance(value, dict | list)


@lru_cache(maxsize=16_384)
def _conditions(text: str) -> _Conditions:
    given = json.loads(text)
    asked = {name: value for name, value in given.items() if name not in {"topic", "x-match"}}
    return _Conditions(given.get("topic"), given.get("x-match", "all") == "all", asked)


def _exact(text: str) -> tuple[_Token, ...]:
    return tuple(_is(character) for character in text)


def _exact_like(text: str) -> tuple[str, str | None]:
    return _like(text), text


def _like(text: str) -> str:
    """The text alone, as a LIKE pattern."""
    return "".join(f"{ESCAPE}{character}" if character in f"%_{ESCAPE}" else character for character in text)


# Form → how its texts are compiled, and made LIKE patterns (and the only topic, if there is one).
_FORMS: dict[str, tuple[Callable[[str], tuple[_Token, ...]], Callable[[str], tuple[str, str | None]]]] = {
    "exact": (_exact, _exact_like),
    "glob": (_glob, _glob_like),
    "amqp": (_amqp, _amqp_like),
}
