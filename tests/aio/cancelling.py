"""Cancels a task at each of its waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any


class CancelledAt:
    """Awaits ``verb`` and cancels its task where it waits for the n-th time."""

    def __init__(self, verb: Awaitable[Any], at: int) -> None:
        self._verb, self._at = verb, at
        self.happened = False

    def __await__(self) -> Generator[Any, Any, Any]:
        waits = self._verb.__await__()
        answer: Any = None
        raised: BaseException | None = None
        for turn in range(1, 1_000_000):
            try:
                wait = waits.send(answer) if raised is None else waits.throw(raised)
            except StopIteration as end:
                return end.value
            if turn == self._at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                self.happened = True
            answer, raised = None, None
            try:
                answer = yield wait
            except BaseException as error:  # noqa: BLE001 - goes to the verb
                raised = error
        raise AssertionError("it waits for ever")


async def cancel_everywhere(
    make: Callable[[int], Awaitable[Any]], check: Callable[[int, bool], Awaitable[None]], most: int = 200
) -> int:
    """Run what ``make`` makes again and again, cancelled one wait later each time, until it comes to its end; return how often."""
    for at in range(1, most):
        point = CancelledAt(make(at), at)

        async def verb(point: CancelledAt = point) -> Any:
            return await point

        task = asyncio.create_task(verb())
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert outcome is None or not isinstance(outcome, Exception), f"cancelled at wait {at}: {outcome!r}"
        await check(at, isinstance(outcome, asyncio.CancelledError))
        if not point.happened:
            return at
    raise AssertionError(f"still waiting after {most} waits")
