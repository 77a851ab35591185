"""Pages of jobs by state, and the text that says where the next page begins."""

from __future__ import annotations

import base64
import binascii

from queue_db import arguments
from queue_db.core import Core
from queue_db.model import PRESENT, JobPage, State
from queue_db.store import listing
from queue_db.store.listing import Position, Wanted
from queue_db.store.schema import KEY_LENGTH, KIND_LENGTH
from queue_db.verbs.find_job import job_from_row

#: Most jobs on one page.
LONGEST_PAGE = 1000

# Positions of a list with another order are refused: each order has a letter.
_CLAIM, _GROUP, _DEATH = "cgd"

_INT32, _INT64 = 2**31, 2**63


def list_jobs(core: Core, queue: str, state: str, *, kind: str | None, group: str | None, after: str | None, limit: int) -> JobPage:
    """A page of the jobs of ``queue`` in ``state``.

    :raises ArgumentError: there is no such state, or ``after`` is not of a page of this list.
    """
    wanted = Wanted(
        queue,
        _state(state),
        None if kind is None else arguments.name("kind", kind, KIND_LENGTH),
        None if group is None else arguments.name("group", group, KEY_LENGTH),
        arguments.whole("limit", limit, 1, LONGEST_PAGE),
    )
    order = _DEATH if wanted.state is State.DEAD else _CLAIM if group is None else _GROUP
    start = None if after is None else _position(order, after)
    rows, end = core.read(listing.page, wanted, start)
    return JobPage([job_from_row(row, wanted.state, core.codec) for row in rows], None if end is None else _text(order, end))


def _state(state: object) -> State:
    if state not in PRESENT:
        raise arguments.wrong("state", state, f": must be one of {', '.join(PRESENT)}")
    return State(state)  # type: ignore[arg-type]


def _text(order: str, position: Position) -> str:
    return base64.urlsafe_b64encode(f"{order}.{'.'.join(map(str, position))}".encode()).decode().rstrip("=")


def _position(order: str, after: object) -> Position:
    """The position of a page's ``after``.

    :raises ArgumentError: it is none of a list in this order.
    """
    if isinstance(after, str) and len(after) <= len(_text(order, Position(-_INT32, -_INT64, -_INT64))):
        try:
            given, *numbers = base64.b64decode(after + "=" * (-len(after) % 4), b"-_", validate=True).decode().split(".")
            priority, at, job_id = map(int, numbers)
        except (binascii.Error, ValueError):
            pass
        else:
            position = Position(priority, at, job_id)
            fits = -_INT32 <= priority < _INT32 and -_INT64 <= at < _INT64 and -1 <= job_id < _INT64
            if fits and given == order and _text(order, position) == after:
                return position
    raise arguments.wrong("after", after, ": must be the `after` of the page before, of the same state and group")
