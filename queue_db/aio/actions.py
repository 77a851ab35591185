# Generated from queue_db/monitoring/actions.py. Do not change it here: `make aio` writes it anew.
"""Actions for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import joined, run
from queue_db.monitoring.actions import Action, Actions


class AsyncActions(Twin[Actions]):
    """The action log of one database: who changed what, how much and when. Workers delete entries after 90 days."""

    async def add(
        self,
        who: str,
        action: str,
        target: str,
        number: int | None = None,
        detail: Mapping[str, Any] | None = None,
        *,
        using: AsyncConnection | AsyncSession | None = None,
    ) -> None:
        """Record an action that was done.

        :param who: a user, or the name of a token; at most 100 characters.
        :param action: such as ``purge``; at most 40 characters.
        :param target: such as the name of a queue or the id of a job; cut to 250 characters.
        :param number: of how many jobs or other things.
        :param detail: more, as JSON; at most 10,000 characters. No passwords and no payloads.
        :param using: a connection or session with a transaction: the entry is there if it commits.
        """
        await run(self._sync.add, who, action, target, number, detail, using=joined(using))

    async def list(self, *, limit: int = 100, after: int | None = None) -> list[Action]:
        """The actions, newest first. ``after``: the id of the last one of the previous page."""
        return await run(self._sync.list, limit=limit, after=after)
