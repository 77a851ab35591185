"""The OpenAPI document: what operations have in common, and which follow each other, so that clients can be generated from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from queue_db.service.http.errors import Problem

#: Statuses of problems, and when they come.
PROBLEMS = {
    400: "The request cannot be read.",
    401: "The request has no token, or an unknown, revoked or expired one.",
    403: "The token does not allow this, or the service is read-only.",
    404: "There is no such thing.",
    409: "This cannot be done now.",
    410: "The claim has ended, or messages after this position were trimmed.",
    412: "The job has changed, or the lease is lost.",
    413: "The body is too large.",
    415: "The body is not JSON: send Content-Type: application/json.",
    422: "The request is not valid.",
    428: "If-Match is missing.",
    429: "Too many jobs or requests; Retry-After says when to come again.",
    501: "The database cannot do this.",
    503: "The database does not answer, or there are too many large bodies at once; Retry-After says when to come again.",
}

#: What holds for all operations.
DESCRIPTION = """\
A job queue in a SQL database. Ids and versions are strings, times are RFC 3339, errors are `application/problem+json` (RFC 9457).

A claimed job has a `lease`: `id`, `version` and `token`. It settles the job; a lost lease gets the verdict `lost`, or 412.
A change of a job needs `If-Match` with its ETag, `"id:version"`. Lists are read a page at a time: `after` of a page gets the next.
"""

_EVERYWHERE = (400, 401, 403, 413, 422, 429, 503)

_TYPE = "application/problem+json"

_TAGS = {
    "queues": "Queues with their latest numbers; pause, resume and limit them.",
    "jobs": "Enqueue, look, cancel and reschedule.",
    "claims": "Lease jobs, and wait for one.",
    "settlements": "What became of leased jobs. The lease, `id`, `version` and `token`, shows that the job is still yours.",
    "dead": "Jobs out of attempts: redrive or purge them.",
    "schedules": "Jobs enqueued by cron lines or at intervals.",
    "workers": "Registered workers, and the rescue of what a dead one has in hand.",
    "batches": "Jobs with a callback job that is enqueued when all of them have left.",
    "groups": "Jobs of one group run one at a time.",
    "graphs": "Jobs that start when their parents have left.",
    "finished": "Completed jobs with retained results.",
    "streams": "Jobs held by Spark streams.",
    "feeds": "Messages that stay for all readers: publish, read on from a position, claim, and cursors.",
    "routes": "Where messages go by the topic that they are published to.",
    "tokens": "API tokens: list, make, revoke. For tokens that manage all queues.",
    "monitoring": "What makes no progress, failures by kind and error class, the numbers of a queue over time, the action log.",
    "service": "What this service is, whether it works, and its metrics for Prometheus.",
    "events": "Streams of server-sent events.",
}


_LEASE = {"id": "17", "version": "1", "token": "0f3b"}
_JOBS = [{"kind": "welcome", "payload": {"to": "ada@example.com"}}, {"kind": "welcome", "payload": {"to": "bob@example.com"}}]

#: What bodies look like, by the names of their schemas.
EXAMPLES: dict[str, Any] = {
    "NewSingleJob": {**_JOBS[0], "delay": 60, "unique_key": "welcome-17"},
    "NewJobs": {"jobs": _JOBS},
    "NewBatch": {"jobs": _JOBS, "then": {"kind": "report"}},
    "RescheduleJob": {"delay": 0},
    "ClaimRequest": {"limit": 10, "lease": 60, "wait": 20, "worker": "node-1"},
    "Settlements": {
        "settlements": [
            {"lease": _LEASE, "verb": "complete", "result": {"sent": True}, "result_ttl": 3600},
            {"lease": {**_LEASE, "id": "18"}, "verb": "fail", "error": {"message": "no route", "error_class": "TimeoutError"}},
        ]
    },
    "RedriveDeadJobs": {"queue": "mail", "error_class": "TimeoutError", "dry_run": True},
    "PurgeDeadJobs": {"queue": "mail", "older_than": 2592000, "limit": 1000},
    "NewSchedule": {"queue": "reports", "kind": "report", "cron": "0 3 * * *", "zone": "Europe/Berlin"},
    "LimitsChange": {"rate": 100, "per": 60},
    "NewLimits": {"concurrency": 20},
    "FeedSettings": {"claims": True, "keep_for": 604800},
    "NewMessages": {"messages": [{"kind": "paid", "key": "order-17", "payload": {"cents": 1990}}]},
    "TokenRequest": {"name": "mail service", "scopes": ["enqueue"], "queues": ["mail*"]},
    "RouteAction": {"action": "enqueue", "target": "mail", "kind": "welcome"},
    "NewSubscription": {"pattern": "orders.*"},
}


_MADE_JOB = {"job_id": "$response.body#/id"}
_FIRST_JOB = {"job_id": "$response.body#/ids/0"}
_LEASED_JOB = {"job_id": "$response.body#/jobs/0/id"}
_SAME_FEED = {"feed": "$request.path.feed"}
_CLAIM = {**_SAME_FEED, "claim": "$response.body#/id"}
_CURSOR = {**_SAME_FEED, "cursor": "$request.path.cursor"}

#: Where a client goes on after an operation: the next operations, and where their parameters stand. Pages have theirs by rule.
LINKS: dict[str, dict[str, dict[str, str]]] = {
    "enqueue_job": {"get_job": _MADE_JOB, "cancel_job": _MADE_JOB, "reschedule_job": _MADE_JOB, "get_finished_job": _MADE_JOB},
    "enqueue_jobs": {"get_job": _FIRST_JOB},
    "enqueue_batch": {"get_batch": {"batch_id": "$response.body#/batch"}, "get_job": _FIRST_JOB},
    "run_schedule": {"get_job": _MADE_JOB},
    "claim_jobs": {
        "settle_jobs": {"queue": "$request.path.queue"},
        "complete_job": _LEASED_JOB,
        "fail_job": _LEASED_JOB,
        "extend_lease": _LEASED_JOB,
    },
    "redrive_dead_jobs": {"get_job": _FIRST_JOB},
    "publish_messages": {"get_message": {**_SAME_FEED, "message": "$response.body#/ids/0"}, "read_messages": _SAME_FEED},
    "claim_messages": {"extend_message_claim": _CLAIM, "delete_messages": _SAME_FEED, "release_message_claim": _CLAIM},
    "open_cursor": {"read_messages": _SAME_FEED, "acknowledge_cursor": _CURSOR, "close_cursor": _CURSOR},
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a router or an operation, beside those that all operations have."""
    return {status: {"description": PROBLEMS[status]} for status in statuses}


def install(app: FastAPI) -> None:
    """Let the application describe itself so."""
    make = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(make())  # which app.openapi_schema is now
        return make()

    app.openapi_tags = [{"name": name, "description": text} for name, text in _TAGS.items()]
    app.openapi = document  # type: ignore[method-assign]


def _complete(document: dict[str, Any]) -> None:
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**schema.pop("$defs"), "Problem": schema}
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of `queue-db tokens create`."},
    }
    document["security"] = [{"token": []}]
    for operation in _operations(document):
        responses = operation["responses"]
        if "requestBody" in operation:
            responses["415"] = {"description": PROBLEMS[415]}
        for status in _EVERYWHERE:
            responses[str(status)] = {"description": PROBLEMS[status]}
        responses["default"] = {"description": "Any other problem."}
        for status, response in responses.items():
            if status == "default" or status >= "400":
                response["content"] = {_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
            if status in {"429", "503"}:
                response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
        operation["responses"] = dict(sorted(responses.items()))
        _link(operation, schemas)


def _link(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add the links of an operation."""
    links = _links(operation, schemas)
    for status, response in operation["responses"].items():
        if links and status < "300" and "content" in response:
            response["links"] = links


def _links(operation: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The links of an operation, by name."""
    name = operation["operationId"]
    links: dict[str, Any] = {
        target: {"operationId": target, "parameters": parameters} for target, parameters in LINKS.get(name, {}).items()
    }
    page = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    parameters = operation.get("parameters", [])
    answered = schemas.get(page.rpartition("/")[2], {}).get("properties", {})
    if "after" in answered and any(one["name"] == "after" for one in parameters):
        same = {one["name"]: f"$request.{one['in']}.{one['name']}" for one in parameters if one["in"] == "path"}
        links["next_page"] = {"operationId": name, "parameters": {**same, "after": "$response.body#/after"}}
    return links


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document.get("paths", {}).values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                yield operation
