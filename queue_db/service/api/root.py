"""Where to begin: what this is, and where its description is."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from queue_db import __version__

router = APIRouter(tags=["service"])


class About(BaseModel):
    """What this service is."""

    name: str
    version: str = Field(examples=[__version__])
    openapi: str = Field(description="Path of the OpenAPI document.", examples=["/api/v1/openapi.json"])
    dashboard: str = Field(description="Path of the dashboard.", examples=["/"])
    metrics: str = Field(description="Path of the metrics for Prometheus.", examples=["/metrics"])


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
