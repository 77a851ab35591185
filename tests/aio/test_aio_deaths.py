"""With asyncio jobs die as loudly."""

import logging

import pytest

from queue_db import ArgumentError
from queue_db.aio import AsyncQueueDB


async def test_deaths_are_logged_and_counted(open_async, name, caplog):
    db = await open_async()
    queue = db.queue(name)
    await queue.enqueue_many([("n", None, {"max_attempts": 1})] * 3)
    first, second, third = await queue.claim(3)
    with caplog.at_level(logging.WARNING, "queue_db.dead"):
        assert await first.fail("over")
        assert await second.bury("no use")
        assert await third.fail("also over", retry_in=1)
    logged = [record for record in caplog.records if record.name == "queue_db.dead"]
    assert [(record.job_id, record.reason) for record in logged] == [
        (first.id, "failed"),
        (second.id, "rejected"),
        (third.id, "failed"),
    ]
    assert db.counters.dead == len(await db.dead.list(name)) == 3


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_backoff_that_is_no_function_is_refused_before_anything_is_opened(async_url):
    with pytest.raises(ArgumentError, match=r"retry_after=30: must be a function .* constant\(30\)"):
        AsyncQueueDB(async_url, retry_after=30)
