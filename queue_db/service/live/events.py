"""Server-sent events: a stream that stays open. One reader for each process reads the live numbers, and all clients get them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

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


def event(data: Any, *, name: str | None = None, event_id: str | None = None) -> str:
    """One event as text."""
    return _event(json.dumps(data, default=_text), name, event_id)


def _event(data: str, name: str | None, event_id: str | None = None) -> str:
    lines = [f"id: {event_id}"] if event_id else []
    lines += [f"event: {name}"] if name else []
    return "\n".join([*lines, f"data: {data}", "", ""])


class EventStream(Response):
    """A response of events; None stands for an idle time. An error ends it with a last event, ``problem``.

    :param events: the events.
    :param check: called before each event and in each idle time; raises if who asks may have no more of them.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[str | None, None], check: Callable[[], Awaitable[None]], slowest: float = SLOWEST
    ) -> None:
        super().__init__(None)
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"
        self._events = events
        self._check = check
        self._slowest = slowest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnect(receive))
        sending = asyncio.ensure_future(self._send(scope, send))
        try:
            await asyncio.wait((gone, sending), timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                return
            if sending.done():
                sending.result()
        except TimeoutError:
            _record_cut(scope)
            return
        finally:
            gone.cancel()
            sending.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)
        await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), self._slowest)

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope.get(HEAD):
            await self._events.aclose()
            return
        try:
            async with aclosing(self._events):
                async for one in self._events:
                    await self._may_go_on(idle=one is None)
                    await self._put(send, one or ": idle\n\n")
        except (QueueDBError, UnauthorizedError, ForbiddenError) as error:
            await self._put(send, _event(bytes(answer(error, _service(scope), scope).body).decode(), "problem"))

    async def _may_go_on(self, *, idle: bool) -> None:
        try:
            await self._check()
        except StorageError:
            # With a comment nothing is handed over: the stream outlives the outage.
            if not idle:
                raise

    async def _put(self, send: Send, text: str) -> None:
        await asyncio.wait_for(send({"type": "http.response.body", "body": text.encode(), "more_body": True}), self._slowest)


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

    async def follow(self, wanted: Callable[[str], bool]) -> AsyncGenerator[str | None, None]:
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
                    await asyncio.wait_for(client.news.wait(), IDLE)
                except TimeoutError:
                    yield None
                    continue
                client.news.clear()
                latest = client.latest or {}
                allowed |= {queue: wanted(queue) for queue in latest.keys() - allowed.keys()}
                yield _event(f"[{', '.join(text for queue, text in latest.items() if allowed[queue])}]", "queues")
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


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
