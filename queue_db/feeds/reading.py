"""Pages of a feed: read on from a position, past what is filtered or trimmed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from queue_db import arguments
from queue_db.errors import ArgumentError, NoSuchFeedError, TrimmedError
from queue_db.feeds import numbering
from queue_db.feeds.building import MOST
from queue_db.feeds.message import Message, Page
from queue_db.feeds.position import Position, check
from queue_db.feeds.settings import OnTrimmed
from queue_db.feeds.store import claim_rows, messages, rows
from queue_db.feeds.store.messages import MessageRow
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.tables import CLIENT_LENGTH
from queue_db.store import Transaction
from queue_db.store.schema import KIND_LENGTH

if TYPE_CHECKING:
    from queue_db.feeds.feed import Feed

# A page with a filter looks at this many times its limit, at most.
_SCANNED = 10


class Wanted(NamedTuple):
    """Which messages a reader asks for."""

    kinds: Iterable[str] | None = None
    client: str | None = None
    echo: bool = True
    hidden: bool = True

    def checked(self) -> Callable[[MessageRow], bool]:
        """Whether a message is one of them, but for ``hidden``.

        :raises ArgumentError: one of the values is impossible.
        """
        kinds, client, echo, _ = self
        among = None
        if kinds is not None:
            among = {arguments.name("kind", kind, KIND_LENGTH) for kind in arguments.members("kinds", kinds, "names")}
        if client is not None:
            arguments.name("client", client, CLIENT_LENGTH)
        elif not echo:
            own = "leaves out a reader's own messages: name the reader with"
            raise ArgumentError(f"echo=False {own} client=", wire=f"echo=false {own} the header Client-ID")
        return lambda row: (among is None or row.kind in among) and (echo or row.client != client)


def trimmed_policy(on_trimmed: OnTrimmed) -> None:
    """Refuse an ``on_trimmed`` that is not one.

    :raises ArgumentError: it is neither ``raise`` nor ``skip``.
    """
    if on_trimmed not in {"raise", "skip"}:
        raise arguments.wrong("on_trimmed", on_trimmed, ": must be raise or skip")


def read_page(feed: Feed, after: str | None, limit: int, wanted: Wanted, on_trimmed: OnTrimmed, *, observes: bool = False) -> Page:
    """A page of a feed; ``observes``: it may come from a replica."""
    arguments.whole("limit", limit, 1, MOST)
    is_wanted = wanted.checked()
    trimmed_policy(on_trimmed)
    position = None if after is None else Position.parse(after)
    row, found, skipped = _read_on(feed, position, limit, on_trimmed, observes=observes)
    # Without a position all before the first message counts as read.
    last = row.first_seq - 1 if position is None or skipped else position.seq
    kept: list[Message] = []
    scanned = 0
    while True:
        out = _hidden(feed, row, found) if not wanted.hidden else ()
        for one in found:
            last = one.seq
            if one.seq not in out and is_wanted(one):
                kept.append(feed.message(row.token, row.epoch, one))
                if len(kept) == limit:
                    break
        scanned += len(found)
        if len(kept) == limit or len(found) < limit or scanned >= _SCANNED * limit:
            break
        try:
            row, found = once(feed, Position(row.token, row.epoch, last), limit, observes=observes)
        except TrimmedError:
            break  # the page ends here, and the next one reports it
    here = Position(row.token, row.epoch, last)
    return Page(kept, str(here), max(0, row.next_seq - 1 - here.seq), skipped)


def _read_on(
    feed: Feed, position: Position | None, limit: int, on_trimmed: OnTrimmed, *, observes: bool
) -> tuple[FeedRow, list[MessageRow], int]:
    """The feed, some messages after the position, and how many trimmed ones were skipped before them."""
    skipped = 0
    while True:
        try:
            return *once(feed, position, limit, observes=observes), skipped
        except TrimmedError as error:
            if on_trimmed == "raise":
                raise
            # More may be trimmed before the next read.
            skipped, position = skipped + error.skipped, Position.parse(error.first)


def once(feed: Feed, position: Position | None, limit: int, *, observes: bool) -> tuple[FeedRow, list[MessageRow]]:
    """The feed, and some messages after the position.

    :raises NoSuchFeedError: the feed was deleted.
    :raises PositionError: the feed cannot be read from there.
    """
    known = feed.row()
    after = 0 if position is None else position.seq
    replicas = feed.core.replicas if observes else None
    if replicas is not None and (seen := replicas.read("page", _page, known, after, limit)) is not None:
        row, found = seen[0]
        if row is not None and _is_whole(row, found, after, limit) and (position is None or position[:2] == (row.token, row.epoch)):
            return row, found
    row, found = feed.core.read("page", _page, known, after, limit)
    if row is not None and len(found) < limit and numbering.if_possible(feed, lambda: feed.rank_once(known)):
        row, found = feed.core.read("page", _page, known, after, limit)
    if row is None:
        feed.forget()
        if position is None:
            # From the beginning of what has the name now.
            return once(feed, None, limit, observes=observes)
        raise NoSuchFeedError(f"feed {feed.name!r} was deleted")
    if position is not None:
        check(position, row)
    return row, found


def _is_whole(row: FeedRow, found: Sequence[MessageRow], after: int, limit: int) -> bool:
    """Whether a replica's page is full and without a gap, and messages follow it: the primary has it too."""
    return len(found) == limit and found[-1].seq == after + limit < row.next_seq - 1


def _hidden(feed: Feed, row: FeedRow, found: Sequence[MessageRow]) -> set[int]:
    if row.max_attempts is None or not found:
        return set()
    return feed.core.read("feeds.hidden", claim_rows.hidden, row.id, found[0].seq, found[-1].seq)


def _page(tx: Transaction, feed: FeedRow, after: int, limit: int) -> tuple[FeedRow | None, list[MessageRow]]:
    # In this order: if messages are trimmed between the two statements, the row shows it.
    found = messages.read_messages(tx, feed, after, limit)
    return rows.by_id(tx, feed.id), found
