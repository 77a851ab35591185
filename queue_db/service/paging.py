"""Pages of jobs, which end early where payloads are large: neither this process nor a client has to hold a thousand of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel

#: A page ends with the job with which it has this many bytes of JSON.
MOST_BYTES = 8 * 1024 * 1024

# Jobs of the first read of a page. Each further read has more by this factor, if those before were small.
_FIRST, _GROWTH = 20, 4

J = TypeVar("J")
V = TypeVar("V")
C = TypeVar("C")


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
