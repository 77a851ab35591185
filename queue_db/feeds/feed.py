"""One feed: publish messages, read them from any position, and open cursors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import FeedError, NoSuchCursorError, NoSuchFeedError
from queue_db.feeds import claims, cursor_rows, numbering, reading
from queue_db.feeds.building import MOST
from queue_db.feeds.claims import MessageClaim
from queue_db.feeds.cursor import Cursor
from queue_db.feeds.forwarding import JobTemplate, forwarded
from queue_db.feeds.locks import explained
from queue_db.feeds.message import ClaimInfo, CursorInfo, FeedStats, Message, Origin, Page, SpanInfo
from queue_db.feeds.position import Position, check
from queue_db.feeds.publishing import Publisher
from queue_db.feeds.reading import Wanted, trimmed_policy
from queue_db.feeds.retention import RANK, trim_once
from queue_db.feeds.settings import OnTrimmed, defaults, ordering_of
from queue_db.feeds.shared import SharedCursor
from queue_db.feeds.store import cursors, messages, ranking, rows, span_claims, spans
from queue_db.feeds.store.messages import MessageRow
from queue_db.feeds.store.rows import FeedRow
from queue_db.slices import type_hint
from queue_db.store.schema import CURSOR_LENGTH, QUEUE_LENGTH

if TYPE_CHECKING:
    from sqlalchemy.orm import Session
else:
    Session = type_hint("sqlalchemy.orm", "Session")

log = logging.getLogger("queue_db.feeds")

# Seconds for which a feed's row is used without a look at the database.
_FRESH = 1.0


class Feed:
    """One feed. ``db.feed(name)`` returns it; it is created by the first verb that needs it.

    Readers do not take messages away: any number of them read all messages, each at its own position.
    """

    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.name = name
        self._publisher = Publisher(self)
        self._lock = threading.RLock()  # a signal handler may call a verb of the feed while its thread is in another one
        self._row: FeedRow | None = None
        self._row_until = 0.0
        #: Whether the database has refused that this process numbers messages.
        self.refused = False

    def __repr__(self) -> str:
        return f"<Feed {self.name!r}>"

    # --- publish ----------------------------------------------------------------------------------------------------

    def publish(
        self,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        client: str | None = None,
        delay: float | None = None,
        expires_in: float | None = None,
        idempotency_key: str | None = None,
        using: Using | None = None,
    ) -> str:
        """Publish one message; return its id: its position, or, where it has no number yet (``ranked``), a longer text.

        :meth:`get` and :meth:`delete` take both.

        :param key: what the message is about, such as ``order-7``.
        :param client: who publishes it; ``read(client=…, echo=False)`` leaves out a reader's own messages.
        :param delay: seconds before which it cannot be claimed; None: those that ``db.feeds.set`` gave the feed, or none. Only for
            a feed with claims, as ``expires_in``.
        :param expires_in: seconds after which it cannot be claimed any more and is deleted; 0: retention alone deletes it; None:
            the feed's, or 0.
        :param idempotency_key: a text that names this publish: a publish with the same key within a day does nothing and returns
            the same id.
        :param using: a connection or session with a transaction: the message is published when it commits.
        :raises IdempotencyKeyError: the key was used for another message.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        options = {"key": key, "headers": headers, "delay": delay, "expires_in": expires_in}
        return self.publish_many([(kind, payload, options)], client=client, idempotency_key=idempotency_key, using=using)[0]

    @explained
    def publish_many(
        self,
        messages: Iterable[Any],
        *,
        client: str | None = None,
        idempotency_key: str | None = None,
        using: Using | None = None,
    ) -> list[str]:
        """Publish messages, all or none, in their order: ``(kind, payload)`` or ``(kind, payload, {"key": …, "headers": …})``.

        The options are ``key``, ``headers``, ``delay`` and ``expires_in`` of :meth:`publish`. Return their ids.

        :raises IdempotencyKeyError: the key was used for other messages.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        return self._publisher.publish(messages, client, using, idempotency_key)

    def after_publish(self, row: FeedRow | None = None) -> None:
        """Notify readers; number and trim now and then. The messages are committed: an error is logged and not raised."""
        self._publisher.after_publish(row)

    def rank_once(self, row: FeedRow) -> int:
        """Number some messages, if no other process does so now; return how many."""
        ordering = ordering_of(row)
        return self.core.run(RANK, ordering.rank, row.id) if ordering.ranks else 0

    # --- read -------------------------------------------------------------------------------------------------------

    def read(
        self,
        after: str | None = None,
        limit: int = 100,
        *,
        kinds: Iterable[str] | None = None,
        client: str | None = None,
        echo: bool = True,
        hidden: bool = True,
        on_trimmed: OnTrimmed = "raise",
    ) -> Page:
        """Up to ``limit`` messages after a position, in order. Nothing at or before ``page.position`` is ever published later.

        With ``kinds``, ``echo`` or ``hidden`` a page may be empty and others follow: go on while ``page.behind`` is not 0.

        :param after: a position; None: from the first message that is there.
        :param kinds: only messages of these kinds.
        :param client: the reader's own name, for ``echo=False``: leave out the messages that it published.
        :param hidden: False: leave out messages that are claimed, delayed or expired now; the position passes them all the same.
        :param on_trimmed: ``raise``, or ``skip`` messages that retention has deleted: ``page.skipped`` has their number.
        :raises TrimmedError: messages after the position were trimmed.
        :raises PositionError: it is a position of another feed, database or epoch.
        """
        return reading.read_page(self, after, limit, Wanted(kinds, client, echo, hidden), on_trimmed, observes=True)

    def get(self, positions: Message | str | Iterable[Message | str]) -> list[Message]:
        """The messages with these ids or positions (``message.position``) that are there, in the order of the feed; up to 10,000.

        :raises TransientStorageError: one of them has no number yet, and another process is numbering: try again.
        :raises PositionError: it is a position of another feed, database or epoch.
        """
        return claims.get(self, positions)

    def start(self) -> str:
        """The position before the first message that is there."""
        row = self.row(fresh=True)
        return str(Position(row.token, row.epoch, row.first_seq - 1))

    def end(self) -> str:
        """The position after the last message: a reader that begins here gets what is published from now on.

        And, if another process is numbering messages at this moment, or this one may not, maybe some of these.
        """
        numbering.if_possible(self, self.rank)
        row = self.row(fresh=True)
        return str(Position(row.token, row.epoch, row.next_seq - 1))

    def rank(self) -> int:
        """Number the messages that wait for it now, as publishers and readers do by themselves; return how many.

        It ends although others go on publishing. A few of theirs may be among those that it numbers.
        """
        row, ranked, upto = self.row(), 0, None
        ordering = ordering_of(row)
        if ordering.ranks:
            while (upto := self.core.read("feeds.last_waiting", ranking.last_waiting, row.id, upto)) is not None:
                some = self.core.run(Run("rank"), ordering.rank, row.id)
                if not some:
                    break  # another process is ranking
                ranked += some
        return ranked

    def trim(self) -> int:
        """Delete the messages that retention does not keep; return how many.

        Workers do so once a minute, and so do publishers, but not those that publish with ``using=`` only.

        :raises NoSuchFeedError: there is no such feed.
        """
        row, gone = self.present(), 0
        while some := trim_once(self.core, row, Run()):
            gone += some
            if some < messages.at_once(row) and row.max_attempts is None:
                break  # what can be deleted since then is for the next call
        return gone

    def message(self, token: str, epoch: int, one: MessageRow) -> Message:
        """A stored message of this feed."""
        return Message(Origin(self.name, token, epoch, self.core.codec), one)

    # --- claims ----------------------------------------------------------------------------------------------------

    def claim(self, limit: int = 10, *, lease: float = 300.0, grace: float = 60.0) -> MessageClaim | None:
        """Claim the first messages that are free, up to ``limit``: nobody else can until the claim ends. None: none is free.

        A message that was claimed ``max_attempts`` times and not deleted becomes a dead job of the queue with the feed's name.

        :param limit: messages, at most 1000.
        :param lease: seconds until others can claim those that are not deleted; :meth:`MessageClaim.extend` extends them.
        :param grace: seconds after the end of the claim before which none of the messages expires.
        :raises FeedError: the feed was made without claims.
        """
        return claims.claim(self, limit, lease, grace)

    def pop(self, limit: int = 1, *, using: Using | None = None) -> list[Message]:
        """Delete the first messages that are free, up to ``limit``, and return them: at most once, if this process dies.

        :param using: a connection or session with a transaction: they are deleted when it commits, together with the effect, and
            free again if it does not.
        :raises FeedError: the feed was made without claims.
        """
        return claims.pop(self, limit, using)

    def find_claim(self, claim: str) -> MessageClaim:
        """A claim by its id, with the messages that are left of it.

        :raises UnknownClaimError: there is none, or others have claimed all its messages.
        :raises ClaimExpiredError: it has ended.
        """
        return claims.find_claim(self, claim)

    def claims(self) -> list[ClaimInfo]:
        """The claims that have not ended; those that end first come first.

        :raises FeedError: the feed was made without claims.
        """
        return claims.open_claims(self)

    def delete(
        self,
        messages: Message | str | Iterable[Message | str],
        *,
        claim: str | None = None,
        using: Using | None = None,
    ) -> int:
        """Delete messages, or those with these positions, up to 10,000, for all readers; all or none. Return how many.

        :param claim: the id of the claim that has them. Without it messages are deleted that nobody has claimed now, and those
            that are gone are passed over.
        :param using: a connection or session with a transaction: they are deleted when it commits.
        :raises MessageClaimedError: one of them is claimed, and there is no ``claim``.
        :raises MessageNotClaimedError: the claim does not have one of them.
        :raises ClaimExpiredError: the claim has ended.
        :raises UnknownClaimError: there is no such claim.
        :raises PositionError: it is a position of another feed, database or epoch.
        """
        return claims.delete(self, messages, claim, using)

    def stats(self) -> FeedStats:
        """Count the messages: free, claimed and delayed; the oldest and the newest of them.

        :raises FeedError: the feed was made without claims.
        """
        return claims.stats(self)

    # --- cursors ----------------------------------------------------------------------------------------------------

    def cursor(
        self, name: str, *, start: str = "start", lease: float = 30.0, take_over: bool = False, on_trimmed: OnTrimmed = "raise"
    ) -> Cursor:
        """Open a durable cursor: one process holds it, reads on from its position, and acknowledges what it has done.

        Use it in a ``with`` block, which ends the hold.

        :param start: where a new cursor begins: ``start``, ``end``, or a position.
        :param lease: seconds without a read or acknowledgement after which another process may open it.
        :param take_over: open it although another process holds it; that one's next acknowledgement is LOST.
        :raises CursorHeldError: another process holds it.
        """
        arguments.name("name", name, CURSOR_LENGTH)
        micros = arguments.seconds("lease", lease, zero=False)
        trimmed_policy(on_trimmed)
        row = self.row(fresh=True)
        begin = self._begin(start)
        return Cursor(self, row, name, begin, micros, take_over=take_over, on_trimmed=on_trimmed)

    def resume(self, name: str, generation: int, *, lease: float = 30.0, on_trimmed: OnTrimmed = "raise") -> Cursor:
        """The open cursor that has this ``cursor.generation``, in any process: what it reads next follows what was acknowledged.

        :param lease: seconds without a read or acknowledgement after which another process may open it.
        :raises LeaseLostError: another process has opened the cursor, or it was closed, moved or deleted.
        """
        arguments.name("name", name, CURSOR_LENGTH)
        arguments.whole("generation", generation, 0, 2**63 - 1)
        micros = arguments.seconds("lease", lease, zero=False)
        trimmed_policy(on_trimmed)
        return Cursor(self, self.row(fresh=True), name, 0, micros, take_over=False, on_trimmed=on_trimmed, generation=generation)

    def forward(
        self,
        cursor: str,
        queue: str,
        *,
        kind: str | None = None,
        group: bool | str = False,
        limit: int = 100,
        idle: float | None = 0.0,
        start: str = "start",
        lease: float = 30.0,
        take_over: bool = False,
        on_trimmed: OnTrimmed = "raise",
    ) -> int:
        """Enqueue a job for each message after the position of a cursor, each once; return how many.

        The jobs and the position are committed together, ``limit`` messages at a time.

        :param cursor: its name; one process at a time forwards by it. ``start``, ``lease``, ``take_over`` and ``on_trimmed`` are
            those of :meth:`cursor`.
        :param queue: where the jobs go, with the payloads and headers of the messages.
        :param kind: of the jobs; None: that of each message.
        :param group: True: messages with the same key become one group of jobs, which run in the order of the feed. A text: all
            jobs are of this group.
        :param limit: most messages in one transaction.
        :param idle: seconds to wait for another message; 0: end when none is left; None: never end.
        :raises CursorHeldError: another process holds the cursor.
        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted. What was committed stays.
        :raises TrimmedError: messages were trimmed before they were forwarded.
        """
        template = JobTemplate(queue, kind, group)
        arguments.whole("limit", limit, 1, MOST)
        return sum(
            forwarded(
                *(self, cursor, template),
                limit=limit,
                idle=idle,
                start=start,
                lease=lease,
                take_over=take_over,
                on_trimmed=on_trimmed,
            )
        )

    def shared(
        self,
        name: str,
        *,
        queue: str | None = None,
        max_attempts: int = 3,
        start: str = "start",
        on_trimmed: OnTrimmed = "raise",
    ) -> SharedCursor:
        """Open a cursor that any number of consumers share: each claims spans of messages, and each message is for one of them.

        :param queue: where messages that fail become jobs; default: the queue with the cursor's name.
        :param max_attempts: a span that was claimed this often and not completed becomes single jobs at its next claim.
        :param start: where a new cursor begins: ``start``, ``end``, or a position.
        :param on_trimmed: what a claim does where messages were trimmed before: ``raise``, or ``skip`` them.
        :raises FeedError: the cursor is one for a single holder.
        """
        arguments.name("name", name, CURSOR_LENGTH)
        arguments.name("queue", name if queue is None else queue, QUEUE_LENGTH)
        arguments.whole("max_attempts", max_attempts, 1)
        trimmed_policy(on_trimmed)
        row = self.row(fresh=True)
        if row.max_attempts is not None:
            claims = f"feed {self.name!r} was made with claims: its consumers claim messages with "
            raise FeedError(
                f"{claims}feed.claim",
                wire=f"{claims}POST /api/v1/feeds/{{feed}}/claims",
                cli=f"feed {self.name!r} was made with claims: no cursor of it is shared",
            )
        known = self.core.read("feeds.look", span_claims.look, row, name)
        shared = (
            known.handed is not None if known else self.core.write("feeds.create", spans.create, row.id, name, self._begin(start))
        )
        if not shared:
            raise FeedError(
                f"cursor {name!r} of feed {self.name!r} has one holder at a time: open it with feed.cursor, or name another"
            )
        return SharedCursor(self, row, name, queue=queue or name, max_attempts=max_attempts, skip=on_trimmed == "skip")

    def cursors(self) -> list[CursorInfo]:
        """The cursors of this feed, by name."""
        return cursor_rows.infos(self.core, [self.row().id])

    def spans(self, cursor: str) -> list[SpanInfo]:
        """The open spans of a shared cursor, by number.

        :raises FeedError: there is no such cursor, or it is not shared.
        """
        arguments.name("cursor", cursor, CURSOR_LENGTH)
        return cursor_rows.spans_of(self.core, self.row(), cursor)

    def seek(self, name: str, position: str) -> None:
        """Move a cursor, forwards or back; a process that holds it, or spans of it, loses them.

        :param position: ``start``, ``end`` or a position.
        :raises NoSuchFeedError: there is no such feed.
        :raises NoSuchCursorError: it has no such cursor.
        :raises PositionError: the feed cannot be read from there.
        """
        arguments.name("name", name, CURSOR_LENGTH)
        row = self.present()
        if position == "end":
            numbering.if_possible(self, self.rank)
            row = self.present()
        target = row.next_seq - 1 if position == "end" else self._begin(position, row)
        if not self.core.write("feeds.seek", cursors.seek, row.id, name, target):
            raise NoSuchCursorError(f"feed {self.name!r} has no cursor {name!r}")

    def remove_cursor(self, name: str) -> bool:
        """Delete a cursor, so that retention does not wait for it; False: there is none.

        :raises NoSuchFeedError: there is no such feed.
        """
        arguments.name("name", name, CURSOR_LENGTH)
        return self.core.write("feeds.remove", cursors.remove, self.present().id, name)

    def _begin(self, start: str, row: FeedRow | None = None) -> int:
        """The number after which a cursor begins. ``row``: just read."""
        if start == "end":
            return Position.parse(self.end()).seq
        row = row or self.row(fresh=True)
        if start == "start":
            return row.first_seq - 1
        position = Position.parse(start)
        check(position, row)
        return position.seq

    # --- the feed's row ---------------------------------------------------------------------------------------------

    def row(self, *, fresh: bool = False) -> FeedRow:
        """The feed's row, at most a second old; the feed is created if there is none."""
        known = None if fresh else self.known()
        if known is not None:
            return known
        return self._remember(
            self.core.read("feeds.find_feed", rows.find_feed, self.name)
            or self.core.write("feeds.create", rows.create, self.name, defaults(self.core))
        )

    def existing(self) -> FeedRow | None:
        """The feed's row, at most a second old; None: there is no such feed."""
        known = self.known()
        if known is not None:
            return known
        found = self.core.read("feeds.find_feed", rows.find_feed, self.name)
        return None if found is None else self._remember(found)

    def present(self) -> FeedRow:
        """The feed's row, as it is now.

        :raises NoSuchFeedError: there is no such feed.
        """
        self.forget()
        row = self.existing()
        if row is None:
            raise NoSuchFeedError(f"there is no feed {self.name!r}")
        return row

    def forget(self) -> None:
        """The feed was deleted here: the next verb looks for it, or creates it."""
        self._row = None

    def known(self) -> FeedRow | None:
        """The feed's row, if it was read within the last second."""
        return self._row if time.monotonic() < self._row_until else None

    def _remember(self, row: FeedRow) -> FeedRow:
        with self._lock:
            self._row, self._row_until = row, time.monotonic() + _FRESH
        return row
