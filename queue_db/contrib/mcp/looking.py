"""Tools that only look: each is one or a few GETs with the token of the scope ``read``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field

from queue_db.contrib.mcp.answers import answer, chosen, cut, payload
from queue_db.contrib.mcp.service import Service, path_of

Name = Annotated[str, Field(min_length=1, max_length=100)]
JobId = Annotated[str, Field(pattern=r"^[0-9]{1,19}$", description="The id of the job.")]
Limit = Annotated[int, Field(ge=1, le=50, description="Most entries.")]
After = Annotated[str | None, Field(max_length=500, description="`after` of the answer before, for the next page.")]
State = Literal["available", "scheduled", "running", "blocked"]

LOOKS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

_JOB = ("id", "queue", "kind", "state", "available_at", "attempts", "max_attempts", "worker", "group", "created_at")

# Characters of a trace, from its end.
_TRACE = 1500


class Looking:
    """The tools that look.

    :param payloads: whether :meth:`get_job` shows payloads, results and headers. They leave the machine with the answer.
    """

    def __init__(self, service: Service, *, payloads: bool) -> None:
        self._service = service
        self._payloads = payloads

    def add_to(self, server: MCPServer) -> None:
        """Register the tools."""
        for tool in (
            self.check_health,
            self.list_queues,
            self.get_queue,
            self.get_history,
            self.list_findings,
            self.list_jobs,
            self.get_job,
            self.why_does_it_wait,
            self.list_failures,
            self.list_dead_jobs,
            self.list_workers,
            self.list_schedules,
            self.list_actions,
        ):
            server.add_tool(tool, annotations=LOOKS, structured_output=False)

    async def check_health(self) -> str:
        """Begin here: whether the service and its database answer, and every queue, worker and schedule that makes no progress."""
        about, findings = await self._service.get(""), await self._service.get("/findings")
        return answer({"service": about["version"], "database": await self._service.ready(), **findings})

    async def list_queues(self, limit: Limit = 50) -> str:
        """The queues with their latest numbers: jobs by state, age of the oldest due job, what happened in the last minute."""
        found = (await self._service.get("/queues"))["queues"]
        return answer({"queues": found[:limit], "more": len(found) > limit})

    async def get_queue(self, queue: Name) -> str:
        """A queue: its numbers, its pause and limits, and why it makes no progress, if it does not."""
        found = await self._service.get(path_of("queues", queue))
        return answer({**found, **await self._service.get("/findings", queue=queue)})

    async def get_history(
        self, queue: Name, width: Annotated[int, Field(ge=60, le=86_400, multiple_of=60, description="Seconds.")] = 60
    ) -> str:
        """The numbers of a queue in the last hour, in entries of `width` seconds; the last 60 of them."""
        found = await self._service.get(path_of("queues", queue, "metrics"), width=width)
        return answer({"metrics": found["metrics"][-60:]})

    async def list_findings(self, queue: Name | None = None) -> str:
        """What makes no progress and why, in all queues or in one: no worker, paused, limits, no handler, a silent worker."""
        return answer(await self._service.get("/findings", queue=queue))

    async def list_jobs(
        self, queue: Name, state: State = "available", kind: Name | None = None, limit: Limit = 20, after: After = None
    ) -> str:
        """The live jobs of a queue in one state, by due time, without payloads; a page may be short although more follow."""
        found = await self._service.get(path_of("queues", queue, "jobs"), state=state, kind=kind, limit=limit, after=after)
        return answer({"jobs": [_line(job) for job in found["jobs"]], "after": found["after"]})

    async def get_job(self, job_id: JobId) -> str:
        """A job, live, dead or completed with a result: its steps, and its latest failed attempts with the ends of their traces."""
        job = await self._service.get(path_of("jobs", job_id))
        shown = _line(job) | chosen(job, "priority", "unique_key", "progress", "progress_note", "steps", "finished_at")
        for name in ("payload", "headers", "result"):
            if self._payloads and job.get(name) is not None:
                shown[name] = payload(job[name])
        if job["state"] != "completed":
            errors = (await self._service.get(path_of("jobs", job_id, "errors")))["errors"]
            shown["errors"] = [_failure(one) for one in errors[-5:]]
        return answer(shown)

    async def why_does_it_wait(self, job_id: JobId) -> str:
        """Why a live job has not begun: when it is due, the job of its group before it, what keeps its queue from going on."""
        job = await self._service.get(path_of("jobs", job_id))
        if job["state"] in {"dead", "completed"}:
            return answer({"job": _line(job), "findings": [f"it is {job['state']}: it waits for nothing"]})
        return answer({"job": _line(job), **await self._service.get(path_of("jobs", job_id, "waits"))})

    async def list_failures(self, queue: Name | None = None, kind: Name | None = None, limit: Limit = 20) -> str:
        """The newest failed attempts by queue, kind and error class, the largest group first, each with its last error."""
        found = await self._service.get("/failures", queue=queue, kind=kind, limit=limit)
        return answer({"failures": [_failure(one) for one in found["failures"]], "more": found["after"] is not None})

    async def list_dead_jobs(
        self,
        queue: Name | None = None,
        kind: Name | None = None,
        error_class: Annotated[str | None, Field(max_length=200)] = None,
        limit: Limit = 20,
        newest: bool = False,
        after: After = None,
    ) -> str:
        """Dead jobs, longest dead first or `newest` first, without payloads; `available_at` is when they died."""
        query = {"queue": queue, "kind": kind, "error_class": error_class, "limit": limit, "after": after}
        found = await self._service.get("/dead", **query, newest=newest or None)
        return answer({"jobs": [_line(job) for job in found["jobs"]], "after": found["after"]})

    async def list_workers(self, limit: Limit = 20) -> str:
        """The registered workers as of their last heartbeats, stuck and silent ones first, and others that have jobs in hand."""
        found = await self._service.get("/workers")
        workers = sorted(found["workers"], key=lambda one: (-one["stuck"], -one["silent"]))
        fields = ("name", "queues", "state", "in_hand", "stuck", "started_at", "silent")
        return answer(
            {
                "workers": [chosen(one, *fields) for one in workers[:limit]],
                "claimers": found["claimers"][:limit],
                "more": max(len(workers), len(found["claimers"])) > limit,
            }
        )

    async def list_schedules(self, limit: Limit = 50) -> str:
        """The schedules by name, with their rules and next occurrences, without payloads."""
        found = (await self._service.get("/schedules"))["schedules"]
        return answer({"schedules": [_without_payload(one) for one in found[:limit]], "more": len(found) > limit})

    async def list_actions(self, limit: Limit = 20) -> str:
        """The action log, newest first: who changed what, how much and when. It needs a token for all queues."""
        return answer({"actions": (await self._service.get("/actions", limit=limit))["actions"]})


def _line(job: dict[str, Any]) -> dict[str, Any]:
    found = chosen(job, *_JOB)
    if job.get("last_error"):
        found["last_error"] = cut(job["last_error"])
    return found


def _failure(one: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: value for name, value in one.items() if name not in {"message", "trace"}},
        "message": cut(one["message"]),
        "trace_end": (one["trace"] or "")[-_TRACE:],
    }


def _without_payload(one: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in {"payload", "headers"}}
