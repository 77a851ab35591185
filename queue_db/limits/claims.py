"""Claims under the limits of a queue by programs that have no share of them, such as clients of the REST API."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence

from queue_db.database.transaction import Run
from queue_db.errors import StorageError
from queue_db.leased_job import LeasedJob
from queue_db.limits import store
from queue_db.queue import Queue

log = logging.getLogger("queue_db.limits")

#: Seconds for which the share of one claim lasts, if its process ends before :func:`~queue_db.limits.store.keep`. The lease has no
#: part in it, since nobody runs the jobs of a claim that was not answered.
SHARE = 60.0

#: The longest time until such a program asks again, seconds: jobs of others end without a notice.
ASK_AGAIN = 0.25

_KEEP = Run("limits.keep", repeatable=True)


def claim(
    queue: Queue,
    limit: int,
    lease: float,
    worker: str | None = None,
    give_back: Callable[[Sequence[LeasedJob]], object] | None = None,
) -> tuple[Sequence[LeasedJob], float]:
    """Claim up to ``limit`` jobs, but no more than the concurrency and the rate of the queue allow now.

    :param give_back: releases claimed jobs that have no place under the limits; None: ``queue.release_many``.
    :return: the jobs, and the seconds after which to ask again; 0: the limits allowed all that was wanted.
    """
    core, holder, give_back = queue.core, f"claim {secrets.token_hex(16)}", give_back or queue.release_many
    # If the COMMIT gets no answer, the share expires.
    found = core.write("limits.reserve", store.reserve, queue.name, holder, limit, round(SHARE * 1_000_000))
    wait = 0.0 if found.jobs == limit else min(ASK_AGAIN, found.wait / 1_000_000 or ASK_AGAIN)
    if not found.jobs:
        return (), wait
    try:
        jobs: Sequence[LeasedJob] = queue.claim(found.jobs, lease, worker=worker)
    except BaseException as error:
        if not getattr(error, "outcome_unknown", False):  # otherwise jobs may be leased, and count until the share expires
            _keep(queue, holder, found, (), lease)
        raise
    try:
        kept = _keep(queue, holder, found, jobs, lease)
    except BaseException:
        # Without permits they would run beside the limit once the share has expired.
        if jobs:
            give_back(jobs)
        raise
    if kept < len(jobs):
        log.warning("the share of a claim has expired: %d jobs of %r are released", len(jobs) - kept, queue.name)
        give_back(jobs[kept:])
        wait = ASK_AGAIN
    return jobs[:kept], wait


def _keep(queue: Queue, holder: str, found: store.Reserved, jobs: Sequence[LeasedJob], lease: float) -> int:
    """End the share of a claim, and give its jobs permits; return how many of them, from the first one, may run."""
    unused = round((found.jobs - len(jobs)) * found.cost)
    try:
        if found.shared:
            claims = [(job.id, job.token) for job in jobs]
            return queue.core.run(_KEEP, store.keep, queue.name, holder, claims, round(lease * 1_000_000), unused)
        if unused:
            queue.core.write("limits.refund", store.refund, queue.name, unused)
    except StorageError as error:
        if found.shared and jobs:
            raise
        log.warning("%d places of the limits of %r stay taken for a while: %s", found.jobs - len(jobs), queue.name, error)
    return len(jobs)
