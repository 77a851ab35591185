"""Fair queues: whether claims take turns among the groups of a queue, with which weights, and under which limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from queue_db.db import QueueDB
from queue_db.operations import queues as operations
from queue_db.operations.queues import NO_GROUP_LIMITS, Limits
from queue_db.service.api import shapes
from queue_db.service.api.queues import Whole
from queue_db.service.api.shapes import Seconds, View
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Reader
from queue_db.store.schema import KEY_LENGTH

router = APIRouter(tags=["queues"])

_Group = Annotated[str | None, Query(min_length=1, max_length=KEY_LENGTH, description="Only this group.")]
_Prefix = Annotated[str | None, Query(min_length=1, max_length=KEY_LENGTH, description="All groups together whose names begin so.")]


class GroupLimitView(View):
    """The weight and the limits of groups."""

    group: str | None = Field(description="Of this group …")
    prefix: str | None = Field(description="… or of all groups together whose names begin so. Both null: of each group.")
    weight: int = Field(description="Jobs in one turn of the group.")
    concurrency: int | None = Field(description="Most jobs that run at once, over all workers.")
    rate: int | None = Field(description="Most jobs begun …")
    per: float | None = Field(description="… in this many seconds, over all workers.")


class FairnessView(BaseModel):
    """Whether a queue is fair, and what was set for its groups."""

    fair: bool = Field(description="Claims take turns among the groups, whose jobs do not wait for each other.")
    groups: list[GroupLimitView]


class FairnessChange(shapes.Request):
    """Whether a queue is fair, and the weights of some groups; those of others stay."""

    fair: bool
    weights: dict[str, Annotated[int, Field(ge=1, le=1000)]] = Field(
        default={}, description="Jobs in one turn, by group. 1, as all others have: the weight is removed."
    )


class GroupLimits(shapes.Request):
    """Limits of groups. Of those that are not given, `PATCH` changes none, and `PUT` removes all."""

    concurrency: Annotated[Whole | None, Field(description="null: no limit.")] = None
    rate: Annotated[Whole | None, Field(description="null: no limit.")] = None
    per: Annotated[Seconds | None, Field(gt=0, description="Seconds of `rate`, where there is one; null: 1.")] = None

    def given(self) -> dict[str, Any]:
        """What was given."""
        return self.model_dump(exclude_unset=True)


@router.get("/queues/{queue}/fairness")
def get_fairness(queue: Name, db: Db, who: Reader) -> FairnessView:
    """Whether a queue is fair, and the weights and limits of its groups."""
    who.check("read", queue)
    return _view(db, queue)


@router.patch("/queues/{queue}/fairness")
def change_fairness(queue: Name, body: FairnessChange, db: Db, who: Manager) -> FairnessView:
    """Let claims take turns among the groups of a queue, or not, and set the weights of some. Claims obey within a second."""
    operations.fair(db, who, queue, enabled=body.fair, weights=body.weights)
    return _view(db, queue)


@router.patch("/queues/{queue}/group-limits")
def change_group_limits(
    queue: Name, body: GroupLimits, db: Db, who: Manager, group: _Group = None, prefix: _Prefix = None
) -> FairnessView:
    """Change some limits of each group of a fair queue, of one group, or of a prefix; what is not given stays as it is."""
    operations.limit_groups(db, who, queue, Limits(**body.given()), group=group, prefix=prefix)
    return _view(db, queue)


@router.put("/queues/{queue}/group-limits")
def set_group_limits(
    queue: Name, body: GroupLimits, db: Db, who: Manager, group: _Group = None, prefix: _Prefix = None
) -> FairnessView:
    """Set all limits of each group of a fair queue, of one group, or of a prefix; what is not given is removed."""
    operations.limit_groups(db, who, queue, replace(NO_GROUP_LIMITS, **body.given()), group=group, prefix=prefix)
    return _view(db, queue)


def _view(db: QueueDB, name: str) -> FairnessView:
    queue = db.queue(name)
    return FairnessView(fair=queue.controls().fair, groups=[GroupLimitView.of(one) for one in queue.group_limits()])
