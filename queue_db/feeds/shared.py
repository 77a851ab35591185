"""Shared cursors: consumers claim spans of a feed's messages, each message for one of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from queue_db import arguments
from queue_db.core import ONCE
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.dialects.transactions import savepoint
from queue_db.errors import ArgumentError, NoSuchCursorError, StorageError, TransientStorageError, TrimmedError
from queue_db.feeds import numbering
from queue_db.feeds.forwarding import JobTemplate
from queue_db.feeds.message import Message, Origin, SpanInfo
from queue_db.feeds.position import Position
from queue_db.feeds.store import messages, span_claims, spans
from queue_db.feeds.store.message_jobs import MessageJob
from queue_db.feeds.store.messages import MessageRow
from queue_db.feeds.store.rows import FeedRow
from queue_db.feeds.store.span_claims import Look, SpanRequest
from queue_db.feeds.store.spans import SpanLostError, SpanRow
from queue_db.model import Verdict
from queue_db.slices import type_hint
from queue_db.store.base import Transaction
from queue_db.store.by_key import RowLockedError
from queue_db.store.schema import DEFAULT_MAX_ATTEMPTS
from queue_db.verbs.claim import MAX_CLAIM
from queue_db.verbs.settle import backoff_of, error_text, failure_row

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from queue_db.feeds.feed import Feed
else:
    Feed, Session = type_hint("queue_db", "Feed"), type_hint("sqlalchemy.orm", "Session")

log = logging.getLogger("queue_db.feeds")

# Those of one statement have no BEGIN and COMMIT around it. A claim may have a second one: then the claim begins.
_CLAIM = Run("feeds.claim", lazy=True)
_EXTEND = Run("feeds.extend", lazy=True)
_COMPLETE = Run("settle", lazy=True)
_READ = Run("feeds.read_messages", write=False, lazy=True)
_SETTLE = Run("settle")
_SETTLE_ONCE = Run("settle", attempts=1)


class Failure(NamedTuple):
    """What a message that was not completed becomes: a job."""

    message: Message
    #: Why; None: nothing has failed.
    error: BaseException | str | None
    #: Microseconds until it is due.
    after: int = 0
    #: The failed attempt counts, and is the first of the job.
    attempted: bool = False
    #: It goes to the dead table.
    dead: bool = False
    max_attempts: int = DEFAULT_MAX_ATTEMPTS


class SharedCursor:
    """A cursor that consumers share. Safe to share between threads; processes open it by its name.

    A span that is not completed before its lease ends is claimed again by another consumer: each message at least once. With
    ``complete(using=…)`` the effect of a message and its completion are one transaction.
    """

    def __init__(self, feed: Feed, of: FeedRow, name: str, *, queue: str, max_attempts: int, skip: bool) -> None:
        self.feed = feed
        self.name = name
        #: Where messages that fail become jobs.
        self.queue = queue
        self.max_attempts = max_attempts
        #: Messages that were trimmed before a consumer of this object claimed them (``on_trimmed="skip"``).
        self.skipped = 0
        self._core = feed.core
        self._of = of
        self._skip = skip

    def __repr__(self) -> str:
        return f"<SharedCursor {self.name!r} of {self.feed!r}>"

    @property
    def feed_id(self) -> int:
        """The id of the feed that it was opened in: after a delete the name may stand for another one."""
        return self._of.id

    def claim(self, limit: int = 100, *, lease: float = 60.0) -> Span | None:
        """Claim the next messages, up to ``limit``, or a span whose lease has ended; None: there is nothing to do now.

        It does not touch the messages: a claim of 10 costs as much as one of 1000. An expired span comes first, whatever its size.

        :param limit: messages, at most 10,000.
        :param lease: seconds until another consumer may claim the span; :meth:`Span.extend` extends them.
        :raises TrimmedError: messages were trimmed before they were claimed.
        :raises NoSuchCursorError: the cursor or its feed was deleted.
        """
        arguments.whole("limit", limit, 1, MAX_CLAIM)
        micros = arguments.seconds("lease", lease, zero=False)
        want = SpanRequest(limit, micros, self._core.worker, skip=self._skip, least=limit)
        while True:
            found = self._core.run(_CLAIM, span_claims.claim, self._of, self.name, want)
            look = self._shared(found and found.look)
            row, read = (found.span, found.messages) if found else (None, None)
            if found is not None and row is not None:
                self.skipped += found.skipped
            elif look.expired and not want.late:
                row = self._take_over(look, micros)
                # If there is none: other consumers were faster, or transactions settle messages of them.
                want = want._replace(late=row is None)
            elif look.trimmed and not self._skip:
                raise self._trimmed(look.trimmed, look)
            elif look.waiting and want.least > 0:
                want = want._replace(least=0)
                self._rank()
            elif look.left <= 0:
                return None
            if row is not None and (span := self._open(look, row, read)) is not None:
                return span

    def spans(self) -> list[SpanInfo]:
        """The open spans, by number."""
        return self.feed.spans(self.name)

    def _shared(self, look: Look | None) -> Look:
        if look is None or look.handed is None:
            raise NoSuchCursorError(
                f"feed {self.feed.name!r} has no shared cursor {self.name!r} any more: open it again with feed.shared"
            )
        return look

    def _rank(self) -> int:
        return numbering.if_possible(self.feed, lambda: self.feed.rank_once(self._of))

    def _take_over(self, look: Look, lease: int) -> SpanRow | None:
        core = self._core
        while found := core.write(
            "feeds.take_over", span_claims.take_over, self._of.id, self.name, core.worker, lease, self.max_attempts
        ):
            row, claimed = found
            if claimed:
                return row
            self._split(look, row)
        return None

    def _split(self, look: Look, expired: SpanRow) -> None:
        """Make jobs of the messages of a span that nobody has completed."""
        reason = f"its span was claimed {expired.attempts} times and not completed: each consumer vanished or overran its lease"
        found = self._read(expired, epoch=look.epoch)
        missing = _missing(expired, found)
        if missing and not self._skip:
            raise self._trimmed(missing, look)
        jobs = [self.job(Failure(message, reason)) for message in found]
        try:
            _, tx = self._core.commit(Run("split"), _split, self, expired, jobs)
        except SpanLostError:
            return
        self.skipped += missing
        tx.follow()

    def _open(self, look: Look, row: SpanRow, read: Sequence[MessageRow] | None) -> Span | None:
        """The span with its messages, those that were read or others; None: there are none any more."""
        try:
            found = self._read(row, epoch=look.epoch) if read is None else self._messages(read, look.epoch)
        except StorageError:
            with suppress(StorageError):
                self._core.write("feeds.release", spans.release, row.id, row.version)
            raise
        span = Span(self, row, found, look.now)
        missing = _missing(row, found)
        if not missing:
            return span
        # They were trimmed, or the feed was purged: then the span is lost.
        if not self._skip:
            if not span.release():
                return None
            raise self._trimmed(missing, look)
        there = {message.seq for message in found} | spans.settled(row.done)
        if span.settle([seq for seq in range(row.low, row.high + 1) if seq not in there]):
            self.skipped += missing
            return span if found else None
        return None

    def _trimmed(self, number: int, look: Look) -> TrimmedError:
        first = str(Position(self._of.token, look.epoch, look.first_seq - 1))
        return TrimmedError(
            f"{number:,} messages of feed {self.feed.name!r} were trimmed by its retention before shared cursor {self.name!r} had "
            f'claimed or completed them (on_trimmed="skip" goes on without them, feed.seek moves the cursor)',
            skipped=number,
            first=first,
        )

    def _read(self, row: SpanRow, *, epoch: int) -> list[Message]:
        found = self._core.run(_READ, messages.read_messages, self._of, row.low - 1, row.high - row.low + 1)
        done = spans.settled(row.done)
        return self._messages([one for one in found if one.seq <= row.high and one.seq not in done], epoch)

    def _messages(self, found: Sequence[MessageRow], epoch: int) -> list[Message]:
        of = Origin(self.feed.name, self._of.token, epoch, self._core.codec)
        return [Message(of, one) for one in found]

    def job(self, failure: Failure) -> MessageJob:
        """The job that a message becomes."""
        row, error = failure.message.row, failure.error
        job = JobTemplate(self.queue, group=True).job(row)._replace(after=failure.after, max_attempts=failure.max_attempts)
        attempt: Mapping[str, Any] | None = None
        if failure.attempted and error is not None:
            attempt = {
                **failure_row(error, worker=self._core.worker, version=0, attempt=1),
                "queue": job.queue,
                "kind": job.kind,
            }
        return MessageJob(row.seq, job, None if error is None else error_text(error), attempt, failure.dead)


class Span:
    """A claimed span of messages. Safe to share between threads.

    Its verbs return APPLIED, or LOST if its lease ended and another consumer has claimed it: then nothing was changed.

    :ivar messages: those that were not settled before it was claimed, by number.
    :ivar attempts: how often it was claimed, from 1.
    """

    def __init__(self, cursor: SharedCursor, row: SpanRow, found: Sequence[Message], now: int) -> None:
        self.cursor = cursor
        #: The database's time just before the claim, in microseconds.
        self.claimed_after = now
        self.messages = list(found)
        self.id = row.id
        self.version = row.version
        self.attempts = row.attempts
        self._core = cursor.feed.core

    @property
    def fence(self) -> str:
        """``id:version`` for outside systems: refuse a request with a lower version than you have seen for this id."""
        return f"{self.id}:{self.version}"

    def __repr__(self) -> str:
        feed = self.cursor.feed.name
        return f"<Span {self.fence} of {feed!r} {self.cursor.name!r}, {len(self.messages)} messages, attempt {self.attempts}>"

    def complete(self, messages: Message | Iterable[Message] | None = None, *, using: Using | None = None) -> Verdict:
        """These messages are done; without ``messages`` all that are left, and the span ends.

        :param using: a connection or session with a transaction: they are done when it commits, together with the effect. Then call
            ``.require()`` on the verdict, so that a lost span rolls back the effect.
        :return: LOST also if one of the messages was completed, or became a job, before.
        """
        seqs = None if messages is None else [self._number(one) for one in _listed(messages)]
        return self.settle(seqs, using=using)

    def fail(
        self,
        message: Message,
        error: BaseException | str,
        retry_in: float | None = None,
        *,
        using: Using | None = None,
    ) -> Verdict:
        """The message could not be done: it becomes a job, with its kind, payload and headers, and its key as group.

        This was the first attempt of the job; it is due after ``retry_in`` seconds or the backoff. The others stay in the span.

        :return: LOST also if the message was completed, or became a job, before.
        """
        self._number(message)
        wait = backoff_of(self._core, 1, message) if retry_in is None else arguments.seconds("retry_in", retry_in)
        return self.settle([], [Failure(message, error, wait, attempted=True)], using=using)

    def extend(self, seconds: float) -> Verdict:
        """Extend the lease to ``seconds`` from now."""
        micros = arguments.seconds("seconds", seconds, zero=False)
        return _verdict(self._core.run(_EXTEND, spans.extend, self.id, self.version, micros))

    def extend_unlocked(self, seconds: float) -> Verdict | None:
        """:meth:`extend` without a wait; None: another transaction has locked the span's row."""
        micros = arguments.seconds("seconds", seconds, zero=False)
        try:
            return _verdict(self._core.run(ONCE.named("feeds.extend"), spans.extend, self.id, self.version, micros, wait=False))
        except RowLockedError:
            return None

    def release(self) -> Verdict:
        """Let another consumer have what is left at once; this does not count as an attempt."""
        return _verdict(self._core.write("feeds.release", spans.release, self.id, self.version))

    def settle(
        self,
        seqs: Sequence[int] | None,
        failures: Sequence[Failure] = (),
        *,
        using: Using | None = None,
        release: bool = False,
        wait: bool = True,
    ) -> Verdict:
        """The messages with these numbers are done, None: all; those of ``failures`` become jobs. All in one transaction.

        :param release: and another consumer may have what is left at once.
        :param wait: for a transaction that has locked the span; otherwise it is an error, after one attempt. Without SKIP LOCKED
            it waits.
        """
        jobs = [self.cursor.job(one) for one in failures]
        due = any(not one.after and not one.dead for one in failures)
        try:
            if using is not None:
                with self._core.joined(using, "feeds.settle") as tx, savepoint(tx.connection) if jobs else nullcontext():
                    _settle(tx, self, seqs, jobs, due=due)
                return Verdict.APPLIED
            how = _SETTLE if wait else _SETTLE_ONCE
            if spans.is_one_statement(seqs, jobs, wait=wait) and not release:
                how = _COMPLETE
            self._core.run(how, _settle, self, seqs, jobs, due=due, release=release, wait=wait)
        except SpanLostError:
            return Verdict.LOST
        except RowLockedError:
            raise TransientStorageError(f"{self!r}: another transaction settles messages of it") from None
        return Verdict.APPLIED

    def _number(self, message: Message) -> int:
        if not isinstance(message, Message):
            raise ArgumentError(f"{arguments.shown(message)} is not a message: settle those of span.messages")
        if message.feed != self.cursor.feed.name:
            raise ArgumentError(f"{message!r} is a message of feed {message.feed!r}, not of {self.cursor.feed.name!r}")
        return message.seq


def _missing(row: SpanRow, found: Sequence[Message]) -> int:
    """How many messages of a span are no longer there."""
    return row.high - row.low + 1 - len(spans.settled(row.done)) - len(found)


def _settle(
    tx: Transaction,
    span: Span,
    seqs: Sequence[int] | None,
    jobs: Sequence[MessageJob],
    *,
    due: bool,
    release: bool = False,
    wait: bool = True,
) -> list[int]:
    ids = spans.settle(tx, span.id, span.version, seqs, jobs, wait=wait)
    if release:
        spans.release(tx, span.id, span.version)
    if due:
        tx.wake(span.cursor.queue)
    return ids


def _split(tx: Transaction, cursor: SharedCursor, expired: SpanRow, jobs: Sequence[MessageJob]) -> None:
    spans.split(tx, expired, jobs)
    if jobs:
        tx.wake(cursor.queue)


def _listed(messages: Message | Iterable[Message]) -> list[Message]:
    return [messages] if isinstance(messages, Message) else arguments.members("messages", messages, "messages")


def _verdict(applied: bool) -> Verdict:
    return Verdict.APPLIED if applied else Verdict.LOST
