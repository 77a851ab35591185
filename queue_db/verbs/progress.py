"""The progress that handlers report, written under the fence of their leases."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport
from queue_db.store import progress, settle
from queue_db.verbs.fenced_change import EXTENSIONS, LOOK, Verbs, leases_in_motion


def write(core: Core, reports: Mapping[LeasedJob, ProgressReport], *, attempts: int) -> int:
    """Write the reports in one statement; return how many of the jobs still had their leases.

    :param attempts: how often it is tried when the database asks to try again.
    """
    with Verbs(reports) as verb:
        # Of two leases of one job only the later one can hold.
        jobs = {job.id: job for job in sorted(reports, key=attrgetter("version")) if not job.settled}
        held = {job.id: job.version for job in jobs.values()}
        written = 0
        for _ in range(EXTENSIONS if held else 0):
            wanted = {pair: reports[jobs[pair[0]]] for pair in held.items()}
            written = core.run(Run(attempts=attempts, direct=True, repeatable=True), progress.write, wanted)
            moving = leases_in_motion(jobs, held, verb) if written < len(held) else {}
            if not moving or not (moved := core.run(LOOK, settle.extended, moving)):
                break
            held |= moved
        return written
