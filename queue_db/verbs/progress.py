"""What handlers say about how far they are, written under the fence of their leases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from queue_db.database.database import Database
from queue_db.leased_job import LeasedJob
from queue_db.model import Said
from queue_db.store import Store, progress
from queue_db.verbs.fenced_change import locked


def tell(database: Database, store: Store, said: Mapping[LeasedJob, Said], *, attempts: int) -> int:
    """Write it, in one statement for all jobs; return how many of these still had their leases.

    :param attempts: how often it is tried when the database asks to try again.
    """
    with locked(said):
        # Of two leases of one job only the later one can hold. No version changes while they are locked.
        newest = {job.id: job for job in sorted(said, key=lambda job: job.version) if not job.settled}
        wanted = {(job.id, job.version): said[job] for job in newest.values()}
        if not wanted:
            return 0
        work = partial(progress.write, store=store, said=wanted)
        return database.run(work, name="progress", attempts=attempts, direct=True, repeatable=True)
