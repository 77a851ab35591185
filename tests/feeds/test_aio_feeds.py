"""Feeds by the verbs for asyncio, where the conformance suite in greenlets does not reach: ticks, and cursors that are awaited."""

from __future__ import annotations

from typing import Any

import pytest

from queue_db import LeaseLostError, QueueDB, Verdict
from queue_db.aio import AsyncCursor, AsyncQueueDB
from tests.patience import HOURS

POSTGRESQL = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@POSTGRESQL
async def test_a_feed_with_ticks(adb: AsyncQueueDB, name: str) -> None:
    await adb.feeds.set(name, ordering="ticks")
    feed = adb.feed(name)
    first = await feed.publish("n", 0)
    others = await feed.publish_many([("n", number, {"key": "k"}) for number in range(1, 10)], idempotency_key="x")
    assert await feed.publish_many([("n", number, {"key": "k"}) for number in range(1, 10)], idempotency_key="x") == others
    assert [message.payload for message in await feed.get([first, *others])] == list(range(10))
    page = await feed.read(limit=4)
    assert ([message.payload for message in page.messages], page.behind) == ([0, 1, 2, 3], 6)
    assert [message.payload for message in (await feed.read(page.position)).messages] == list(range(4, 10))
    async with await feed.cursor("billing") as cursor:
        followed: list[Any] = []
        async for message in cursor.follow(idle=0):
            followed.append(message.payload)
            assert await cursor.ack(message)
        assert followed == list(range(10))
    shared = await feed.shared(f"{name}-mailers")
    span = await shared.claim(6)
    assert span is not None
    assert [message.payload for message in span.messages] == list(range(6))
    assert await span.fail(span.messages[2], "no such address", retry_in=HOURS)
    assert await span.complete()
    assert (await adb.queue(f"{name}-mailers").stats()).scheduled == 1
    (info,) = [one for one in await adb.feeds.list() if one.name == name]
    assert (info.ordering, info.messages, info.waiting) == ("ticks", 10, 0)
    await adb.queue(f"{name}-mailers").purge()
    assert await adb.feeds.delete(name)


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
