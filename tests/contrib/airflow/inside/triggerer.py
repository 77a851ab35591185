"""What Airflow's triggerer does with the triggers of assets: its own SharedStreamManager, with a list in place of its database.

``main`` is a triggerer in a process of its own: it sends events and errors through a pipe, and gets commands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from airflow.triggers.shared_stream import SharedStreamManager

from queue_db.contrib.airflow import feed_stream
from queue_db.contrib.airflow.triggers import FeedTrigger

#: Seconds after which a condition that does not come fails the test.
PATIENCE = 60


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        await asyncio.sleep(0.005)


class Triggerer:
    """Runs triggers, and keeps what they fire by cursor, and the errors with which they ended."""

    def __init__(self, tell: Callable[[Any], None] = lambda _: None, **options: Any) -> None:
        self._tell = tell
        self.manager = SharedStreamManager(**options)
        self.fired: dict[str, list[Any]] = {}
        self.errors: dict[str, Exception] = {}
        self.logging = False
        self._seqs: list[int] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ids: dict[str, int] = {}

    def start(self, trigger: FeedTrigger) -> None:
        number = len(self._tasks)
        self.fired.setdefault(trigger.cursor, [])
        self._ids[trigger.cursor] = number
        self._tasks[number] = asyncio.create_task(self._run(number, trigger))

    async def stop(self, cursor: str) -> None:
        task = self._tasks[self._ids[cursor]]
        task.cancel()
        await asyncio.wait([task])

    async def stop_all(self) -> None:
        for cursor in list(self._ids):
            await self.stop(cursor)
        await self.manager.stop_all()

    def store(self) -> None:
        """Say that all events until now are in the database."""
        seqs, self._seqs = self._seqs, []
        self.manager.confirm_persisted(seqs)

    def positions(self, cursor: str) -> list[str]:
        return [one["position"] for payload in self.fired[cursor] for one in payload.get("messages", [payload])]

    def payloads(self, cursor: str) -> list[Any]:
        return [one["payload"] for payload in self.fired[cursor] for one in payload.get("messages", [payload])]

    async def _run(self, number: int, trigger: FeedTrigger) -> None:
        key = trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=number, trigger=trigger, key=key)
        try:
            async for event in trigger.filter_shared_stream(stream):
                self.logging = True
                await asyncio.sleep(0)  # Airflow writes to its log here, in a thread
                seq = self.manager.bind_pending_event(trigger_id=number, key=key)
                if seq is not None:
                    self._seqs.append(seq)
                self.fired[trigger.cursor].append(event.payload)
                self._tell({"cursor": trigger.cursor, "event": event.payload})
        except Exception as error:  # noqa: BLE001 - as Airflow does
            self.errors[trigger.cursor] = error
            self._tell({"cursor": trigger.cursor, "error": str(error)})
        finally:
            await self.manager.unsubscribe(number, key)


class EarlyReader(feed_stream.FeedReader):
    """A reader that acknowledges before the events are stored: what must not be."""

    async def open_stream(self) -> Any:
        async for broadcast, _ in super().open_stream():
            for watcher in broadcast.watchers:
                await watcher.acknowledge(broadcast.messages[-1])
            yield broadcast, broadcast


def main(pipe: Connection, triggers: list[dict[str, Any]], *, early: bool) -> None:
    """Run triggers until the process is killed."""

    async def run() -> None:
        airflow = Triggerer(pipe.send)
        for arguments in triggers:
            airflow.start(FeedTrigger(**arguments))
        while await asyncio.to_thread(pipe.recv) == "store":
            airflow.store()

    if early:
        FeedTrigger.create_shared_stream_producer = classmethod(  # type: ignore[method-assign,assignment]
            lambda cls, kwargs: EarlyReader(cls(**kwargs).shared_stream_key(), kwargs["conn_id"], kwargs["feed"], kwargs["poll"])
        )
    asyncio.run(run())
