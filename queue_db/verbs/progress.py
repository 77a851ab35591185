"""The progress that handlers report, written under the fence of their leases."""

from __future__ import annotations

from collections.abc import Mapping

from queue_db.core import Core, Run
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport
from queue_db.store import progress
from queue_db.verbs.fenced_change import Locked


def write(core: Core, reports: Mapping[LeasedJob, ProgressReport], *, attempts: int) -> int:
    """Write the reports in one statement; return how many of the jobs still had their leases.

    :param attempts: how often it is tried when the database asks to try again.
    """
    with Locked(reports):
        # Of two leases of one job only the later one can hold. No version changes while they are locked.
        newest = {job.id: job for job in sorted(reports, key=lambda job: job.version) if not job.settled}
        if not newest:
            return 0
        wanted = {(job.id, job.version): reports[job] for job in newest.values()}
        return core.run(Run(attempts=attempts, direct=True, repeatable=True), progress.write, wanted)
