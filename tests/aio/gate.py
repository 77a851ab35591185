"""Tasks that share a transaction, held up until all of them are there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from sqlalchemy.util import await_

from queue_db.concurrency.batching import Batcher
from tests.patience import PATIENCE


class Gate:
    """Holds the first two transactions of a batcher up, and lists how many callers each has."""

    def __init__(self, batcher: Batcher[Any, Any]) -> None:
        self._batcher = batcher
        self.run = batcher._run
        self.batches: list[int] = []
        self.began = [asyncio.Event(), asyncio.Event()]
        self.open = [asyncio.Event(), asyncio.Event()]
        batcher._at_once = 1
        batcher._run = self._gated

    def _gated(self, parts: Sequence[Any]) -> Sequence[Any]:
        at = len(self.batches)
        self.batches.append(len(parts))
        if at < len(self.began):
            self.began[at].set()
            await_(self.open[at].wait())
        return self.run(parts)

    async def tasks(self, call: Callable[[Any], Coroutine[Any, Any, Any]], payloads: Sequence[Any]) -> list[asyncio.Task[Any]]:
        """A task for each payload; the first has begun its transaction, the others wait in their order."""
        tasks = [asyncio.create_task(call(payloads[0]))]
        await self.began[0].wait()
        for number, payload in enumerate(payloads[1:], 1):
            tasks.append(asyncio.create_task(call(payload)))
            limit = time.monotonic() + PATIENCE
            while len(self._batcher._queue) != number:
                assert time.monotonic() < limit, "it does not wait"
                await asyncio.sleep(0)
        return tasks

    def open_all(self) -> None:
        """Let all transactions run."""
        for one in self.open:
            one.set()
