"""The heartbeat: extends the leases of the jobs in flight."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import groupby

from queue_db.concurrency.pauses import Pause
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.queue import Queue
from queue_db.worker.in_flight import InFlight
from queue_db.worker.outages import Activity

log = logging.getLogger("queue_db.worker")


class Heartbeat:
    """Extends the leases of all jobs in flight every third of a lease: two beats may fail before a lease expires.

    It waits only for the database: not for locked rows, and not for verbs that handlers call on their jobs. A queue that fails is
    tried again soon; the other queues are extended all the same.

    :param lost: called with a job in flight whose lease was lost; returns at once.
    :param outage: logs failures.
    """

    def __init__(
        self, in_flight: InFlight, lease: float, lost: Callable[[LeasedJob], None], outage: Activity | None = None
    ) -> None:
        self._outage = outage or Activity()
        self._in_flight = in_flight
        self._lease = lease
        self._lost = lost
        self._retries: dict[Queue, Pause] = {}

    def beat(self) -> float:
        """Extend once; return how many seconds to wait until the next beat."""
        wait = self._lease / 3
        all_well = True
        for queue, jobs in groupby(self._in_flight.jobs(), key=_queue_of):
            retry = self._retries.setdefault(queue, Pause(self._lease / 60, self._lease / 6))
            again = retry.next()
            try:
                done = self._extend(queue, list(jobs))
            except Exception as error:  # noqa: BLE001 - logged by the outage, an unexpected one with its traceback
                self._outage.failed(f"extending the leases of {queue.name!r}", error, again)
                done = all_well = False
            if done:
                retry.reset()
            else:
                wait = min(wait, again)
        if all_well:
            self._outage.worked()
        return wait

    def _extend(self, queue: Queue, jobs: list[LeasedJob]) -> bool:
        """Extend the leases of one queue; False: some rows are locked, try again soon."""
        # A verb that runs on a job may wait for a lock in the database. It ends the lease, or fails.
        batch = [job for job in jobs if not job.verbs]
        verdicts = queue.extend_unlocked(batch, self._lease)
        waiting = len(jobs) - len(batch) + verdicts.count(None)
        for job, verdict in zip(batch, verdicts, strict=True):
            if verdict is not Verdict.LOST:
                continue
            if job.verbs:
                waiting += 1  # it has perhaps ended the lease, and says so in a moment
            elif not job.settled:
                # Otherwise the handler has settled it, or it is no longer in flight since jobs(): no lease was lost.
                self._lost(job)
        if waiting:
            log.debug("%d leases of %r are not extended yet: their rows are locked", waiting, queue.name)
        return not waiting


def _queue_of(job: LeasedJob) -> Queue:
    source: Queue = job.source  # type: ignore[assignment]
    return source
