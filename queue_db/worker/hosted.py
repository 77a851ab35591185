"""``async with worker``: its coroutines run on the event loop of the application, everything else on the worker's threads."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import wait
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from queue_db.errors import ConfigurationError
from queue_db.leased_job import LeasedJob
from queue_db.worker.executor import Loop, Work
from queue_db.worker.handlers import HandlerSpec

log = logging.getLogger("queue_db.worker")

#: Seconds after which an event loop that does not answer is logged.
SILENT = 5.0

#: Seconds after which a loop that does not run is taken for one that has ended.
STANDS_STILL = 5.0

# Seconds for which the end of the block waits for coroutines that were cancelled.
_CANCELLED = 5.0


class _LeftError(Exception):
    """The task that entered the block was cancelled before the run began."""


class Hosted:
    """One ``async with worker:``, from its start to its end.

    A thread in place of the application's runs the worker. The loop never waits for that thread: it is told when the run has
    started and when it has ended.

    :param stop: stops the run within this many seconds; None: within the worker's grace time.
    :raises ConfigurationError: no event loop of asyncio runs here.
    """

    def __init__(self, stop: Callable[[float | None], None]) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigurationError(
                "async with worker needs a running event loop of asyncio: enter it in a coroutine of asyncio.run(…), or write "
                "`with worker:`, where coroutines run on an event loop of the worker's own"
            ) from None
        self._stop = stop
        self._pid = os.getpid()
        self._loop_thread = threading.get_ident()
        # Coroutines see the context variables of the task that entered the block.
        self._context = copy_context()
        self._coroutines: HostedLoop | None = None
        self._started, self._ended = asyncio.Event(), asyncio.Event()
        self._error: BaseException | None = None
        # Guards the two flags: either the run begins, or the task that entered the block has left before.
        self._lock = threading.Lock()
        self._begun = self._left = False
        # When the loop was asked to answer and has not answered yet, by ``time.monotonic``.
        self._asked_at: float | None = None
        self._told_silent = self._gone = False

    @property
    def is_here(self) -> bool:
        """Whether this is the process that entered the block. A fork of it does not have the threads."""
        return os.getpid() == self._pid

    # --- called by the task of the block ----------------------------------------------------------------------------

    async def start(self, work: Callable[[Callable[[], None]], None], name: str) -> None:
        """Run ``work`` in a thread, and wait until the run has started.

        If this task is cancelled before, the run does not begin; afterwards, the run ends at once.

        :param work: checks the worker, calls its argument and claims; returns when the run has ended.
        """
        threading.Thread(target=self._run, args=(work,), name=name).start()
        try:
            await self._started.wait()
        except BaseException:
            with self._lock:
                self._left = not self._begun
            if self._begun:
                await self._end_at_once()
            raise
        if self._error is not None:
            raise self._error

    async def end(self) -> None:
        """Stop the run, and wait until it has ended.

        If this task is cancelled meanwhile, the running jobs are released at once. If it is cancelled once more, the run ends by
        itself.
        """
        if self.is_here:
            self._stop(None)
            await self.wait()

    async def wait(self) -> None:
        """Wait until the run has ended. A cancellation has the effects that :meth:`end` names.

        :raises Exception: what ended the run.
        """
        try:
            await self._ended.wait()
        except BaseException:
            await self._end_at_once()
            raise
        await self._end_of_coroutines()
        if self._error is not None:
            raise self._error

    async def _end_at_once(self) -> None:
        self._stop(0.0)
        await self._ended.wait()
        await self._end_of_coroutines()

    async def _end_of_coroutines(self) -> None:
        """Wait for the coroutines that were cancelled: the application closes what they use after the block."""
        running = [] if self._coroutines is None else self._coroutines.running()
        if not running:
            return
        _, pending = await asyncio.wait(running, timeout=_CANCELLED)
        if pending:
            message = "%d coroutines still run %g s after they were cancelled; their jobs are released or lost"
            log.warning(message, len(pending), _CANCELLED)

    # --- called by the threads of the run ---------------------------------------------------------------------------

    def coroutines(self, work: Work, unbegun: Callable[[LeasedJob, HandlerSpec], None]) -> HostedLoop:
        """What calls the coroutines of the run, on the loop of the application."""
        self._coroutines = HostedLoop(work, unbegun, self._loop, self._context)
        return self._coroutines

    def look_after(self) -> None:
        """Notice that the loop does not answer, or is closed. Called about twice a second."""
        if self._loop.is_closed():
            self._is_gone()
            return
        if not (self._loop.is_running() or threading.main_thread().is_alive()):
            self._is_gone()  # the program ends, and would wait for this worker
            return
        now = time.monotonic()
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = now
            with suppress(RuntimeError):  # just closed: noticed next time
                self._loop.call_soon_threadsafe(self._answer, now)
        elif now - asked_at >= SILENT and not self._told_silent:
            self._told_silent = True
            frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way
            log.warning(
                "the event loop of the application has not answered for %.0f s: no coroutine goes on, and the leases of their jobs "
                "are extended meanwhile. Call what blocks by asyncio.to_thread. Its thread is at:\n%s",
                now - asked_at,
                "" if frame is None else "".join(traceback.format_stack(frame)),
            )

    def _answer(self, asked_at: float) -> None:
        if self._told_silent:
            log.warning("the event loop of the application answers again, after %.0f s", time.monotonic() - asked_at)
        self._told_silent, self._asked_at = False, None

    def _is_gone(self) -> None:
        """End the run: no coroutine can run any more."""
        if not self._gone:
            self._gone = True
            log.error(
                "the event loop of the application has ended before `async with worker` was left: releasing all jobs. "
                "Leave the block before the loop ends"
            )
            self._stop(0.0)

    def _run(self, work: Callable[[Callable[[], None]], None]) -> None:
        try:
            work(self._begin)
        except _LeftError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised in the task of the block
            self._error = error
        finally:
            self._tell(self._ended)
            self._tell(self._started)

    def _begin(self) -> None:
        with self._lock:
            if self._left:
                raise _LeftError
            self._begun = True
        self._tell(self._started)

    def _tell(self, event: asyncio.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(event.set)


class HostedLoop(Loop):
    """Calls coroutines on the event loop of the application."""

    def __init__(
        self,
        work: Work,
        unbegun: Callable[[LeasedJob, HandlerSpec], None],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        # Loop.__init__ is not called: it makes a loop and a thread.
        self._work = work
        self._unbegun = unbegun
        self._tasks = {}
        self._loop = loop
        self._context = context

    def running(self) -> list[asyncio.Task[Any]]:
        """The tasks of the running coroutines, without the task that calls this."""
        return [task for task in self._tasks.values() if task is not None and task is not asyncio.current_task()]

    def begin(self, assignments: Sequence[tuple[LeasedJob, HandlerSpec]]) -> None:
        with suppress(RuntimeError):  # the loop is closed: Hosted.look_after ends the run, which releases the jobs
            self._loop.call_soon_threadsafe(self._begin, list(assignments), context=self._context.copy())

    def cancel(self, job: LeasedJob) -> None:
        with suppress(RuntimeError):
            super().cancel(job)

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine on the loop, and wait for its end in the calling thread, but not for a loop that stands still.

        :raises RuntimeError: the loop has ended, or has not run for some seconds.
        """
        try:
            result = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise
        while not wait([result], STANDS_STILL).done:
            if not self._loop.is_running():
                result.cancel()
                raise RuntimeError(f"the event loop of the application has ended before {coroutine!r}")
        result.result()

    def _end(self) -> None:
        """Cancel the coroutines that are not cancelled yet: a second cancellation would interrupt what they do at their end."""
        for task in list(self._tasks.values()):
            if task is not None and not task.cancelling():
                task.cancel()
