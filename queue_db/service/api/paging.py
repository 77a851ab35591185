"""Pages of jobs, which end early where payloads are large: neither this process nor a client has to hold a thousand of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from queue_db.errors import ArgumentError

#: A page ends with the job with which it has this many bytes of JSON.
MOST_BYTES = 8 * 1024 * 1024

# Digits of the largest number that a position has.
_DIGITS = 19

# Jobs of the first read of a page. Each further read has more by this factor, if those before were small.
_FIRST, _GROWTH = 20, 4

# What a list is: its name, and its filters.
Listing = tuple[str | None, ...]

J = TypeVar("J")
V = TypeVar("V")
C = TypeVar("C")


def sealed(listing: Listing, position: str | None) -> str | None:
    """``after`` of a page: where the next one begins, for this list with these filters and no other."""
    return None if position is None else f"{_mark(listing)}.{position}"


def opened(listing: Listing, after: str | None) -> str | None:
    """The position in ``after``, which must be of a page of this list."""
    if after is None:
        return None
    mark, _, position = after.partition(".")
    if mark != _mark(listing):
        raise not_of_this_list()
    return position


def number(position: str, most: int) -> int:
    """A position that must be a number; at most ``most``."""
    if not (position.isascii() and position.isdecimal() and len(position) <= _DIGITS):
        raise not_of_this_list()
    return min(int(position), most)


def not_of_this_list() -> ArgumentError:
    """The error of an ``after`` that somebody has made up, or taken from another list."""
    return ArgumentError("after is not of a page of this list with these filters: leave it out for the first page")


def _mark(listing: Listing) -> str:
    return f"{zlib.crc32(json.dumps(listing).encode()):08x}"


def json_bytes(view: BaseModel) -> int:
    """How large a job is in a response."""
    return len(view.model_dump_json())


def paged(
    read: Callable[[C | None, int], tuple[Sequence[J], C | None]],
    view: Callable[[J], V],
    after: C | None,
    limit: int,
    size_of: Callable[[V], int],
) -> tuple[list[V], C | None]:
    """Up to ``limit`` jobs as they are shown, and where the next page begins.

    :param read: up to this many jobs from there on, and where the next ones begin; None: there are no more.
    :param size_of: how large a job is, of :data:`MOST_BYTES`.
    """
    views: list[V] = []
    size, asked = 0, min(_FIRST, limit)
    while True:
        found, following = read(after, asked)
        for number, job in enumerate(found, 1):
            shown = view(job)
            size += size_of(shown)
            views.append(shown)
            if size >= MOST_BYTES and number < len(found):
                # The next page begins after this job: only the list itself knows where that is.
                again, following = read(after, number)
                return views[: len(views) - number] + [view(one) for one in again], following
        if following is None or len(views) == limit or len(found) < asked or size >= MOST_BYTES:
            return views, following
        after, asked = following, min(asked * _GROWTH, limit - len(views))
