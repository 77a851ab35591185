"""The strategy seam: how a claim wins jobs against concurrent claims. Everything after the claim is the same for all strategies.

To add a strategy, write a class with these four members and pass an object of it to ``QueueDB(strategy=…)``; ``@named`` makes it
known by name too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from queue_db import arguments
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store.base import Transaction


@runtime_checkable
class Strategy(Protocol):
    """How a claim wins jobs against concurrent claims."""

    #: Its name in settings, messages and reports.
    name: str
    #: Required capabilities of the database; checked when it is opened.
    needs: frozenset[Capability]

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Take up to ``request.limit`` jobs. Never commits, never sleeps; a miss is counted, not raised.

        The connection may commit each statement by itself: call ``tx.begin()`` before several that belong together.
        :func:`queue_db.store.lease.claim` does so where needed.

        ``request.completes``: completed jobs that :func:`~queue_db.store.lease.claim` deletes before it claims. A strategy passes
        it on with the request, or leaves it alone: then they are completed in a transaction of their own.
        """
        ...

    def observe(self, result: ClaimResult) -> None:
        """Learn from the result of a claim."""
        ...


_Made = TypeVar("_Made", bound=Callable[[], Strategy])
_NAMED: dict[str, Callable[[], Strategy]] = {}


def named(name: str) -> Callable[[_Made], _Made]:
    """Make a strategy's default form known as ``QueueDB(strategy=name)``."""

    def register(make: _Made) -> _Made:
        _NAMED[name] = make
        return make

    return register


def known_strategies() -> list[str]:
    """Names that ``QueueDB(strategy=…)`` takes."""
    return sorted(_NAMED)


def strategy_for(strategy: str | Strategy) -> Strategy:
    """The strategy of that name, or the object itself.

    :raises ConfigurationError: for an unknown name, or an object that is no strategy.
    """
    return arguments.chosen("strategy", strategy, _NAMED, Strategy, "name, needs, claim and observe")
