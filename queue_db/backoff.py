"""Backoff: how many seconds a job waits after a failed attempt. A backoff is a function of the attempt's number, from 1.

A handler's backoff that returns ``math.inf`` gives up: the job is dead, whatever attempts are left.

The functions here make backoffs: ``handles("welcome", backoff=exponential(base=15, max=3600))``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import timedelta

from queue_db import arguments
from queue_db.errors import ArgumentError

Backoff = Callable[[int], float]
Chance = Callable[[], float]
"""A random number in [0, 1)."""

# After 64 doublings every maximum has been reached. Both limits together keep the floats finite.
_MOST_STEPS = 64
_LARGEST_FACTOR = 1000.0


def checked(what: str, function: object) -> Backoff:
    """``function``, if it can be called with the number of an attempt. This does not call it.

    :param what: the name of the argument, for the message.
    :raises ArgumentError: ``function`` cannot be called so.
    """
    if not callable(function):
        hint = f": constant({function!r}) waits the same time before every attempt" if isinstance(function, int | float) else ""
        raise ArgumentError(f"{what}={function!r}: must be a function of the attempt's number, such as exponential(){hint}")
    arguments.plain(what, function)
    try:
        arguments.signature(function).bind(1)
    except TypeError as error:
        raise ArgumentError(f"{what}={function!r}: must take one argument, the attempt's number: {error}") from None
    except ValueError:
        pass  # a function in C without a signature
    return function


def give_up(attempt: int) -> float:
    """Give up: the job is dead after this attempt, as in ``retry={ValueError: give_up}``."""
    return math.inf


def constant(seconds: float) -> Backoff:
    """Wait the same time before every attempt.

    :raises ArgumentError: ``seconds`` is not 0 seconds or more.
    """
    wait = _span("seconds", seconds)
    return lambda attempt: wait


def listed(seconds: Sequence[float]) -> Backoff:
    """Wait the times of a list, one after the other, then repeat the last one: ``listed([1, 5, 30])``.

    :raises ArgumentError: the list is empty, or one of its waits is not 0 seconds or more.
    """
    waits = [_span("seconds", wait) for wait in arguments.members("seconds", seconds, "seconds")]
    if not waits:
        raise ArgumentError("listed([]): give it one wait at least")
    return lambda attempt: waits[min(max(attempt, 1), len(waits)) - 1]


def exponential(
    base: float = 5.0,
    factor: float = 2.0,
    max: float = 3600.0,  # noqa: A002 - the usual name
    jitter: float = 0.2,
    rng: Chance = random.random,
) -> Backoff:
    """Wait ``base · factor^(attempt-1)`` seconds, at most ``max``, spread by ± ``jitter`` (a share of the wait).

    With the defaults, the waits are 5 s, 10 s, 20 s … and an hour from the eleventh attempt on. 25 attempts last about 16 hours.

    :raises ArgumentError: a value is outside its allowed range.
    """
    base, ceiling, factor = _span("base", base), _span("max", max), arguments.number("factor", factor)
    jitter, rng = arguments.fraction("jitter", jitter), _chance(rng)
    if not 0 <= factor <= _LARGEST_FACTOR:
        raise ArgumentError(f"factor={factor:g}: must be 0 to {_LARGEST_FACTOR:g}")

    def seconds(attempt: int) -> float:
        wait = min(ceiling, base * factor ** min(_steps(attempt), _MOST_STEPS))
        return wait * (1.0 + jitter * (2.0 * rng() - 1.0))

    return seconds


def geometric(base: float = 5.0, ratio: float = 2.0, max: float = 3600.0) -> Backoff:  # noqa: A002
    """:func:`exponential` without jitter.

    :raises ArgumentError: a value is outside its allowed range.
    """
    return exponential(base, arguments.number("ratio", ratio), max, jitter=0.0)


def linear(base: float = 5.0, step: float = 5.0, max: float = 3600.0) -> Backoff:  # noqa: A002
    """Wait ``step`` seconds longer each time: 5, 10, 15, 20 …

    :raises ArgumentError: a value is not a span of 0 seconds or more.
    """
    base, step, ceiling = _span("base", base), _span("step", step), _span("max", max)
    return lambda attempt: min(ceiling, base + step * _steps(attempt))


def arithmetic(base: float = 5.0, step: float = 5.0, max: float = 3600.0) -> Backoff:  # noqa: A002
    """Lengthen the wait by ``step`` seconds, then by twice, three times … that: 5, 10, 20, 35 …

    :raises ArgumentError: a value is not a span of 0 seconds or more.
    """
    base, step, ceiling = _span("base", base), _span("step", step), _span("max", max)
    return lambda attempt: min(ceiling, base + step * _steps(attempt) * (_steps(attempt) + 1) / 2)


def quartic(spread: float = 10.0, max: float = 30 * 86_400.0, rng: Chance = random.random) -> Backoff:  # noqa: A002
    """Wait ``attempt⁴ + 15`` seconds and up to ``spread · (attempt + 1)`` more: 16 s, 31 s, 96 s … 20 days for 25 attempts.

    :raises ArgumentError: a value is outside its allowed range.
    """
    spread, ceiling, rng = _span("spread", spread), _span("max", max), _chance(rng)

    def seconds(attempt: int) -> float:
        number = min(_steps(attempt) + 1, 10_000)
        return min(ceiling, number**4 + 15.0 + spread * (number + 1) * rng())

    return seconds


def _steps(attempt: int) -> int:
    """The number of attempts before this one."""
    return attempt - 1 if attempt > 1 else 0


def _span(what: str, value: float | timedelta) -> float:
    """A time span in seconds, checked."""
    arguments.seconds(what, value)
    return value.total_seconds() if isinstance(value, timedelta) else value


def _chance(rng: Chance) -> Chance:
    if not callable(rng):
        raise ArgumentError(f"rng={arguments.shown(rng)}: must be a function that returns a number from 0 to 1")
    return rng
