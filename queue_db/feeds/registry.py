"""``db.feeds``: the feeds of one database: list, settings, purge, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from queue_db import arguments
from queue_db.concurrency.keyed_cache import KeyedCache
from queue_db.core import Core
from queue_db.errors import ArgumentError, FeedError, NoSuchFeedError
from queue_db.feeds.cursor_rows import ack, infos
from queue_db.feeds.feed import Feed
from queue_db.feeds.message import CursorInfo, FeedInfo, Message
from queue_db.feeds.position import Position
from queue_db.feeds.settings import FeedOrdering, defaults
from queue_db.feeds.store import rows
from queue_db.feeds.store.orderings import ORDERINGS
from queue_db.feeds.store.rows import FeedRow
from queue_db.model import Capability, Verdict, from_micros
from queue_db.store.schema import CURSOR_LENGTH, FEED_LENGTH

_MOST_ROWS = 2**53

# Column of a feed with claims → argument of ``set``.
_NAMES = {"max_attempts": "max_attempts", "delay": "delay", "lifetime": "expires_in"}

#: The class below has a method called ``list``.
Infos = list[CursorInfo]
Verdicts = list[Verdict]


class Feeds:
    """The feeds of one database. They are created by their first use; :meth:`set` creates one with other settings."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: KeyedCache[Feed] = KeyedCache(lambda name: Feed(core, name))

    def named(self, name: str) -> Feed:
        """``db.feed(name)``."""
        return self._known[arguments.name("feed", name, FEED_LENGTH)]

    def each(self, hook: Callable[[Feed], None]) -> None:
        """Call ``hook`` with each feed object: now with those that exist, and with others when they are made."""
        self._known.each(hook)

    def list(self, feeds: Sequence[str] | None = None, *, after: str | None = None, limit: int | None = None) -> list[FeedInfo]:
        """The feeds by name, of these or of all.

        :param after: the name of the last feed of the previous page.
        :param limit: most feeds.
        """
        names = None if feeds is None else _names(feeds)
        if after is not None:
            arguments.name("after", after, FEED_LENGTH)
        if limit is not None:
            arguments.whole("limit", limit, 1)
        return [
            FeedInfo(
                name=row.name,
                ordering=row.ordering,
                messages=messages,
                waiting=waiting,
                start=str(Position(row.token, row.epoch, row.first_seq - 1)),
                end=str(Position(row.token, row.epoch, row.next_seq - 1)),
                epoch=row.epoch,
                keep_rows=row.keep_rows,
                keep_for=None if row.keep_for is None else row.keep_for / 1_000_000,
                keep_unread=row.keep_unread,
                created_at=from_micros(row.created_at),
                claims=row.max_attempts is not None,
                max_attempts=row.max_attempts or None,
                delay=(row.delay or 0) / 1_000_000,
                expires_in=None if row.lifetime is None else row.lifetime / 1_000_000,
            )
            for row, messages, waiting in self._core.read("feeds.counted", rows.counted, names, after, limit)
        ]

    def set(
        self,
        name: str,
        *,
        ordering: FeedOrdering | None = None,
        keep_for: float | None = None,
        keep_rows: int | None = None,
        keep_unread: int | None = None,
        claims: bool | None = None,
        max_attempts: int | None = None,
        delay: float | None = None,
        expires_in: float | None = None,
    ) -> None:
        """Create the feed with these settings, or change them. What is None stays as it is.

        :param ordering: ``ranked`` (default on servers): publishers never wait for each other, and messages get their numbers
            right after the commit. ``counter`` (default on SQLite): publishers of the feed wait for each other's commit.
            Only a new feed takes it.
        :param keep_for: seconds for which messages are kept; 0: without limit. A new feed keeps them for a week.
        :param keep_rows: number of messages that are kept; 0: without limit, as for a new feed.
        :param keep_unread: most messages that are kept longer for cursors that have not acknowledged them: 1,000,000 for a new
            feed; 0: retention does not wait for cursors. Messages that are claimed or delayed
            now count as unread.
        :param claims: True: consumers can claim messages and delete them. Only a new feed takes it.
        :param max_attempts: a message that was claimed this often and not deleted becomes a dead job at its next claim; 0: never
            (a new feed).
        :param delay: seconds before which a message cannot be claimed that is published without a ``delay``; 0: none (a new feed).
        :param expires_in: seconds after which a message expires that is published without ``expires_in``; 0: never (a new feed).
            Other processes use a new ``delay`` and ``expires_in`` within a second.
        :raises NoSuchFeedError: there is no such feed, and these settings cannot make one.
        :raises FeedError: the feed exists and has another ordering, or has no claims, or has them.
        """
        arguments.name("feed", name, FEED_LENGTH)
        if ordering is not None and ordering not in list(ORDERINGS):
            raise arguments.wrong("ordering", ordering, f": must be {' or '.join(sorted(ORDERINGS))}")
        values = _retention(keep_for, keep_rows, keep_unread)
        limits = _limits(name, max_attempts, delay, expires_in)
        new = defaults(self._core) | values | ({"max_attempts": 0} | limits if claims else {})
        if ordering is not None:
            new["ordering"] = ordering
        # Not created for limits alone: it would be a feed without claims, and stay so.
        can_be_new = not limits or bool(claims)
        check = partial(_check, ordering=ordering, claims=claims, limits=bool(limits))
        if self._core.write("feeds.set_up", rows.set_up, name, new if can_be_new else None, values | limits, check) is None:
            need = f"there is no feed {name!r}: "
            words = [_NAMES[one] for one in sorted(limits)]
            python, options = ", ".join(sorted(words)), ", ".join(f"--{word.replace('_', '-')}" for word in sorted(words))
            raise NoSuchFeedError(
                f"{need}{python} need claims=True", wire=f'{need}{python} need "claims": true', cli=f"{need}{options} need --claims"
            )
        if (values or limits) and (known := self._known.get(name)) is not None:
            known.forget()

    def cursors(self, name: str | None = None, *, feeds: Sequence[str] | None = None) -> Infos:
        """The cursors of all feeds, by feed and name.

        :param name: only those with this name, such as all of a member of several chats.
        :param feeds: only those of these feeds.
        """
        wanted = None if name is None else arguments.name("cursor", name, CURSOR_LENGTH)
        some = None if feeds is None else [row.id for row in self._core.read("feeds.by_name", rows.by_name, _names(feeds))]
        return infos(self._core, some, wanted)

    def ack(self, name: str, upto: Iterable[Message | str]) -> Verdicts:
        """Acknowledge messages of several feeds at once, each with all before it, whoever holds the cursors; none moves back.

        :param name: of the cursors, one in each of the feeds.
        :param upto: messages or positions; of those of one feed the last one counts.
        :return: for each of them, APPLIED or LOST: its feed has no such cursor, a shared one, or other messages since a purge.
        :raises PositionError: one is ahead of its feed; nothing was changed.
        """
        return ack(self._core, arguments.name("cursor", name, CURSOR_LENGTH), upto)

    def purge(self, name: str) -> int:
        """Delete all messages of a feed; return how many. Cursors go on after them and lose their holders; positions are refused.

        :raises NoSuchFeedError: there is no such feed.
        """
        arguments.name("feed", name, FEED_LENGTH)
        gone = self._core.write("feeds.purge", rows.purge, name)
        if gone is None:
            raise NoSuchFeedError(f"there is no feed {name!r}")
        return gone

    def delete(self, name: str) -> bool:
        """Delete a feed with its messages and cursors; False: there is none.

        It waits for open transactions that have published to it; those that publish later publish to a new feed with this name.
        """
        arguments.name("feed", name, FEED_LENGTH)
        removed = self._core.write("feeds.remove", rows.remove, name)
        if Capability.SEVERAL_WRITERS in self._core.store.capabilities:
            self._core.write("feeds.remove_strays", rows.remove_strays)
        if (known := self._known.get(name)) is not None:
            known.forget()
        return removed

    def restored(self) -> int:
        """Call this once after the database was restored from a backup: holders lose their cursors, earlier positions are refused.

        Without it a reader whose position is newer than the backup would miss the messages that take the same numbers again.
        Return the number of feeds.
        """
        return self._core.write("feeds.restored", rows.restored)


def _retention(keep_for: float | None, keep_rows: int | None, keep_unread: int | None) -> dict[str, Any]:
    """The columns of what is not None."""
    values: dict[str, Any] = {}
    if keep_for is not None:
        values["keep_for"] = arguments.seconds("keep_for", keep_for) or None
    if keep_rows is not None:
        values["keep_rows"] = arguments.whole("keep_rows", keep_rows, 0, _MOST_ROWS) or None
    if keep_unread is not None:
        values["keep_unread"] = arguments.whole("keep_unread", keep_unread, 0, _MOST_ROWS)
    return values


def _limits(name: str, max_attempts: int | None, delay: float | None, expires_in: float | None) -> dict[str, Any]:
    """The columns of what is not None, of a feed with claims."""
    values: dict[str, Any] = {}
    if max_attempts is not None:
        values["max_attempts"] = arguments.whole("max_attempts", max_attempts, 0)
    if delay is not None:
        values["delay"] = arguments.seconds("delay", delay) or None
    if expires_in is not None:
        values["lifetime"] = arguments.seconds("expires_in", expires_in) or None
    _check_times(name, values.get("delay"), values.get("lifetime"))
    return values


def _check(before: FeedRow, after: FeedRow, *, ordering: str | None, claims: bool | None, limits: bool) -> None:
    """Whether a feed can have these settings.

    :raises FeedError: it has another ordering, or has no claims, or has them.
    """
    other = "which cannot be changed: use a feed of another name"
    if ordering is not None and before.ordering != ordering:
        raise FeedError(f"feed {before.name!r} has the ordering {before.ordering!r}, {other}")
    has = before.max_attempts is not None
    if (claims is not None and claims is not has) or (limits and not has):
        raise FeedError(f"feed {before.name!r} was made {'with' if has else 'without'} claims, {other}")
    _check_times(before.name, after.delay, after.lifetime)


def _check_times(name: str, delay: int | None, lifetime: int | None) -> None:
    if delay and lifetime and delay >= lifetime:
        late = f"messages of feed {name!r} would expire before their delay is over: "
        raise ArgumentError(f"{late}delay must be less than expires_in", cli=f"{late}--delay must be less than --expires-in")


def _names(feeds: Sequence[str]) -> Sequence[str]:
    return [arguments.name("feed", name, FEED_LENGTH) for name in arguments.members("feeds", feeds, "names")]
