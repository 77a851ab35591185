"""Checks of arguments. Each refusal names the argument, the given value, and what is allowed."""

from __future__ import annotations

import asyncio
import inspect
import math
import reprlib
import sys
import unicodedata
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from types import FunctionType, GeneratorType, MethodType
from typing import Any, TypeVar, cast

from queue_db.errors import ArgumentError, ConfigurationError, HandlerResultError
from queue_db.model import to_micros

#: The longest wait or lease, in seconds: more than a hundred years must be a mistake in the unit.
LONGEST = 100 * 365.25 * 86400

_T = TypeVar("_T")

_INT32 = 2**31

# Numbers with more bits are not written out in messages: Python refuses to print a number of 5,000 digits.
_PRINTED = 256


# The words of JSON for these values.
_JSON: dict[object, str] = {None: "null", True: "true", False: "false"}


class _Short(reprlib.Repr):
    """A ``repr`` that shortens long values, and works even if the ``repr`` of the value raises."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= _PRINTED else f"a number of {x.bit_length():,} bits"


# Results of a function that has not done its work, each with its name and the remedy.
_NOT_DONE: tuple[tuple[Any, str], ...] = (
    (asyncio.Future, "a task, which may not have ended: await it"),
    (Future, "a future, which may not have ended: return future.result()"),
    (GeneratorType | map | filter, "a generator, whose code has not run: use a loop, or return in place of yield"),
    (AsyncGenerator, "an asynchronous generator, whose code has not run: use async for, or return in place of yield"),
    (Coroutine, "a coroutine, whose code has not run: await it in an async def; what decorates it must be async def too"),
    (Awaitable, "an awaitable object, which was not awaited: await it in an async def"),
    (FunctionType | MethodType | partial, "a function, which was not called: add the brackets"),
)


def shown(value: object) -> str:
    """The text of a value in messages."""
    return _Short().repr(value)


def wrong(what: str, value: object, why: str) -> ArgumentError:
    """The error that refuses ``value``. In the message ``why`` follows the value."""
    on_the_wire = _JSON.get(value, shown(value)) if value is None or isinstance(value, bool) else shown(value)
    return ArgumentError(wire=f"{what} {on_the_wire}{why}", argument=what, problem=f"={shown(value)}{why}")


def number(what: str, value: object) -> float:
    """Check that the value is a finite number, and not too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(what, value, ": must be a finite number")
    try:
        given = float(value)
    except OverflowError:
        given = math.inf
    if not math.isfinite(given):
        raise wrong(what, value, ": must be a finite number")
    return given


def name(what: str, value: object, longest: int) -> str:
    """Check the name of a queue, a kind or a key: 1 to ``longest`` characters, no control characters, no blanks at its ends."""
    if not isinstance(value, str):
        raise wrong(what, value, ": must be a string")
    if not value:
        raise ArgumentError(argument=what, problem=f" is empty: give it 1 to {longest} characters")
    if len(value) > longest:
        raise ArgumentError(argument=what, problem=f" has {len(value)} characters; {longest} is the limit")
    if value != value.strip():
        # Some databases ignore trailing blanks when they compare: "mail " would equal "mail".
        raise wrong(what, value, " begins or ends with a blank")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise wrong(what, value, " contains a control character")
    # The plain string of a member of an enumeration: some formats would show the member's name.
    return value if type(value) is str else str.__str__(value)


def seconds(what: str, value: object, *, zero: bool = True) -> int:
    """A time span (seconds as a number, or a timedelta) in microseconds. Negative, NaN and infinite values are refused."""
    if type(value) is float and 1.0 <= value <= LONGEST:  # most values: the checks below take long
        return round(value * 1_000_000)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(what, value, ": must be a number of seconds")
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(what, value, ": must be a finite number of seconds")
    if value < 0 or (not zero and value == 0):
        raise wrong(what, value, f": must be {'0 or more' if zero else 'more than 0'} seconds")
    if value > LONGEST:
        raise wrong(what, value, ": longer than a hundred years; the unit is seconds")
    micros = round(value * 1_000_000)
    return micros if zero else max(micros, 1)


def moment(what: str, value: object) -> int | None:
    """An aware datetime as microseconds since 1970, or None."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise wrong(what, value, ": must be a datetime with a time zone")
    try:
        aware = value.utcoffset() is not None
    except (NotImplementedError, TypeError, ValueError):  # the caller's tzinfo raises it, as Python's base class does
        aware = False
    if not aware:
        raise wrong(what, value, " has no time zone: use datetime.now(UTC) or .astimezone()")
    return to_micros(value)


def whole(what: str, value: object, lowest: int, highest: int = _INT32 - 1) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(what, value, ": must be a whole number")
    if not lowest <= value <= highest:
        raise wrong(what, value, f": must be {lowest:,} to {highest:,}")
    return value if type(value) is int else int(value)  # the plain number of a member of an enumeration, as in name()


def fraction(what: str, value: object) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(what, value, ": must be a number from 0 to 1")
    if not 0 <= value <= 1:
        raise wrong(what, value, ": must be 0 to 1")
    return float(value)


def members(what: str, value: object, of_what: str) -> list[Any]:
    """The elements of an iterable. A single string is refused, since it is easily passed by mistake.

    :param of_what: what the elements are, for the message.
    """
    if type(value) is not list and (not isinstance(value, Iterable) or isinstance(value, str | bytes)):
        raise wrong(what, value, f": must be a list of {of_what}")
    return list(value)


def text(what: str, value: object, longest: int) -> str | None:
    """A free text that every database can store, cut to ``longest`` characters; None for an empty text or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong(what, value, ": must be a string")
    return storable(value, longest) or None


def storable(text: str, longest: int) -> str:
    """The text, cut to ``longest`` characters, with a replacement for each character that a database cannot store."""
    # PostgreSQL text cannot hold NUL; a lone surrogate cannot be encoded.
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def error_class(value: object, longest: int) -> str | None:
    """Check a filter by error class: the name of an exception's class; empty: the handler gave a reason; None: no filter."""
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > longest:
        raise wrong("error_class", value, f": must be the name of an exception's class, at most {longest} characters")
    return storable(value, longest)


def headers(value: object) -> Mapping[str, Any] | None:
    """A mapping with string keys, or None."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise wrong("headers", value, ": must be a mapping with string keys")
    return value


def chosen(what: str, given: object, known: Mapping[str, Callable[[], _T]], protocol: Any, members: str) -> _T:
    """The object that ``known`` makes for the name ``given``; or ``given`` itself, if it is an object of ``protocol``.

    :param members: the members of ``protocol``, for the message.
    :raises ConfigurationError: ``given`` is neither a known name nor such an object.
    """
    if isinstance(given, str):
        if given not in known:
            names = ", ".join(sorted(known))
            unknown = f"unknown {what} {given!r}; known: {names}"
            raise ConfigurationError(f"{unknown} (or pass a {protocol.__name__} object)", cli=unknown)
        return known[given]()
    if isinstance(given, type):
        raise ConfigurationError(f"{what}={given.__name__} is a class: pass an object, {given.__name__}()")
    if not isinstance(given, protocol):
        raise ConfigurationError(f"{what}={shown(given)} is neither a name nor an object with {members}")
    return cast("_T", given)


def asynchronous(function: object) -> bool:
    """Whether a call of ``function`` returns a coroutine: ``async def``, a partial of it, or an object with such a ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_called(function))


def not_run(function: object) -> str | None:
    """For a generator function, whose code does not run at the call: what it is and the remedy. None for any other function."""
    called = _called(function)
    if inspect.isasyncgenfunction(called):
        return "is an asynchronous generator function, whose code does not run when it is called: remove yield"
    if inspect.isgeneratorfunction(called):
        return "is a generator function, whose code does not run when it is called: remove yield"
    return None


def takes(what: str, function: Callable[..., object], *described: str) -> None:
    """Check that ``function`` takes this number of arguments. Skipped if a decorator set its signature, or if it has none.

    :param described: a word for each argument, for the message.
    :raises ArgumentError: ``function`` takes another number of arguments.
    """
    if hasattr(function, "__signature__"):  # a decorator set it for readers: the wrapper may take other arguments
        return
    try:
        found = signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        found.bind(*described)
    except TypeError as error:
        raise ArgumentError(f"{what} must be a function of {' and of '.join(described)}: {error}") from None


def signature(function: Callable[..., object], *, follow_wrapped: bool = True) -> inspect.Signature:
    """The signature of a function. Its annotations may name what is not defined yet, or only for type checkers.

    :raises TypeError, ValueError: it has none.
    """
    if sys.version_info >= (3, 14):  # which evaluates annotations when they are asked for
        from annotationlib import Format

        return inspect.signature(function, follow_wrapped=follow_wrapped, annotation_format=Format.FORWARDREF)
    return inspect.signature(function, follow_wrapped=follow_wrapped)


def plain(what: str, function: object) -> None:
    """Check that ``function`` is a plain function: its result is not awaited.

    :raises ArgumentError: ``function`` is ``async def``, or a generator function.
    """
    if asynchronous(function) or not_run(function) is not None:
        raise ArgumentError(f"{what}={shown(function)}: must be a plain function, without async and yield: nothing awaits it")


def done(what: str, result: object) -> None:
    """Check that a function had done its work when it returned ``result``. If not, a coroutine is closed and a future cancelled.

    :param what: the function, for the message.
    :raises HandlerResultError: ``result`` is a coroutine, another awaitable, a generator, a future or a function.
    """
    for kind, problem in () if result is None else _NOT_DONE:
        if isinstance(result, kind):
            _stop(result)
            raise HandlerResultError(f"{what} returned {problem}")


def _stop(result: Any) -> None:
    """Close a coroutine, or cancel a task or a future."""
    if isinstance(result, Coroutine):
        result.close()
    elif isinstance(result, Future):
        result.cancel()
    elif isinstance(result, asyncio.Future):
        with suppress(RuntimeError):  # the event loop of the future is closed
            result.get_loop().call_soon_threadsafe(result.cancel)


def _called(function: object) -> Any:
    """The function that a call of ``function`` runs: the one within partials, or the ``__call__`` of an object."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
