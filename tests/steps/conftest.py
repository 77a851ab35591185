"""Jobs with steps."""

from __future__ import annotations

import pytest

from queue_db import LeasedJob, Queue, Suspended


def waiting_job(queue: Queue) -> LeasedJob:
    """A job with a step that is done, which waits for a signal."""
    queue.enqueue("order")
    (job,) = queue.claim()
    job.step("charge", lambda: "paid in secret")
    with pytest.raises(Suspended):
        job.wait_for("approved", timeout=3600)
    return job
