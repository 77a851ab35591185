"""Answers that must arrive: what was claimed for a client that has gone is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import Response
from starlette.types import Receive, Scope, Send

# Turns of the event loop after which a write has shown that the client has closed its connection: in the first one the connection
# is lost, in the second one whoever waits for that learns it. One more for a task between them.
_TURNS = 3


class Handover(Response):
    """The answer to a claim, as JSON: what a client does not get is given back.

    :param disconnected: done when the client has gone.
    :param nothing: makes the answer in place of this one when it has.
    :param give_back: called on the event loop if the client did not get the answer.
    """

    media_type = "application/json"

    def __init__(
        self,
        content: bytes,
        disconnected: asyncio.Task[None],
        nothing: Callable[[], Response],
        give_back: Callable[[], None],
        status_code: int = 200,
    ) -> None:
        super().__init__(content, status_code)
        self._disconnected = disconnected
        self._nothing = nothing
        self._give_back = give_back

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = False
        try:
            if self._disconnected.done():
                # Or the server ends, and the client is still there.
                await self._nothing()(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": True})  # when most of it has been taken
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            arrived = not self._disconnected.done()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._disconnected.cancel()
            if not arrived:
                self._give_back()


def watch(receive: Receive) -> asyncio.Task[None]:
    """A task that ends when the client has gone. Nobody else may receive meanwhile."""
    return asyncio.get_running_loop().create_task(_disconnect(receive))


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
