"""Written by hand: bases of the generated classes of feeds, as ``bases`` has them for the queue."""

from __future__ import annotations

from typing import Self

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.feeds import Cursor, MessageClaim, Span


class CursorTwin(Twin[Cursor]):
    """A cursor for ``async with``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await run(self._sync.__exit__, kind, error, trace)


class SpanTwin(Twin[Span]):
    """The data of a claimed span."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.messages = span.messages
        self.id = span.id
        self.version = span.version
        self.attempts = span.attempts


class MessageClaimTwin(Twin[MessageClaim]):
    """The data of a claim on messages."""

    def __init__(self, claim: MessageClaim) -> None:
        super().__init__(claim)
        self.id = claim.id
        self.messages = claim.messages
        self.attempts = claim.attempts
