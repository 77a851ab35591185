"""Tools that change something, each only with a code of a preview, and with a second token.

A preview says what would change and gives a code. The code stands for exactly this change, once, for two minutes. The tokens stay
apart: previews and changes are sent with the second one, whose name the action log shows.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from queue_db.contrib.mcp.answers import answer, chosen, cut
from queue_db.contrib.mcp.looking import LOOKS, JobId, Name
from queue_db.contrib.mcp.service import Service, path_of

#: Seconds for which a code is valid.
VALID = 120.0

#: Codes that are valid at once; a preview beyond it takes the place of the oldest.
MOST_CODES = 100

# Jobs that a preview shows.
_SAMPLE = 5

Code = Annotated[str, Field(min_length=1, max_length=100, description="The code of the preview.")]
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)


@dataclass(frozen=True, slots=True)
class _Change:
    """What a code stands for."""

    tool: str
    perform: Callable[[], Awaitable[dict[str, Any]]]
    until: float


class Changing:
    """The tools that change something.

    :param service: of the second token.
    :param clock: seconds, as ``time.monotonic``.
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._changes: dict[str, _Change] = {}

    def add_to(self, server: MCPServer) -> None:
        """Register the tools."""
        previews: list[Callable[..., Any]] = [self.preview_redrive, self.preview_cancel, self.preview_pause, self.preview_resume]
        changes: list[Callable[..., Any]] = [self.redrive, self.cancel, self.pause, self.resume]
        for tool in previews:
            server.add_tool(tool, annotations=LOOKS, structured_output=False)
        for tool in changes:
            server.add_tool(tool, annotations=_CHANGES, structured_output=False)

    # --- previews ---------------------------------------------------------------------------------------------------

    async def preview_redrive(
        self,
        queue: Name,
        kind: Name | None = None,
        error_class: Annotated[str | None, Field(max_length=200)] = None,
        limit: Annotated[int, Field(ge=1, le=1000, description="Most jobs.")] = 100,
    ) -> str:
        """Changes nothing. How many dead jobs `redrive` would return to their queue, some of them, and the code for it."""
        wanted = {"queue": queue, "kind": kind, "error_class": error_class}
        found = await self._service.send("POST", "/dead/redrive", {**wanted, "limit": limit, "dry_run": True})
        ids = found["ids"]
        sample = await self._service.get("/dead", **wanted, limit=_SAMPLE)
        preview = {"jobs": len(ids), "some": [_line(job) for job in sample["jobs"] if job["id"] in ids]}
        if not ids:
            return answer({"would_change": preview, "code": None})

        async def perform() -> dict[str, Any]:
            done = await self._service.send("POST", "/dead/redrive", {"queue": queue, "ids": ids})
            return {"redriven": done["count"]}

        return self._previewed("redrive", preview, perform)

    async def preview_cancel(self, job_id: JobId) -> str:
        """Changes nothing. The live job that `cancel` would remove, and the code for it."""
        job, tag = await self._service.tagged(path_of("jobs", job_id))
        if job["state"] in {"dead", "completed"}:
            raise ToolError(f"job {job_id} is {job['state']}: there is nothing to cancel")

        async def perform() -> dict[str, Any]:
            await self._service.send("DELETE", path_of("jobs", job_id), headers={"If-Match": tag})
            return {"cancelled": job_id}

        return self._previewed("cancel", {"job": _line(job)}, perform)

    async def preview_pause(self, queue: Name) -> str:
        """Changes nothing. The queue that `pause` would stop: no job of it is claimed until it is resumed; and the code for it."""
        return await self._preview_control("pause", queue)

    async def preview_resume(self, queue: Name) -> str:
        """Changes nothing. The paused queue that `resume` would open again, and the code for it."""
        return await self._preview_control("resume", queue)

    async def _preview_control(self, verb: str, queue: str) -> str:
        found = await self._service.get(path_of("queues", queue))

        async def perform() -> dict[str, Any]:
            done = await self._service.send("POST", path_of("queues", queue, verb))
            return {"queue": queue, "paused": done["controls"]["paused"]}

        return self._previewed(verb, {"queue": queue, "now": found["controls"], "jobs": found["metrics"]}, perform)

    # --- changes ----------------------------------------------------------------------------------------------------

    async def redrive(self, code: Code) -> str:
        """Return exactly the dead jobs of a preview to their queue. If one of them is no longer dead, none returns."""
        return await self._perform("redrive", code)

    async def cancel(self, code: Code) -> str:
        """Cancel the job of a preview, unless it has changed since: it leaves its queue for good, also while it runs."""
        return await self._perform("cancel", code)

    async def pause(self, code: Code) -> str:
        """Pause the queue of a preview, for all workers. Running jobs go on."""
        return await self._perform("pause", code)

    async def resume(self, code: Code) -> str:
        """Resume the queue of a preview."""
        return await self._perform("resume", code)

    # --- codes ------------------------------------------------------------------------------------------------------

    def _previewed(self, tool: str, preview: dict[str, Any], perform: Callable[[], Awaitable[dict[str, Any]]]) -> str:
        now = self._clock()
        self._changes = {code: one for code, one in self._changes.items() if one.until > now}
        while len(self._changes) >= MOST_CODES:
            del self._changes[next(iter(self._changes))]
        code = secrets.token_urlsafe(12)
        self._changes[code] = _Change(tool, perform, now + VALID)
        return answer({"would_change": preview, "tool": tool, "code": code, "valid_seconds": VALID})

    async def _perform(self, tool: str, code: str) -> str:
        change = self._changes.get(code)
        if change is None or change.tool != tool or change.until <= self._clock():
            raise ToolError(f"nothing was changed: no preview_{tool} of the last {VALID:.0f} s has this code, or it was used")
        del self._changes[code]
        return answer(await change.perform())


def _line(job: dict[str, Any]) -> dict[str, Any]:
    found = chosen(job, "id", "queue", "kind", "state", "attempts", "worker", "created_at")
    return found | ({"last_error": cut(job["last_error"])} if job.get("last_error") else {})
