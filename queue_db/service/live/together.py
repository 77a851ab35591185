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


# Most runs of one key at a time.
_AT_ONCE = 4

# Seconds after which a run is late: it may wait for a lock that concerns none of the calls that have come meanwhile.
_LATE = 0.05

# Seconds after which a run takes long, as one that waits for a lock: others do not wait for its thread.
_LONG = 0.5

# Most threads together with those of runs that take long. Each has a connection to the database.
_MOST_THREADS = 30

# Most runs of one key that take long and do not count in _AT_ONCE.
_MOST_LONG = 8


class AloneError(Exception):
    """A call has waited for what concerns no other one: it is to be made again, by itself."""


class _Pending(Generic[Call, Result]):
    """The calls of a key that wait for a run, and its runs."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Call, asyncio.Future[Result]]] = deque()
        self.size = 0
        self.tasks: set[asyncio.Task[None]] = set()
        #: Runs that take long: others begin beside them.
        self.long: set[asyncio.Task[None]] = set()
        #: When the last run began, by the clock of the event loop, and what looks whether it is late.
        self.began = 0.0
        self.timer: asyncio.TimerHandle | None = None


class _Place:
    """The place of a run among the threads; a run that takes long makes room for another one.

    :param on_long: called once if it takes long.
    """

    def __init__(self, threads: CapacityLimiter, on_long: Callable[[], None]) -> None:
        self.begun = False
        self._threads = threads
        self._on_long = on_long
        self._more = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_LONG, self._look)

    def _look(self) -> None:
        if not self.begun:
            self._timer = self._loop.call_later(_LONG, self._look)
        elif self._threads.total_tokens < _MOST_THREADS:
            self._threads.total_tokens += 1
            self._more = True
            self._on_long()

    def leave(self) -> None:
        """The run has ended."""
        self._timer.cancel()
        if self._more:
            self._threads.total_tokens -= 1


class Together(Generic[Key, Call, Result]):
    """Calls by key, in the order in which they came. All methods run on one event loop.

    While a run is made, the next one begins when it is full, when no other is made, or when the last one is late.

    :param run: makes some calls of one key, in a thread: a result or an error for each, by position. :class:`AloneError` only where
        there are several.
    :param size: of a call.
    :param full: the size of a run; a single call may be larger.
    """

    def __init__(
        self,
        run: Callable[[Key, list[Call]], Sequence[Result | BaseException]],
        threads: CapacityLimiter,
        size: Callable[[Call], int],
        full: int,
    ) -> None:
        self._run = run
        self._threads = threads
        self._size = size
        self._full = full
        self._pending: dict[Key, _Pending[Call, Result]] = {}
        # Runs of single calls.
        self._alone: set[asyncio.Task[None]] = set()

    def call(self, key: Key, call: Call) -> asyncio.Future[Result]:
        """Make a call soon: its result or error. It is made even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending()
        pending.calls.append((call, result))
        pending.size += self._size(call)
        if len(pending.calls) == 1 or self._full <= pending.size:
            # Those that come in the same turn of the event loop run with it.
            loop.call_soon(self._start, key, pending)
        return result

    def _start(self, key: Key, pending: _Pending[Call, Result]) -> None:
        """Begin a run, if it is time."""
        if not pending.calls or len(pending.tasks) >= _AT_ONCE:
            return
        loop = asyncio.get_running_loop()
        if pending.tasks and pending.size < self._full and (early := pending.began + _LATE - loop.time()) > 0:
            if pending.timer is None:
                pending.timer = loop.call_later(early, self._look, key, pending)
            return
        taken, size = [pending.calls.popleft()], 0
        size = self._size(taken[0][0])
        while pending.calls and size + (more := self._size(pending.calls[0][0])) <= self._full:
            taken.append(pending.calls.popleft())
            size += more
        pending.size -= size
        pending.began = loop.time()
        task = loop.create_task(self._make(key, taken, lambda: self._takes_long(key, pending, task)))
        pending.tasks.add(task)
        task.add_done_callback(lambda _: self._ended(key, pending, task))
        self._start(key, pending)  # what is left over, if anything

    def _look(self, key: Key, pending: _Pending[Call, Result]) -> None:
        pending.timer = None
        self._start(key, pending)

    def _takes_long(self, key: Key, pending: _Pending[Call, Result], task: asyncio.Task[None]) -> None:
        """A run waits, perhaps for a lock: the next one begins beside it."""
        if len(pending.long) < _MOST_LONG:
            pending.tasks.discard(task)
            pending.long.add(task)
            self._start(key, pending)

    def _ended(self, key: Key, pending: _Pending[Call, Result], task: asyncio.Task[None]) -> None:
        pending.tasks.discard(task)
        pending.long.discard(task)
        if pending.calls:
            self._start(key, pending)
        elif not pending.tasks and not pending.long and self._pending.get(key) is pending:
            del self._pending[key]

    async def _make(
        self, key: Key, taken: list[tuple[Call, asyncio.Future[Result]]], on_long: Callable[[], None] = lambda: None
    ) -> None:
        found: Sequence[Result | BaseException]
        place = _Place(self._threads, on_long)

        def run() -> Sequence[Result | BaseException]:
            place.begun = True
            return self._run(key, [call for call, _ in taken])

        try:
            found = await to_thread.run_sync(run, limiter=self._threads)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            found = [error] * len(taken)
        finally:
            place.leave()
        for (call, result), one in zip(taken, found, strict=True):
            if result.done():
                continue  # who has called has gone
            if isinstance(one, AloneError):
                task = asyncio.get_running_loop().create_task(self._make(key, [(call, result)]))
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)
            elif isinstance(one, BaseException):
                result.set_exception(one)
            else:
                result.set_result(one)
