"""Feeds by the verbs for asyncio, where the conformance suite in greenlets does not reach: cursors that are awaited."""

from __future__ import annotations

from typing import Any

import pytest

from queue_db import LeaseLostError, QueueDB, Verdict
from queue_db.aio import AsyncCursor, AsyncQueueDB


async def test_a_replaced_holder_gets_no_more_messages(adb: AsyncQueueDB, db: QueueDB, name: str) -> None:
    feed = adb.feed(name)
    await feed.publish_many([("n", number) for number in range(5)])
    handled: list[Any] = []

    async def handle(old: AsyncCursor) -> None:
        async for message in old.follow(idle=0):
            handled.append(message.payload)
            if len(handled) == 2:
                db.feed(name).cursor("billing", take_over=True)
                assert await old.ack(message) is Verdict.LOST
            else:
                assert await old.ack(message)

    async with await feed.cursor("billing") as cursor:
        with pytest.raises(LeaseLostError):
            await handle(cursor)
    assert handled == [0, 1]
    await adb.feeds.delete(name)


async def test_a_cursor_counts_what_was_trimmed(adb: AsyncQueueDB, name: str) -> None:
    await adb.feeds.set(name, ordering="counter", keep_rows=2, keep_unread=0)
    feed = adb.feed(name)
    async with await feed.cursor("billing", on_trimmed="skip") as cursor:
        await feed.publish_many([("n", number) for number in range(5)])
        await feed.trim()
        assert [message.payload for message in await cursor.read()] == [3, 4]
        assert cursor.skipped == 3
    await adb.feeds.delete(name)
