"""The workers, and what each has in hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse

from queue_db.db import QueueDB
from queue_db.insights import SILENT
from queue_db.model import Job, WorkerInfo
from queue_db.service.pages.render import back, page
from queue_db.service.pages.rights import for_all
from queue_db.service.pages.routing import page_router
from queue_db.service.requests import Db, Fields, Person, record

router = page_router()

#: Queues whose running jobs are looked at.
MOST_QUEUES = 20

#: Characters of the name of a process that the name of its registered workers begins with.
NAME = 80

#: Running jobs of one queue that are looked at.
MOST_JOBS = 100


def in_hand(db: QueueDB, queues: Iterable[str]) -> dict[str, list[Job]]:
    """Running jobs by worker, as far as the bounds of this page go."""
    found = defaultdict[str, list[Job]](list)
    for queue in sorted(queues)[:MOST_QUEUES]:
        for job in db.queue(queue).jobs("running", limit=MOST_JOBS).jobs:
            found[(job.worker or "")[:NAME]].append(job)
    return found


def busy(workers: Iterable[WorkerInfo]) -> set[str]:
    """The queues of workers that have jobs in hand. A shared cursor among them, ``feed:cursor``, has no jobs."""
    return {queue for worker in workers if worker.in_hand for queue in worker.queues}


def process(name: str) -> str:
    """The process of a registered worker: its jobs have that name."""
    return name.rpartition("#")[0] or name


@router.get("/workers", name="workers", response_class=HTMLResponse)
def show(request: Request, db: Db, who: Person) -> HTMLResponse:
    """The workers that have been there within the last hour, the silent ones first."""
    who.check("read")
    workers = sorted(db.workers(), key=lambda one: (one.silent < SILENT, one.name))
    jobs = in_hand(db, (queue for queue in busy(workers) if who.allows("read", queue)))
    registered = {process(worker.name) for worker in workers}
    return page(
        request,
        "workers.html.jinja",
        who,
        here="workers",
        workers=[one for one in workers if any(who.allows("read", queue) for queue in one.queues)],
        jobs={worker.name: jobs.get(process(worker.name), []) for worker in workers},
        others={name: found for name, found in sorted(jobs.items()) if name not in registered},
        silent=SILENT,
        may=for_all(who, "manage"),
    )


@router.post("/workers/rescue", name="rescue_worker")
def rescue(request: Request, db: Db, who: Person, fields: Fields) -> RedirectResponse:
    """Release the jobs of a worker that is gone."""
    for_all(who, "manage", required=True)
    name = process(fields.get("name", ""))
    released = db.rescue(name)
    record(request, who, "rescue", f"worker {name}", released)
    return back(request, "workers", "rescued", {"number": released})
