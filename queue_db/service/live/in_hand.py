"""Who has which jobs in hand, workers and clients of the API alike: from ranges of an index, and bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice

from queue_db.db import QueueDB
from queue_db.model import Job
from queue_db.monitoring.model import WorkerInfo
from queue_db.operations.actor import Actor

#: Queues whose running jobs are looked at.
MOST_QUEUES = 20

#: Running jobs of one queue that are looked at.
MOST_JOBS = 100

#: Characters of the name of a process that the name of its registered workers begins with.
NAME = 80


def in_hand(db: QueueDB, queues: Iterable[str]) -> dict[str, list[Job]]:
    """Running jobs by the name that their claims gave, of the first 20 queues."""
    found = defaultdict[str, list[Job]](list)
    for queue in islice(queues, MOST_QUEUES):
        for job in db.queue(queue).jobs("running", limit=MOST_JOBS).jobs:
            found[(job.worker or "")[:NAME]].append(job)
    return found


def busy(workers: Iterable[WorkerInfo]) -> set[str]:
    """The queues of workers that have jobs in hand. A shared cursor among them, ``feed:cursor``, has no jobs."""
    return {queue for worker in workers if worker.in_hand for queue in worker.queues}


def running(db: QueueDB, who: Actor, workers: Iterable[WorkerInfo]) -> list[str]:
    """The queues with running jobs that may be read, as of the latest samples and the heartbeats of workers; most jobs first."""
    sampled = {one.queue: one.running for one in db.metrics.latest() if one.running}
    queues = [name for name in sampled.keys() | busy(workers) if who.allows("read", name)]
    return sorted(queues, key=lambda name: (-sampled.get(name, 0), name))


def process(name: str) -> str:
    """The process of a registered worker: its jobs have that name."""
    return name.rpartition("#")[0] or name


def others(jobs: dict[str, list[Job]], workers: Iterable[WorkerInfo]) -> dict[str, list[Job]]:
    """The jobs of what is not registered as a worker, by name."""
    registered = {process(worker.name) for worker in workers}
    return {name: found for name, found in sorted(jobs.items()) if name not in registered}
