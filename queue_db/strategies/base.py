"""The strategy seam: one question, how does a claimant win jobs from the others? Everything after the claim is the same for all.

To add a strategy, write a class with these four members and pass an object of it to ``QueueDB(strategy=…)``; ``@named`` makes it
known by name too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from sqlalchemy import Connection

from queue_db import arguments
from queue_db.errors import ConfigurationError
from queue_db.model import Capability, ClaimRequest, ClaimResult
from queue_db.store.base import Store


@runtime_checkable
class Strategy(Protocol):
    """How one claimant wins jobs from the others."""

    #: What people call it.
    name: str
    #: What the database must be able to do; checked once, when the database is opened.
    needs: frozenset[Capability]

    def claim(self, connection: Connection, store: Store, request: ClaimRequest) -> ClaimResult:
        """Take up to ``request.limit`` jobs. Never commits, never sleeps; a miss is counted, not raised.

        ``connection`` may commit each statement by itself: what takes several that belong together first calls
        ``store.dialect.begin(connection)``. :func:`queue_db.store.lease.claim` does so where it must.
        """
        ...

    def observe(self, result: ClaimResult) -> None:
        """Learn from what a claim got."""
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
    if isinstance(strategy, str):
        try:
            return _NAMED[strategy]()
        except KeyError:
            raise ConfigurationError(
                f"unknown strategy {strategy!r}; known: {', '.join(known_strategies())} (or pass a Strategy object)"
            ) from None
    if isinstance(strategy, type):
        raise ConfigurationError(f"strategy={strategy.__name__} is a class: pass an object, {strategy.__name__}()")
    if not isinstance(strategy, Strategy):
        raise ConfigurationError(
            f"strategy={arguments.shown(strategy)} is neither a name nor an object with name, needs, claim and observe"
        )
    return strategy
