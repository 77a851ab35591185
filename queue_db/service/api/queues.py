"""Queues: list, look, pause, resume, limit, purge."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from queue_db.limits.verbs import change_controls
from queue_db.model import Controls
from queue_db.operations import queues as operations
from queue_db.queue import Queue
from queue_db.service.api import shapes
from queue_db.service.api.metrics_of import QueueNumbers, latest
from queue_db.service.api.shapes import JobCount, Seconds, clean
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Reader, record

router = APIRouter(tags=["queues"])

_Whole = Annotated[int, Field(ge=1, le=2**31 - 1)]


class QueueSummary(BaseModel):
    """A queue with its latest numbers."""

    name: str
    metrics: QueueNumbers | None = Field(description="The latest sample; null: none was taken yet.")


class QueueList(BaseModel):
    """The queues that have jobs, or had some lately."""

    queues: list[QueueSummary]


class ControlsView(BaseModel):
    """The pause and the limits of a queue."""

    paused: bool = Field(description="Nothing is claimed.")
    concurrency: int | None = Field(description="Most jobs in hand at once, over all workers.")
    rate: int | None = Field(description="Most jobs begun …")
    per: float | None = Field(description="… in this many seconds, over all workers.")
    per_group: int = Field(description="Most jobs of one group in hand at once, over all workers.")


class QueueView(QueueSummary):
    """A queue with its latest numbers and its controls."""

    controls: ControlsView


class ControlsChange(shapes.Request):
    """The controls to change, at least one; those that are not given stay as they are."""

    paused: Annotated[bool, Field(description="true: nothing is claimed.")] = False
    concurrency: Annotated[_Whole | None, Field(description="null: no limit. Workers of the library obey it.")] = None
    rate: Annotated[_Whole | None, Field(description="null: no limit. Workers of the library obey it.")] = None
    per: Annotated[Seconds | None, Field(gt=0, description="Seconds of `rate`, where there is one; null: 1.")] = None
    per_group: Annotated[_Whole | None, Field(description="null: one at a time. Every claim obeys it.")] = None

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("which", "name at least one of {fields}", {"fields": ", ".join(type(self).model_fields)})
        return self


@router.get("/queues")
def list_queues(db: Db, who: Reader) -> QueueList:
    """List the queues that have live or dead jobs, with their latest numbers."""
    numbers = latest(db)
    names = sorted({name for name in [*db.queues(), *numbers] if who.allows("read", name)})
    return QueueList(queues=[QueueSummary(name=clean(name), metrics=numbers.get(name)) for name in names])


@router.get("/queues/{queue}")
def get_queue(queue: Name, db: Db, who: Reader) -> QueueView:
    """A queue: its latest numbers and its controls. A queue need not be created; one without jobs has no numbers."""
    who.check("read", queue)
    return _view(db.queue(queue), latest(db).get(queue))


@router.patch("/queues/{queue}")
def control_queue(queue: Name, body: ControlsChange, db: Db, who: Manager, request: Request) -> QueueView:
    """Pause or resume a queue, or change its limits; what is not given stays as it is. Workers obey within 1.5 s."""
    who.check("manage", queue)
    target = db.queue(queue)
    given = body.model_dump(exclude_unset=True)
    change_controls(db.core, target.name, given)
    record(request, who, "control", f"queue {queue}", detail=given)
    return _view(target, latest(db).get(queue))


@router.post("/queues/{queue}/pause")
def pause_queue(queue: Name, db: Db, who: Manager) -> QueueView:
    """Stop all claims from this queue until it is resumed, also across restarts. Running jobs go on."""
    operations.pause(db, who, queue)
    return _view(db.queue(queue), latest(db).get(queue))


@router.post("/queues/{queue}/resume")
def resume_queue(queue: Name, db: Db, who: Manager) -> QueueView:
    """Let workers claim from this queue again."""
    operations.resume(db, who, queue)
    return _view(db.queue(queue), latest(db).get(queue))


@router.delete("/queues/{queue}/jobs")
def purge_queue(queue: Name, db: Db, who: Manager) -> JobCount:
    """Delete all due, scheduled and blocked jobs of a queue, but no running ones."""
    return JobCount(count=operations.purge(db, who, queue))


def _view(queue: Queue, metrics: QueueNumbers | None) -> QueueView:
    controls: Controls = queue.controls()
    return QueueView(
        name=clean(queue.name),
        metrics=metrics,
        controls=ControlsView(
            paused=controls.paused,
            concurrency=controls.concurrency,
            rate=controls.rate,
            per=controls.per,
            per_group=controls.per_group,
        ),
    )
