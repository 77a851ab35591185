"""Claims under the limits of a queue by programs that have no share of them, such as clients of the REST API."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence

from queue_db.errors import StorageError
from queue_db.leased_job import LeasedJob
from queue_db.limits import store
from queue_db.queue import Queue

log = logging.getLogger("queue_db.limits")

#: Seconds for which a share of one claim lasts beyond the lease, if its process ends before :func:`~queue_db.limits.store.keep`.
_LONGER = 60.0

#: The longest time until such a program asks again, seconds: jobs of others end without a notice.
ASK_AGAIN = 0.25


def claim(queue: Queue, limit: int, lease: float, worker: str | None = None) -> tuple[Sequence[LeasedJob], float]:
    """Claim up to ``limit`` jobs, but no more than the concurrency and the rate of the queue allow now.

    :return: the jobs, and the seconds after which to ask again; 0: the limits allowed all that was wanted.
    """
    core, holder = queue.core, f"claim {secrets.token_hex(16)}"
    found = core.write("limits.reserve", store.reserve, queue.name, holder, limit, round((lease + _LONGER) * 1_000_000))
    wait = 0.0 if found.jobs == limit else min(ASK_AGAIN, found.wait / 1_000_000 or ASK_AGAIN)
    if not found.jobs:
        return (), wait
    jobs: Sequence[LeasedJob] = ()
    try:
        jobs = queue.claim(found.jobs, lease, worker=worker)
    except StorageError as error:
        if not error.outcome_unknown:  # otherwise jobs may be leased, and count until the share expires
            _keep(queue, holder, found, (), lease)
        raise
    _keep(queue, holder, found, jobs, lease)
    return jobs, wait


def _keep(queue: Queue, holder: str, found: store.Reserved, jobs: Sequence[LeasedJob], lease: float) -> None:
    claims = [(job.id, job.token) for job in jobs] if found.shared else []
    unused = round((found.jobs - len(jobs)) * found.cost)
    if not (found.shared or unused):
        return
    try:
        queue.core.write("limits.keep", store.keep, queue.name, holder, claims, round(lease * 1_000_000), unused)
    except StorageError as error:  # the caller must get the jobs
        log.warning("%d places of the limits of %r stay taken until their leases end: %s", found.jobs, queue.name, error)
