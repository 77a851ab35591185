"""Waits for the lock of a feed that were too long: the error names the feed, and who may hold it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from queue_db.errors import TransientStorageError
from queue_db.model import Fault

if TYPE_CHECKING:
    from queue_db.feeds.feed import Feed

_P = ParamSpec("_P")
_T = TypeVar("_T")


def explained(verb: Callable[Concatenate[Feed, _P], _T]) -> Callable[Concatenate[Feed, _P], _T]:
    """Add a note to the error of a verb that has waited too long for a lock."""

    @wraps(verb)
    def run(feed: Feed, /, *args: _P.args, **named: _P.kwargs) -> _T:
        try:
            return verb(feed, *args, **named)
        except TransientStorageError as error:
            cause = error.__cause__
            if isinstance(cause, SQLAlchemyError) and feed.core.database.dialect.errors.fault(cause) is Fault.LOCK_TIMEOUT:
                note = (
                    f"another transaction has locked feed {feed.name!r}: it deletes or purges the feed, or has published to it "
                    "(ordering counter) and is still open"
                )
                if note not in getattr(error, "__notes__", ()):  # publishers whose messages went together get the same error
                    error.add_note(note)
            raise

    return run
