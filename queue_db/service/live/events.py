"""Server-sent events: a stream that stays open. One reader for each process reads the live numbers, and all clients get them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from fastapi import Request
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from queue_db.errors import QueueDBError, StorageError
from queue_db.operations.actor import ForbiddenError
from queue_db.service.auth.identity import UnauthorizedError
from queue_db.service.http.errors import answer
from queue_db.service.http.requests import HEAD, Service, of
from queue_db.service.http.times import rfc3339
from queue_db.service.live.incidents import IncidentType, described

log = logging.getLogger("queue_db.service")

#: Seconds without an event after which a comment is sent, so that proxies keep the connection.
IDLE = 15.0

#: Seconds that a client may take for one event. Then its stream is cut: it connects again and gets what is true then.
SLOWEST = 10.0

#: Seconds after which a stream ends, so that its client connects again, perhaps to another process.
LONGEST = 600.0

# Seconds between two reads of the live numbers.
_EVERY = 2.0


class EventStream(StreamingResponse):
    """A response of events; None stands for an idle time. An error ends it with a last event, ``problem``.

    FastAPI's for an endpoint that yields reads ahead of its client; here nothing that follows a revocation is sent.

    :param events: the events.
    :param check: called before each event and in each idle time; raises if who asks may have no more of them.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes | None, None], check: Callable[[], Awaitable[None]], slowest: float = SLOWEST
    ) -> None:
        super().__init__(self._chunks(), headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        self._events = events
        self._check = check
        self._slowest = slowest
        self._scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def in_time(message: Message) -> None:
            async with asyncio.timeout(self._slowest):
                await send(message)

        try:
            await super().stream_response(in_time)
        except TimeoutError:
            _record_cut(self._scope)

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        if self._scope.get(HEAD):
            return
        ends = time.monotonic() + LONGEST
        try:
            async for one in self._events:
                await self._may_go_on(idle=one is None)
                yield KEEPALIVE_COMMENT if one is None else one
                if time.monotonic() > ends:
                    return
        except (QueueDBError, UnauthorizedError, ForbiddenError) as error:
            made = bytes(answer(error, _service(self._scope), self._scope).body).decode()
            yield format_sse_event(data_str=made, event="problem")

    async def _may_go_on(self, *, idle: bool) -> None:
        try:
            await self._check()
        except StorageError:
            # With a comment nothing is handed over: the stream outlives the outage.
            if not idle:
                raise


def _record_cut(scope: Scope) -> None:
    service = _service(scope)
    if service is not None:
        service.incidents.record(IncidentType.STREAM_CUT, described(scope))


def _service(scope: Scope) -> Service | None:
    app = scope.get("app")
    found: Service | None = None if app is None else app.state.service
    return found


@dataclass(eq=False)
class _Client:
    latest: dict[str, str] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Live:
    """The live numbers of one event loop, and the clients that follow them. A slow client skips to the latest ones.

    They are read and made texts in a thread, once for all clients: with thousands of queues this takes long.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._clients: set[_Client] = set()
        self._task: asyncio.Task[None] | None = None
        self._known: dict[str, str] | None = None
        # Of each queue what its text was made of, without the duration, which grows all the time.
        self._numbers: dict[str, dict[str, Any]] = {}

    async def follow(self, wanted: Callable[[str], bool]) -> AsyncGenerator[bytes | None, None]:
        """Events with the numbers of the queues that are wanted, each time that they have changed."""
        client = _Client(self._known)
        allowed: dict[str, bool] = {}
        if self._known is not None:
            client.news.set()
        self._clients.add(client)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read())
        try:
            while not self._service.ending.is_set():
                try:
                    async with asyncio.timeout(IDLE):
                        await client.news.wait()
                except TimeoutError:
                    yield None
                    continue
                client.news.clear()
                latest = client.latest or {}
                allowed |= {queue: wanted(queue) for queue in latest.keys() - allowed.keys()}
                numbers = ", ".join(text for queue, text in latest.items() if allowed[queue])
                yield format_sse_event(data_str=f"[{numbers}]", event="queues")
        finally:
            self._clients.discard(client)

    async def _read(self) -> None:
        while self._clients:
            try:
                found = await run_in_threadpool(self._texts)
            except QueueDBError as error:
                log.debug("no live numbers: %s", error)
                self._service.outage.note(error)
            else:
                if found != self._known:
                    self._known = found
                    self._tell()
            if self._service.ending.is_set():
                self._tell()
                return
            await asyncio.sleep(_EVERY)
        self._known = None

    def _texts(self) -> dict[str, str]:
        """The numbers of each queue, in a thread; where only the duration has changed, the text of before."""
        known, numbers, texts = self._known or {}, {}, {}
        for one in self._service.db.metrics.latest():
            found = asdict(one)
            compared = numbers[one.queue] = {**found, "duration": None}
            same = self._numbers.get(one.queue) == compared and one.queue in known
            texts[one.queue] = known[one.queue] if same else json.dumps(found, default=_text)
        self._numbers = numbers
        return texts

    def _tell(self) -> None:
        for client in self._clients:
            client.latest = self._known
            client.news.set()


def live_of(request: Request) -> Live:
    """The live numbers of the application's event loop."""
    state = request.app.state
    if not hasattr(state, "live"):
        state.live = Live(of(request))
    found: Live = state.live
    return found


def _text(value: object) -> str:
    return rfc3339(value) if isinstance(value, datetime) else str(value)
