"""The interface of strategies: how a claim wins jobs against concurrent claims.

Everything after the claim is the same for all strategies.

To add a strategy, write a class with the four members of :class:`Strategy` and pass an object of it to ``QueueDB(strategy=…)``.
``@named`` gives the class a name that ``QueueDB`` takes instead of an object.
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

    #: The name of the strategy in settings, messages and reports.
    name: str
    #: Required capabilities of the database, checked when the database is opened.
    needs: frozenset[Capability]

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        """Take up to ``request.limit`` jobs. Never commit or sleep. Count misses; do not raise them.

        The connection may commit each statement by itself: call ``tx.begin()`` before several statements that belong together, and
        before a statement that locks rows. :func:`queue_db.store.lease.claim` calls it where needed.

        ``request.completes``: completed jobs that :func:`~queue_db.store.lease.claim` deletes before it claims. If a
        strategy does not pass ``completes`` on to that function, these jobs are completed in a transaction of their own.
        """

    def observe(self, result: ClaimResult) -> None:
        """Learn from the result of a claim."""


_Made = TypeVar("_Made", bound=Callable[[], Strategy])
_NAMED: dict[str, Callable[[], Strategy]] = {}


def named(name: str) -> Callable[[_Made], _Made]:
    """Return a decorator that registers a strategy: ``QueueDB(strategy=name)`` uses it with its default settings."""

    def register(make: _Made) -> _Made:
        _NAMED[name] = make
        return make

    return register


def known_strategies() -> list[str]:
    """Names that ``QueueDB(strategy=…)`` takes."""
    return sorted(_NAMED)


def strategy_for(strategy: str | Strategy) -> Strategy:
    """The strategy of this name, or the given strategy itself.

    :raises ConfigurationError: the name is unknown, or the object is no strategy.
    """
    return arguments.chosen("strategy", strategy, _NAMED, Strategy, "name, needs, claim and observe")
