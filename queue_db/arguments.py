"""What callers may pass: checked at the door, each refusal naming the argument, what came, and what is allowed."""

from __future__ import annotations

import math
import reprlib
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from queue_db.errors import ArgumentError
from queue_db.model import to_micros

#: Longest wait or lease, seconds: beyond a hundred years it is a mistake of units.
LONGEST = 100 * 365.25 * 86400

_INT32 = 2**31

# Bits of the largest number that a message writes out: Python itself refuses to print one of 5,000 digits.
_PRINTED = 256


class _Short(reprlib.Repr):
    """Cuts what is long, and stands a ``repr`` that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= _PRINTED else f"a number of {x.bit_length():,} bits"


def shown(value: object) -> str:
    """A value as a message shows it."""
    return _Short().repr(value)


def number(what: str, value: object) -> float:
    """A finite number; what is too large for a float is refused too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{what}={shown(value)}: must be a finite number")
    try:
        given = float(value)
    except OverflowError:
        given = math.inf
    if not math.isfinite(given):
        raise ArgumentError(f"{what}={shown(value)}: must be a finite number")
    return given


def name(what: str, value: object, longest: int) -> str:
    """A queue, kind or key: 1 to ``longest`` characters, no control characters, no blanks at its ends."""
    if not isinstance(value, str):
        raise ArgumentError(f"{what}={shown(value)}: must be a string")
    if not value:
        raise ArgumentError(f"{what} is empty: give it 1 to {longest} characters")
    if len(value) > longest:
        raise ArgumentError(f"{what} has {len(value)} characters; {longest} is the limit")
    if value != value.strip():
        # Some databases compare with trailing blanks ignored: "mail " would be "mail".
        raise ArgumentError(f"{what}={shown(value)} begins or ends with a blank")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise ArgumentError(f"{what}={shown(value)} contains a control character")
    # A member of an enumeration is written as its value: some formats would show its name.
    return value if type(value) is str else str.__str__(value)


def seconds(what: str, value: object, *, zero: bool = True) -> int:
    """A span in seconds (number or timedelta) as microseconds; negative, NaN and infinite ones are refused."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{what}={shown(value)}: must be a number of seconds")
    if isinstance(value, float) and not math.isfinite(value):
        raise ArgumentError(f"{what}={shown(value)}: must be a finite number of seconds")
    if value < 0 or (not zero and value == 0):
        raise ArgumentError(f"{what}={shown(value)}: must be {'0 or more' if zero else 'more than 0'} seconds")
    if value > LONGEST:
        raise ArgumentError(f"{what}={shown(value)}: longer than a hundred years; the unit is seconds")
    micros = round(value * 1_000_000)
    return micros if zero else max(micros, 1)


def moment(what: str, value: object) -> int | None:
    """An aware datetime as microseconds since 1970, or None."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ArgumentError(f"{what}={shown(value)}: must be a datetime with a time zone")
    try:
        aware = value.utcoffset() is not None
    except (NotImplementedError, TypeError, ValueError):  # raised by the caller's tzinfo; Python's base class does
        aware = False
    if not aware:
        raise ArgumentError(f"{what}={shown(value)} has no time zone: use datetime.now(UTC) or .astimezone()")
    return to_micros(value)


def whole(what: str, value: object, lowest: int, highest: int = _INT32 - 1) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{what}={shown(value)}: must be a whole number")
    if not lowest <= value <= highest:
        raise ArgumentError(f"{what}={shown(value)}: must be {lowest:,} to {highest:,}")
    return value if type(value) is int else int(value)  # as in :func:`name`


def fraction(what: str, value: object) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{what}={shown(value)}: must be a number from 0 to 1")
    if not 0 <= value <= 1:
        raise ArgumentError(f"{what}={shown(value)}: must be 0 to 1")
    return float(value)


def members(what: str, value: object, of_what: str) -> list[Any]:
    """The elements of an iterable of ``of_what``; refuses a single string, which is easily passed by mistake."""
    if type(value) is not list and (not isinstance(value, Iterable) or isinstance(value, str | bytes)):
        raise ArgumentError(f"{what}={shown(value)}: must be a list of {of_what}")
    return list(value)


def text(what: str, value: object, longest: int) -> str | None:
    """A free text or None, cut to ``longest`` characters, as every database can store it; an empty one is None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ArgumentError(f"{what}={shown(value)}: must be a string")
    return storable(value, longest) or None


def storable(text: str, longest: int) -> str:
    """The text cut to ``longest`` characters, without those that a database cannot store."""
    # PostgreSQL text cannot hold NUL; a lone surrogate cannot be encoded.
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def headers(value: object) -> Mapping[str, Any] | None:
    """A mapping with string keys, or None."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentError(f"headers={shown(value)}: must be a mapping with string keys")
    return value
