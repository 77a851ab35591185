"""A handler that keeps a core busy, where other processes find it too."""

from __future__ import annotations

from typing import Any


def fib(number: int) -> int:
    """As slow as it is known for."""
    return number if number < 2 else fib(number - 1) + fib(number - 2)


def fib_of_25(job: Any) -> None:
    """Tens of milliseconds of work."""
    fib(25)
