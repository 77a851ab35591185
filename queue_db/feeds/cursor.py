"""A cursor: one process reads a feed from a durable position, and moves it by what it has done."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from queue_db import arguments
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError, CursorHeldError, FeedError, LeaseLostError, PositionError, StorageError, asking
from queue_db.feeds.message import Message
from queue_db.feeds.position import Position, belongs, not_ahead
from queue_db.feeds.reading import Wanted, read_page
from queue_db.feeds.settings import OnTrimmed
from queue_db.feeds.store import cursors, rows
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.waiting import LONGEST_LOOK, Waiting
from queue_db.model import Verdict, from_micros
from queue_db.slices import type_hint
from queue_db.store import Transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from queue_db.feeds.feed import Feed
else:
    Feed, Session = type_hint("queue_db", "Feed"), type_hint("sqlalchemy.orm", "Session")

_T = TypeVar("_T")

log = logging.getLogger("queue_db.feeds")


class Cursor:
    """An open cursor. Not for several threads at once.

    A message is delivered again if its process ends before it acknowledged it: at least once. With ``ack(using=…)`` the effect of
    a message and its acknowledgement are one transaction.
    """

    def __init__(
        self,
        feed: Feed,
        of: FeedRow,
        name: str,
        start: int,
        lease: int,
        *,
        take_over: bool,
        on_trimmed: OnTrimmed = "raise",
        generation: int | None = None,
    ) -> None:
        self.feed = feed
        self.name = name
        #: Messages that were trimmed before this cursor read them (``on_trimmed="skip"``).
        self.skipped = 0
        self._core = feed.core
        # The feed as it was opened: after a purge, a restore or a delete its numbers are other messages.
        self._of = of
        self._feed_id = of.id
        self._lease = lease
        self._on_trimmed = on_trimmed
        if generation is None:
            holder = self._core.worker
            row, taken = self._core.write(
                "feeds.take", cursors.take, of.id, name, holder=holder, lease=lease, start=start, force=take_over
            )
        else:
            found = self._core.read("feeds.find_cursor", cursors.find_cursor, of.id, name)
            if found is None or found.version != generation or found.holder is None:
                raise self._lost()
            row, taken = found, True
        if row.handed is not None:
            raise FeedError(f"cursor {name!r} of feed {feed.name!r} is shared: open it with feed.shared, or name another")
        if not taken:
            held = (
                f"cursor {name!r} of feed {feed.name!r} is held by {row.holder}, until {from_micros(row.until).isoformat()} unless "
                "it goes on reading: give each process a cursor of its own, or take it over with "
            )
            raise CursorHeldError(**asking(held, "take_over"))
        self._version: int = row.version
        # An acknowledgement was LOST: the messages that were read are those of the next holder.
        self._replaced = False
        self._acked = row.acked
        self._read = row.acked
        # The highest number that the feed is known to have given.
        self._given = of.next_seq - 1
        self._extend_at = time.monotonic() + lease / 3_000_000

    @property
    def position(self) -> str:
        """The position after the last message that was acknowledged here."""
        return self._text(self._acked)

    @property
    def generation(self) -> int:
        """The number of this opening of the cursor. :meth:`Feed.resume <queue_db.Feed.resume>` takes it."""
        return self._version

    def read(self, limit: int = 100) -> list[Message]:
        """The next messages, up to ``limit``, whether or not the earlier ones are acknowledged; empty: there are none yet.

        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted.
        :raises TrimmedError: messages were trimmed before they were read.
        """
        if self._replaced:
            raise self._lost()
        if time.monotonic() >= self._extend_at:
            self.extend()
        try:
            page = read_page(self.feed, self._text(self._read), limit, Wanted(), self._on_trimmed)
        except PositionError:
            self.extend()  # says so if the cursor was moved: a purge moves it
            raise
        self.skipped += page.skipped
        self._read = Position.parse(page.position).seq
        self._given = max(self._given, self._read)
        return page.messages

    def follow(self, *, limit: int = 100, idle: float | None = None, poll: float = LONGEST_LOOK) -> Iterator[Message]:
        """The messages one after the other, waiting for new ones; without ``idle`` it never ends.

        With psycopg2 and asyncpg publishers notify it, on a connection of its own or, with asyncpg, of the event loop; and with all
        drivers those of this object. Other messages are found by looks.

        :param limit: messages read at once.
        :param idle: seconds without a new message after which it ends.
        :param poll: most seconds between two looks at the feed while it waits.
        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted; after an acknowledgement that
            was LOST, in place of the next message.
        """
        for page in self.pages(limit, idle, poll):
            for message in page:
                if self._replaced:
                    raise self._lost()
                yield message

    def pages(self, limit: int, idle: float | None, poll: float = LONGEST_LOOK) -> Iterator[list[Message]]:
        """As :meth:`follow`, but all messages of a read at once."""
        arguments.whole("limit", limit, 1)
        most = None if idle is None else arguments.seconds("idle", idle) / 1_000_000
        longest = arguments.seconds("poll", poll, zero=False) / 1_000_000
        since = time.monotonic()
        with Waiting(self._core, self.feed.name, longest) as waiting:
            while True:
                found = self.read(limit)
                if found:
                    yield found
                    waiting.found()
                    since = time.monotonic()
                    continue
                now = time.monotonic()
                left = math.inf if most is None else since + most - now
                if left <= 0:
                    return
                # The next read extends the hold.
                waiting.wait(min(left, max(0.0, self._extend_at - now)))

    def ack(self, upto: Message | str, *, using: Using | None = None) -> Verdict:
        """Acknowledge a message (or a position) and all before it. It never moves back.

        :param using: a connection or session with a transaction: the cursor moves when it commits, together with the effect.
        :return: LOST if another process has opened the cursor, or it was moved or deleted: nothing changed. Within a transaction,
            ``.require()`` rolls the effect back.
        :raises PositionError: it is a position of another feed, or ahead of the feed.
        """
        position = self._position(upto)
        seq = position.seq
        if using is None:
            self._check_given(position)
            held = self._core.write(
                "feeds.acknowledge", cursors.acknowledge, self._feed_id, self.name, self._version, seq, self._lease
            )
        else:
            with self._core.joined(using, "ack") as tx:
                self._check_given(position, tx)
                held = cursors.acknowledge(tx, self._feed_id, self.name, self._version, seq, self._lease)
        if not held:
            self._replaced = True
            return Verdict.LOST
        if using is None:
            self._advanced(seq)
        return Verdict.APPLIED

    def _advanced(self, seq: int) -> None:
        self._acked = max(self._acked, seq)
        self._extend_at = time.monotonic() + self._lease / 3_000_000

    def transfer(self, messages: Sequence[Message], change: Callable[[Transaction], _T]) -> _T:
        """Run ``change`` and acknowledge ``messages`` in one transaction; return the answer of ``change``.

        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted: nothing was changed.
        """
        last = messages[-1].seq

        def transfer(tx: Transaction) -> _T:
            answer = change(tx)
            # Last: whoever adds jobs or messages locks stripes and feeds first, and a purge locks a feed before its cursors.
            if not cursors.acknowledge(tx, self._feed_id, self.name, self._version, last, self._lease):
                raise self._lost()
            return answer

        answer, tx = self._core.commit(Run("transfer"), transfer)
        self._advanced(last)
        tx.follow()
        return answer

    def extend(self) -> None:
        """Extend the hold by the lease, as reading does by itself.

        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted.
        """
        if not self._core.write("feeds.extend", cursors.extend, self._feed_id, self.name, self._version, self._lease):
            raise self._lost()
        self._extend_at = time.monotonic() + self._lease / 3_000_000

    def close(self) -> None:
        """End the hold; the position stays."""
        self._core.write("feeds.release", cursors.release, self._feed_id, self.name, self._version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.close()
        except StorageError as failure:
            if error is None:
                raise
            # The error of the block says more, and may be due to the same outage.
            log.warning("%r could not be released, and is free when its hold ends: %s", self, failure)

    def __repr__(self) -> str:
        return f"<Cursor {self.name!r} of {self.feed!r}>"

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            message=f"cursor {self.name!r} of feed {self.feed.name!r} was lost: another process has opened it, or it was moved "
            "or deleted; what was acknowledged stays, and the next holder goes on from there"
        )

    def _text(self, seq: int) -> str:
        return str(Position(self._of.token, self._of.epoch, seq))

    def _check_given(self, position: Position, tx: Transaction | None = None) -> None:
        """Refuse a position that the feed has not reached: acknowledged, it would leave out messages that are published later."""
        if position.seq <= self._given:
            return
        if tx is not None:
            # The caller's transaction may have published it itself.
            row = rows.by_id(tx, self._feed_id)
            if row is not None and position.seq < row.next_seq:
                return
        # And it may be too old to see the number.
        row = self._core.read("feeds.by_id", rows.by_id, self._feed_id)
        if row is not None:  # otherwise the feed was deleted, and the cursor with it
            not_ahead(position, row)
            self._given = row.next_seq - 1

    def _position(self, upto: Message | str) -> Position:
        if isinstance(upto, Message):
            if upto.feed != self.feed.name:
                raise ArgumentError(f"{upto!r} is a message of feed {upto.feed!r}, not of {self.feed.name!r}")
            upto = upto.position
        position = Position.parse(upto)
        belongs(position, self._of)
        return position
