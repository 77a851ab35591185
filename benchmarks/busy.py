"""A CPU-bound handler, in a module that other processes can import."""

from __future__ import annotations

from typing import Any


def fib(number: int) -> int:
    """Return a Fibonacci number, slowly."""
    return number if number < 2 else fib(number - 1) + fib(number - 2)


def fib_of_25(job: Any) -> None:
    """Compute for tens of milliseconds."""
    fib(25)
