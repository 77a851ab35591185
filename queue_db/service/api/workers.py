"""Workers: list, and rescue what a dead one has in hand."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from queue_db.operations import workers as operations
from queue_db.service.api.shapes import JobCount, View, clean
from queue_db.service.http.paths import Name
from queue_db.service.http.requests import Db, Manager, Reader
from queue_db.service.http.times import Time
from queue_db.service.live.in_hand import in_hand, others, running

router = APIRouter(tags=["workers"])


class WorkerView(View):
    """A registered worker, as of its last heartbeat."""

    name: str
    host: str
    pid: int
    queues: dict[str, int] = Field(description="How many jobs of each it may have in hand.")
    state: str = Field(description="working, quiet or stopping.")
    in_hand: int
    stuck: int = Field(description="Slots of handlers that have not come back although their jobs were taken from them.")
    counters: dict[str, int]
    started_at: Time
    seen_at: Time
    silent: float = Field(description="Seconds since it was seen.")


class ClaimerView(BaseModel):
    """A client of this API, or another program that claims without being registered as a worker."""

    name: str = Field(description="The `worker` of its claims.")
    in_hand: int = Field(description="Jobs; of the 20 queues with most running jobs, and of each the first 100.")
    queues: list[str]
    lease_ends: Time = Field(description="When the first of its leases ends.")


class WorkerList(BaseModel):
    """The registered workers and other claimers, by name."""

    workers: list[WorkerView]
    claimers: list[ClaimerView]


@router.get("/workers")
def list_workers(db: Db, who: Reader) -> WorkerList:
    """List the workers of the library with a heartbeat within the last hour, and the others that have jobs in hand.

    Clients of this API do not register: they are in `claimers`, in a few seconds, while they have jobs in hand.
    """
    found = db.workers()
    jobs = others(in_hand(db, running(db, who, found)), found)
    workers = [WorkerView.of(one) for one in found if any(who.allows("read", queue) for queue in one.queues)]
    for one in workers:
        one.queues = {queue: most for queue, most in one.queues.items() if who.allows("read", queue)}
    claimers = [
        ClaimerView(
            name=clean(name),
            in_hand=len(some),
            queues=sorted({job.queue for job in some}),
            lease_ends=min(job.available_at for job in some),
        )
        for name, some in jobs.items()
    ]
    return WorkerList(workers=workers, claimers=claimers)


@router.post("/workers/{name}/rescue")
def rescue_worker(name: Name, db: Db, who: Manager) -> JobCount:
    """Return the jobs of a dead worker, by the name that they show, to their queues at once; the attempts count.

    If the worker is alive after all, it loses its leases.
    """
    return JobCount(count=operations.rescue(db, who, name))
