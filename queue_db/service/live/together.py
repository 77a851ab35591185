"""Group commit: calls that come while one runs are put together, and the next run makes all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

Key = TypeVar("Key", bound=Hashable)
Call = TypeVar("Call")
Result = TypeVar("Result")


class Together(Generic[Key, Call, Result]):
    """Calls by key, in the order in which they came. All methods run on one event loop.

    :param run: makes some calls of one key, in a thread: a result or an error for each, by position.
    :param size: of a call.
    :param most: the size of a run; a single call may be larger.
    """

    def __init__(
        self,
        run: Callable[[Key, list[Call]], Sequence[Result | BaseException]],
        threads: CapacityLimiter,
        size: Callable[[Call], int],
        most: int,
    ) -> None:
        self._run = run
        self._threads = threads
        self._size = size
        self._most = most
        self._pending: dict[Key, deque[tuple[Call, asyncio.Future[Result]]]] = {}
        self._running: dict[Key, asyncio.Task[None]] = {}

    def call(self, key: Key, call: Call) -> asyncio.Future[Result]:
        """Make a call soon: its result or error. It is made even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = deque()
            # Those that come in the same turn of the event loop run with it.
            loop.call_soon(self._start, key)
        pending.append((call, result))
        return result

    def _start(self, key: Key) -> None:
        running = self._running.get(key)
        if running is not None and running.get_loop() is asyncio.get_running_loop():
            return  # it starts the next run
        pending = self._pending.pop(key)
        taken, size = [pending.popleft()], self._most
        size -= self._size(taken[0][0])
        while pending and (size := size - self._size(pending[0][0])) >= 0:
            taken.append(pending.popleft())
        if pending:
            self._pending[key] = pending
        self._running[key] = asyncio.get_running_loop().create_task(self._make(key, taken))

    async def _make(self, key: Key, taken: list[tuple[Call, asyncio.Future[Result]]]) -> None:
        found: Sequence[Result | BaseException]
        try:
            found = await to_thread.run_sync(self._run, key, [call for call, _ in taken], limiter=self._threads)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            found = [error] * len(taken)
        finally:
            del self._running[key]
            if key in self._pending:
                self._start(key)
        for (_, result), one in zip(taken, found, strict=True):
            if result.done():
                continue  # who has called has gone
            if isinstance(one, BaseException):
                result.set_exception(one)
            else:
                result.set_result(one)
