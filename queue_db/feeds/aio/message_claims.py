# Generated from queue_db/feeds/claims.py. Do not change it: `make aio` writes it anew.
"""MessageClaim for asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from queue_db.concurrency.greenlets import joined, run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.feeds.aio.bases import MessageClaimTwin
from queue_db.feeds.message import Message


class AsyncMessageClaim(MessageClaimTwin):
    """Claimed messages, which nobody else can claim until the claim ends. Safe to share between threads.

    :ivar id: a text; any process that has it can do with the claim what its holder can: ``feed.find_claim``, ``feed.delete``.
    :ivar messages: those that were claimed, by number.
    :ivar attempts: how often each of them was claimed.
    :ivar expires_at: the end of the claim, as far as this object knows.
    """

    @property
    def expires_at(self) -> datetime:
        """The end of the claim, as far as this object knows."""
        return self._sync.expires_at

    async def delete(
        self, messages: Message | str | Iterable[Message | str] | None = None, *, using: AsyncUsing | None = None
    ) -> int:
        """Delete these messages, which are done; without ``messages`` all that are left of the claim. Return how many.

        :param using: a connection or session with a transaction: they are deleted when it commits, together with the effect.
        :raises ClaimError: the claim has ended, does not have one of them, or nothing is left of it: nothing was deleted.
        """
        return await run(self._sync.delete, messages, using=joined(using))

    async def extend(self, seconds: float, *, grace: float = 60.0) -> None:
        """The claim ends ``seconds`` from now.

        :param grace: seconds after the end of the claim before which none of the messages expires.
        :raises ClaimError: the claim has ended, or nothing is left of it.
        """
        await run(self._sync.extend, seconds, grace=grace)

    async def release(self) -> int:
        """Others can claim the messages that are left at once, and this claim does not count; return how many.

        :raises ClaimError: the claim has ended, or nothing is left of it.
        """
        return await run(self._sync.release)
