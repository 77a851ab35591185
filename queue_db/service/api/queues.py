"""Queues: list, look, pause, resume, limit, purge."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from queue_db.db import QueueDB
from queue_db.operations import queues as operations
from queue_db.operations.queues import NO_LIMITS, Limits
from queue_db.service.api import shapes
from queue_db.service.api.monitoring import QueueNumbers
from queue_db.service.api.shapes import JobCount, Seconds, View, clean
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Reader

router = APIRouter(tags=["queues"])

Whole = Annotated[int, Field(ge=1, le=2**31 - 1)]


class QueueSummary(BaseModel):
    """A queue with its latest numbers."""

    name: str
    metrics: QueueNumbers | None = Field(description="The latest sample; null: none was taken yet.")


class QueueList(BaseModel):
    """The queues that have jobs, or had some lately."""

    queues: list[QueueSummary]


class ControlsView(View):
    """The pause and the limits of a queue."""

    paused: bool = Field(description="Nothing is claimed.")
    concurrency: int | None = Field(description="Most jobs in hand at once, over all workers.")
    rate: int | None = Field(description="Most jobs begun …")
    per: float | None = Field(description="… in this many seconds, over all workers.")
    per_group: int = Field(description="Most jobs of one group in hand at once, over all workers.")
    fair: bool = Field(description="Claims take turns among the groups: see `/fairness`.")


class QueueView(QueueSummary):
    """A queue with its latest numbers and its controls."""

    controls: ControlsView


class NewLimits(shapes.Request):
    """All limits of a queue; one that is not given is removed."""

    concurrency: Annotated[Whole | None, Field(description="null: no limit. Workers and claims obey it.")] = None
    rate: Annotated[Whole | None, Field(description="null: no limit. Workers and claims obey it.")] = None
    per: Annotated[Seconds | None, Field(gt=0, description="Seconds of `rate`, where there is one; null: 1.")] = None
    per_group: Annotated[Whole | None, Field(description="null: one at a time. Every claim obeys it.")] = None

    def given(self) -> dict[str, Any]:
        """What was given."""
        return self.model_dump(exclude_unset=True)


class LimitsChange(NewLimits):
    """Limits of a queue, at least one; one that is not given stays as it is."""

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("which", "name at least one of {fields}", {"fields": ", ".join(type(self).model_fields)})
        return self


@router.get("/queues")
def list_queues(db: Db, who: Reader) -> QueueList:
    """List the queues that have live or dead jobs, with their latest numbers."""
    numbers = _latest(db)
    names = sorted({name for name in [*db.queues(), *numbers] if who.allows("read", name)})
    return QueueList(queues=[QueueSummary(name=clean(name), metrics=numbers.get(name)) for name in names])


@router.get("/queues/{queue}")
def get_queue(queue: Name, db: Db, who: Reader) -> QueueView:
    """A queue: its latest numbers and its controls. A queue need not be created; one without jobs has no numbers."""
    who.check("read", queue)
    return _view(db, queue)


@router.patch("/queues/{queue}/limits")
def change_limits(queue: Name, body: LimitsChange, db: Db, who: Manager) -> QueueView:
    """Change some limits of a queue; what is not given stays as it is. Workers obey within 1.5 s."""
    operations.limit(db, who, queue, Limits(**body.given()))
    return _view(db, queue)


@router.put("/queues/{queue}/limits")
def set_limits(queue: Name, body: NewLimits, db: Db, who: Manager) -> QueueView:
    """Set all limits of a queue; what is not given is removed. Workers obey within 1.5 s."""
    operations.limit(db, who, queue, replace(NO_LIMITS, **body.given()))
    return _view(db, queue)


@router.post("/queues/{queue}/pause")
def pause_queue(queue: Name, db: Db, who: Manager) -> QueueView:
    """Stop all claims from this queue until it is resumed, also across restarts. Running jobs go on."""
    operations.pause(db, who, queue)
    return _view(db, queue)


@router.post("/queues/{queue}/resume")
def resume_queue(queue: Name, db: Db, who: Manager) -> QueueView:
    """Let workers claim from this queue again."""
    operations.resume(db, who, queue)
    return _view(db, queue)


@router.delete("/queues/{queue}/jobs")
def purge_queue(queue: Name, db: Db, who: Manager) -> JobCount:
    """Delete all due, scheduled and blocked jobs of a queue, but no running ones."""
    return JobCount(count=operations.purge(db, who, queue))


def _latest(db: QueueDB) -> dict[str, QueueNumbers]:
    """The latest sample of each queue."""
    return {one.queue: QueueNumbers.of(one) for one in db.metrics.latest()}


def _view(db: QueueDB, queue: str) -> QueueView:
    return QueueView(name=clean(queue), metrics=_latest(db).get(queue), controls=ControlsView.of(db.queue(queue).controls()))
