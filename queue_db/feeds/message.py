"""What readers of a feed get: messages, pages, and the state of feeds and cursors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from queue_db.codecs import Codec, described
from queue_db.errors import PayloadError
from queue_db.feeds.position import Position
from queue_db.feeds.store.messages import MessageRow
from queue_db.leased_job import decode_headers
from queue_db.model import from_micros


class Origin(NamedTuple):
    """What the messages of a page have in common."""

    feed: str
    token: str
    epoch: int
    codec: Codec


class Message:
    """A published message. It never changes.

    :ivar row: its columns as they are stored.
    """

    # A span has hundreds of them: what is seldom read is made when it is read.
    __slots__ = ("_headers", "_of", "_payload", "row")

    def __init__(self, of: Origin, row: MessageRow) -> None:
        self._of = of
        self.row = row

    @property
    def feed(self) -> str:
        """The name of its feed."""
        return self._of.feed

    @property
    def seq(self) -> int:
        """Its number within the feed and epoch; the numbers have no gaps, unless consumers delete messages (claims)."""
        return self.row[0]

    @property
    def kind(self) -> str:
        """What it says, such as ``paid``: the name that selects the handler."""
        return self.row[1]

    @property
    def position(self) -> str:
        """The position after it: a text."""
        return str(Position(self._of.token, self._of.epoch, self.row.seq))

    @property
    def key(self) -> str | None:
        """What it is about, such as ``order-7``; None: it has none."""
        return self.row.message_key

    @property
    def client(self) -> str | None:
        """Who published it, if the publisher named itself."""
        return self.row.client

    @property
    def payload(self) -> Any:
        """The payload, decoded when it is first read.

        :raises PayloadError: the codec cannot decode the stored text; ``payload_text`` has it as it is.
        """
        try:
            return self._payload
        except AttributeError:
            pass
        try:
            self._payload: Any = self._of.codec.decode(self.row.payload)
        except Exception as error:
            raise PayloadError(
                kind=self.kind, reason=f"the stored text cannot be decoded: {described(error)}", subject="payload of message"
            ) from error
        return self._payload

    @property
    def payload_text(self) -> str:
        """The payload as it is stored."""
        return self.row.payload

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers; empty if it has none, or if another program has stored something else than a JSON object."""
        try:
            return self._headers
        except AttributeError:
            self._headers: Mapping[str, Any] = decode_headers(self.row.headers)
        return self._headers

    @property
    def published_at(self) -> datetime:
        """When it was inserted, by the database's clock. The order of a feed is that of its numbers, not of these times."""
        return from_micros(self.row.created_at)

    def __repr__(self) -> str:
        return f"<Message {self.feed!r} {self.seq} {self.kind!r}>"


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages of a feed, in their order."""

    messages: list[Message]
    position: str  #: after the last message that was looked at; the next page begins here
    behind: int  #: messages with a number that come after :attr:`position`
    skipped: int = 0  #: messages that were trimmed before they were read (``on_trimmed="skip"``)


@dataclass(frozen=True, slots=True)
class FeedInfo:
    """A feed at the time of the call."""

    name: str
    ordering: str
    messages: int  #: numbered messages that are not trimmed
    waiting: int  #: messages without a number yet, counted up to 10,000
    start: str  #: the position before the first message that is there
    end: str  #: the position after the last message
    epoch: int
    keep_rows: int | None  #: messages
    keep_for: float | None  #: seconds
    keep_unread: int  #: messages kept at most for cursors that have not acknowledged them
    created_at: datetime
    claims: bool = False  #: whether its messages can be claimed
    max_attempts: int | None = None  #: how often a message is claimed before it becomes a dead job; None: any number of times
    delay: float = 0.0  #: seconds, of messages that are published without a delay
    expires_in: float | None = None  #: seconds, of messages that are published without a lifetime; None: they do not expire


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """A cursor at the time of the call."""

    feed: str
    name: str
    position: str  #: of a shared cursor: before the lowest open span
    behind: int  #: messages after its position; those that have no number yet are counted up to 10,000
    trimmed: int  #: of these, how many are trimmed already
    holder: str | None  #: the process that holds it; None: no process does
    seen_at: datetime  #: the last time that it was opened, read or acknowledged; of a shared cursor: that new messages were claimed
    created_at: datetime
    shared: bool = False  #: whether consumers share it
    spans: int = 0  #: open spans of a shared cursor


@dataclass(frozen=True, slots=True)
class FeedStats:
    """The messages of a feed with claims at the time of the call, without those that have expired."""

    total: int
    free: int  #: can be claimed now
    claimed: int
    delayed: int  #: cannot be claimed yet
    oldest: Message | None
    newest: Message | None


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """A claim on messages that has not ended at the time of the call."""

    feed: str
    id: str
    messages: int  #: that are left of it
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SpanInfo:
    """An open span of a shared cursor at the time of the call."""

    feed: str
    cursor: str
    id: int
    low: int  #: the number of its first message that is not done
    high: int  #: the number of its last message
    attempts: int  #: how often it was claimed
    worker: str | None  #: the process that claimed it; None: released
    expires_at: datetime | None  #: the end of its lease; None: any consumer may claim it now
