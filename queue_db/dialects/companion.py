"""What a slice needs of a database, beside the queue's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self, TypeVar

from queue_db.dialects.base import Dialect

_Kind = TypeVar("_Kind", bound="Companion")


class Companion:
    """What a slice needs of one database, with the queue's dialect beside it.

    A slice has a subclass whose members work on most databases, and of that a subclass for each database that does them better.
    """

    #: The names of the dialects that this is for.
    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    @classmethod
    def of(cls, dialect: Dialect) -> Self:
        """The one for this dialect or for the one that it is a subclass of; otherwise this class."""
        # A subclass without names of its own stands for no dialect.
        known = {name: kind for kind in _below(cls) for name in vars(kind).get("names", ())}
        named = (name for base in type(dialect).__mro__ for name in vars(base).get("names", ()))
        return next((known[name] for name in named if name in known), cls)(dialect)


def _below(kind: type[_Kind]) -> Iterator[type[_Kind]]:
    """Its subclasses, and theirs."""
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
