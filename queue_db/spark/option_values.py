"""The values of options: each function here checks the text of an option and returns its value, or raises an ArgumentError."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from queue_db import arguments
from queue_db.errors import ArgumentError
from queue_db.feeds.position import Position
from queue_db.model import to_micros
from queue_db.spark.tables import APP_LENGTH

# Days; a hundred years.
_LONGEST = 36_500

# Names that the package gives: a streaming query has its id, a load without txnAppId a random name. The random form is allowed,
# since `enqueue` passes it as txnAppId.
_RESERVED = re.compile(r"query:|write:(?![0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z)")


def text(name: str, value: str) -> str:
    """Any text."""
    return value


def whole(lowest: int, highest: int) -> Callable[[str, str], int]:
    """A whole number in a range; ``1_000`` too."""

    def parse(name: str, value: str) -> int:
        try:
            number = int(value.replace("_", ""))
        except ValueError:
            raise ArgumentError(f"{name}={value!r}: must be a whole number") from None
        return arguments.whole(name, number, lowest, highest)

    return parse


def name_of(longest: int) -> Callable[[str, str], str]:
    """A name of up to ``longest`` characters."""
    return lambda name, value: arguments.name(name, value, longest)


def names(longest: int) -> Callable[[str, str], tuple[str, ...]]:
    """Names of up to ``longest`` characters, separated by commas."""
    return lambda name, value: tuple(sorted({arguments.name(name, one.strip(), longest) for one in value.split(",")}))


def position(*words: str) -> Callable[[str, str], Position | str]:
    """A position, or one of some words, in any case."""

    def parse(name: str, value: str) -> Position | str:
        if value.lower() in words:
            return value.lower()
        try:
            return Position.parse(value)
        except ArgumentError:
            known = ", ".join(words)
            raise ArgumentError(
                f"{name}={value!r}: must be {known} or a position, as in the column 'position' or page.position"
            ) from None

    return parse


def time(name: str, value: str) -> int:
    """A time with its zone, in ISO 8601, as microseconds since 1970, UTC."""
    try:
        found = datetime.fromisoformat(value)
        if found.tzinfo is not None:
            return to_micros(found.astimezone(UTC))
    except (ValueError, OverflowError):
        pass
    raise ArgumentError(f"{name}={value!r}: must be a time with its zone, such as 2026-03-01T00:00:00Z") from None


def one_of(*known: str) -> Callable[[str, str], str]:
    """One of some words, in any case."""

    def parse(name: str, value: str) -> str:
        if value.lower() not in known:
            raise ArgumentError(f"{name}={value!r}: must be {', '.join(known[:-1])} or {known[-1]}")
        return value.lower()

    return parse


def some_of(*known: str) -> Callable[[str, str], tuple[str, ...]]:
    """Some of these words, separated by commas, in any case, in the order of ``known``."""
    one = one_of(*known)

    def parse(name: str, value: str) -> tuple[str, ...]:
        given = {one(name, word.strip()) for word in value.split(",")}
        return tuple(word for word in known if word in given)

    return parse


def flag(name: str, value: str) -> bool:
    """``true`` or ``false``."""
    return one_of("true", "false")(name, value) == "true"


def app(name: str, value: str) -> str:
    """The name of a load, outside of the names that the package gives itself."""
    given = arguments.name(name, value, APP_LENGTH)
    if _RESERVED.match(given):
        raise ArgumentError(f"{name}={value!r}: names that begin with write: or query: are queue_db's own")
    return given


def span(name: str, value: str) -> int:
    """A number of seconds, as microseconds."""
    try:
        number = float(value)
    except ValueError:
        raise ArgumentError(f"{name}={value!r}: must be a number of seconds") from None
    return arguments.seconds(name, number, zero=False)


def days(name: str, value: str) -> float:
    """A number of days."""
    try:
        number = float(value)
    except ValueError:
        raise ArgumentError(f"{name}={value!r}: must be a number of days") from None
    if not 0 < number < _LONGEST:
        raise ArgumentError(f"{name}={value!r}: must be more than 0 and less than {_LONGEST:,} days")
    return number
