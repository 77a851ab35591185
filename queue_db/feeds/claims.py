"""Claims on messages of a feed made with ``claims=True``: hide some for a time, and delete what is done."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from queue_db import arguments
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError, FeedError, NoSuchFeedError, asking
from queue_db.feeds import numbering
from queue_db.feeds.building import MOST
from queue_db.feeds.forwarding import JobTemplate
from queue_db.feeds.message import ClaimInfo, FeedStats, Message
from queue_db.feeds.position import Position, Unnumbered, belongs
from queue_db.feeds.store import claims
from queue_db.feeds.store.claims import Claimed, Terms
from queue_db.feeds.store.message_jobs import MessageJob
from queue_db.feeds.store.messages import MessageRow
from queue_db.feeds.store.orderings import ORDERINGS
from queue_db.feeds.store.rows import FeedRow
from queue_db.model import Capability, from_micros
from queue_db.slices import type_hint
from queue_db.store.base import Transaction
from queue_db.store.schema import TOKEN_LENGTH

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from queue_db.feeds.feed import Feed
else:
    Feed, Session = type_hint("queue_db", "Feed"), type_hint("sqlalchemy.orm", "Session")

log = logging.getLogger("queue_db.feeds")

#: Most messages of one claim.
MOST_CLAIMED = 1000


class MessageClaim:
    """Claimed messages, which nobody else can claim until the claim ends. Safe to share between threads.

    :ivar id: a text; any process that has it can do with the claim what its holder can: ``feed.find_claim``, ``feed.delete``.
    :ivar messages: those that were claimed, by number.
    :ivar attempts: how often each of them was claimed.
    :ivar expires_at: the end of the claim, as far as this object knows.
    """

    def __init__(self, feed: Feed, claim_id: str, row: FeedRow, claimed: Claimed) -> None:
        self.feed = feed
        self.id = claim_id
        self.messages = _opened(feed, row._replace(epoch=claimed.epoch), claimed.found)
        self.attempts = list(claimed.attempts)
        self.expires_at: datetime = from_micros(claimed.until)

    def __repr__(self) -> str:
        return f"<MessageClaim {self.id} of {self.feed!r}, {len(self.messages)} messages>"

    def delete(self, messages: Message | str | Iterable[Message | str] | None = None, *, using: Using | None = None) -> int:
        """Delete these messages, which are done; without ``messages`` all that are left of the claim. Return how many.

        :param using: a connection or session with a transaction: they are deleted when it commits, together with the effect.
        :raises ClaimError: the claim has ended, does not have one of them, or nothing is left of it: nothing was deleted.
        """
        if messages is not None:
            return self.feed.delete(messages, claim=self.id, using=using)
        row = of(self.feed)
        if using is None:
            return self.feed.core.write("feeds.finish", claims.finish, row, self.id)
        with self.feed.core.joined(using, "feeds.finish") as tx:
            return claims.finish(tx, row, self.id)

    def extend(self, seconds: float, *, grace: float = 60.0) -> None:
        """The claim ends ``seconds`` from now.

        :param grace: seconds after the end of the claim before which none of the messages expires.
        :raises ClaimError: the claim has ended, or nothing is left of it.
        """
        lease, more = arguments.seconds("seconds", seconds, zero=False), arguments.seconds("grace", grace)
        until = self.feed.core.write("feeds.extend", claims.extend, of(self.feed), self.id, lease, more)
        self.expires_at = from_micros(until)

    def release(self) -> int:
        """Others can claim the messages that are left at once, and this claim does not count; return how many.

        :raises ClaimError: the claim has ended, or nothing is left of it.
        """
        return self.feed.core.write("feeds.release", claims.release, of(self.feed), self.id)


def of(feed: Feed) -> FeedRow:
    """The feed's row.

    :raises FeedError: there is no such feed, or its messages cannot be claimed.
    """
    row = feed.existing()
    if row is None:
        # Not created here: it would be one without claims, and stay so.
        raise NoSuchFeedError(**asking(f"there is no feed {feed.name!r}: make it with ", "claims"))
    if row.max_attempts is None:
        without = f"feed {feed.name!r} was made without claims, which cannot be changed: make a feed of another name with "
        raise FeedError(**asking(without, "claims"))
    return row


def claim(feed: Feed, limit: int, lease: float, grace: float) -> MessageClaim | None:
    """Claim the first messages that are free."""
    arguments.whole("limit", limit, 1, MOST_CLAIMED)
    micros, more = arguments.seconds("lease", lease, zero=False), arguments.seconds("grace", grace)
    row = _ranked(feed)
    terms = Terms(secrets.token_hex(16), limit, micros, more)
    while True:
        claimed = feed.core.run_reporting_deaths(
            Run("feeds.claim"), claims.claim, row, terms, lambda one, attempts: _dead(feed, one, attempts)
        )
        if claimed.found:
            return MessageClaim(feed, terms.token, row, claimed)
        if not claimed.removed:
            return None


def pop(feed: Feed, limit: int, using: Using | None) -> list[Message]:
    """Delete the first messages that are free and return them."""
    arguments.whole("limit", limit, 1, MOST_CLAIMED)
    if using is not None:
        with feed.core.joined(using, "feeds.pop") as tx:
            row = _ranked_within(feed, tx)
            popped = _pop(lambda: claims.pop(tx, row, limit))
    else:
        row = _ranked(feed)
        popped = _pop(lambda: feed.core.write("feeds.pop", claims.pop, row, limit))
    return _opened(feed, row._replace(epoch=popped.epoch), popped.found)


def _pop(once: Callable[[], Claimed]) -> Claimed:
    """Pop until there is a message, or none is free: messages that had expired may have been in front."""
    while True:
        popped = once()
        if popped.found or not popped.removed:
            return popped


def find_claim(feed: Feed, claim_id: str) -> MessageClaim:
    """A claim by its id."""
    row = of(feed)
    return MessageClaim(feed, claim_id, row, feed.core.read("feeds.find_claim", claims.find_claim, row, _id(claim_id)))


def delete(feed: Feed, messages: Message | str | Iterable[Message | str], claim_id: str | None, using: Using | None) -> int:
    """Delete messages, under a claim or without one."""
    row = of(feed)
    # The claim itself says whether it has them, also after a purge.
    seqs = _numbers(feed, row, messages, check_epoch=claim_id is None)
    token = None if claim_id is None else _id(claim_id)
    if not seqs:
        return 0
    if using is None:
        return feed.core.write("feeds.delete", claims.delete, row, seqs, token)
    with feed.core.joined(using, "feeds.delete") as tx:
        return claims.delete(tx, row, seqs, token)


def get(feed: Feed, positions: Message | str | Iterable[Message | str]) -> list[Message]:
    """The messages at these positions that are there."""
    row = feed.row(fresh=True)
    return _opened(feed, row, feed.core.read("feeds.get", claims.get, row, _numbers(feed, row, positions, check_epoch=True)))


def open_claims(feed: Feed) -> list[ClaimInfo]:
    """The claims of a feed that have not ended."""
    return [
        ClaimInfo(feed.name, claim_id, messages, from_micros(until))
        for claim_id, messages, until in feed.core.read("feeds.open_claims", claims.open_claims, of(feed).id)
    ]


def stats(feed: Feed) -> FeedStats:
    """Count the messages by what claims can do with them."""
    row = _ranked(feed)
    counts = feed.core.read("feeds.count", claims.count, row.id)
    oldest, newest = (None if one is None else feed.message(row.token, row.epoch, one) for one in (counts.oldest, counts.newest))
    free = counts.total - counts.claimed - counts.delayed
    return FeedStats(counts.total, free, counts.claimed, counts.delayed, oldest, newest)


def _ranked(feed: Feed) -> FeedRow:
    row = of(feed)
    numbering.if_possible(feed, lambda: feed.rank_once(row))
    return row


def _ranked_within(feed: Feed, tx: Transaction) -> FeedRow:
    """The feed's row, its messages numbered, for a caller's transaction."""
    if Capability.SKIP_LOCKED in feed.core.store.capabilities:
        # Not in the caller's transaction: no other process could number messages until its end.
        return _ranked(feed)
    # Another transaction would wait for the caller's.
    row = of(feed)
    ordering = ORDERINGS.get(row.ordering)
    if ordering is not None and ordering.ranks:
        ordering.rank(tx, row.id)
    return row


def _dead(feed: Feed, row: MessageRow, attempts: int) -> MessageJob:
    reason = f"message {row.seq} of feed {feed.name!r} was claimed {attempts} times and not deleted"
    job = JobTemplate(feed.name).job(row)._replace(max_attempts=attempts)
    return MessageJob(row.seq, job, reason, dead=True, attempts=attempts)


def _opened(feed: Feed, row: FeedRow, found: Sequence[MessageRow]) -> list[Message]:
    return [feed.message(row.token, row.epoch, one) for one in found]


def _id(claim_id: object) -> str:
    return arguments.name("claim", claim_id, TOKEN_LENGTH)


def _numbers(feed: Feed, row: FeedRow, messages: Message | str | Iterable[Message | str], *, check_epoch: bool) -> list[int]:
    listed = [messages] if isinstance(messages, Message | str) else arguments.members("messages", messages, "messages or positions")
    if len(listed) > MOST:
        raise ArgumentError(f"{len(listed):,} messages: at most {MOST:,} can be named at once")
    seqs: list[int] = []
    texts = [one.position if isinstance(one, Message) else one for one in listed]
    unnumbered = [found for text in texts if (found := Unnumbered.parse(text)) is not None]
    known = numbering.numbers(feed, row, unnumbered) if unnumbered else {}
    for text in texts:
        if (found := Unnumbered.parse(text)) is not None:
            seqs += known.get(found.uid, ())
            continue
        position = Position.parse(text)
        if check_epoch and position.epoch != row.epoch:
            row = feed.row(fresh=True)
        belongs(position if check_epoch else position._replace(epoch=row.epoch), row)
        seqs.append(position.seq)
    return sorted(set(seqs))
