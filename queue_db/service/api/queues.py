"""Queues: list and look."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from queue_db.service.requests import Db, Reader

router = APIRouter(tags=["queues"])


class QueueList(BaseModel):
    """The queues that have jobs."""

    queues: list[str]


@router.get("/queues")
def list_queues(db: Db, who: Reader) -> QueueList:
    """List the queues that have live or dead jobs."""
    return QueueList(queues=[name for name in db.queues() if who.allows("read", name)])
