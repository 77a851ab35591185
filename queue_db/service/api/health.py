"""What this service is, whether the process lives, whether the database answers, and metrics; only these need a token."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from queue_db import __version__
from queue_db.errors import QueueDBError, SchemaOutOfDateError
from queue_db.instrumentation.prometheus import collectors
from queue_db.operations.actor import Actor
from queue_db.service.http.errors import AGAIN, MIGRATE, plain, problem
from queue_db.service.http.requests import Scraper, Service, of
from queue_db.service.live.incidents import Counted

log = logging.getLogger("queue_db.service")

router = APIRouter(tags=["service"])


class About(BaseModel):
    """What this service is."""

    name: str
    version: str = Field(examples=[__version__])
    openapi: str = Field(description="Path of the OpenAPI document.", examples=["/api/v1/openapi.json"])
    dashboard: str = Field(description="Path of the dashboard.", examples=["/"])
    metrics: str = Field(description="Path of the metrics for Prometheus.", examples=["/metrics"])


class Health(BaseModel):
    """Whether it works."""

    status: str


@router.get("/api/v1")
async def get_about(request: Request) -> About:
    """What this service is, and where its description is; needs no token."""
    root = request.scope.get("root_path", "")
    return About(
        name="queue_db",
        version=__version__,
        openapi=f"{root}/api/v1/openapi.json",
        dashboard=f"{root}/",
        metrics=f"{root}/metrics",
    )


router.add_api_route("/api/v1/", get_about, include_in_schema=False)


@router.get("/healthz")
async def get_health() -> Health:
    """Answer while the process lives; the database is not asked."""
    return Health(status="ok")


@router.get("/readyz", response_model=Health)
async def get_readiness(request: Request) -> Health | JSONResponse:
    """Whether the database answers within 5 s, and has the tables of this version."""
    try:
        await of(request).probe.ask()
    except SchemaOutOfDateError:
        return problem(503, MIGRATE, headers=AGAIN, code="schema_out_of_date")
    except QueueDBError as error:
        log.debug("not ready: %s", error)
        of(request).outage.note(error)
        return plain(503, "the database does not answer", headers=AGAIN)
    return Health(status="ok")


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def get_metrics(request: Request, who: Scraper) -> Response:
    """Metrics for Prometheus: the counters of this process, and the depth and age of the queues that the token may read.

    While the database is away, or does not answer within 5 s: the counters, and `queue_db_up` is 0.
    """
    service = of(request)
    # While it is away all threads may wait for it.
    text = _text(service, who, None) if service.outage.away else await to_thread.run_sync(_asked, service, who)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _asked(service: Service, who: Actor) -> bytes:
    queues = None
    try:
        queues = [name for name in service.db.queues() if who.allows("read", name)]
    except QueueDBError as error:
        service.outage.note(error)
    return _text(service, who, queues)


def _text(service: Service, who: Actor, queues: Sequence[str] | None) -> bytes:
    """The metrics; ``queues``: None: the database is not asked."""
    registry = CollectorRegistry()
    for one in collectors(service.db, queues, partial(who.allows, "read")):
        registry.register(one)
    registry.register(Counted(service.incidents))
    return generate_latest(registry)
