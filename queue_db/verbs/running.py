"""The verbs that run in this process, and the leases that they may extend meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from queue_db.database.transaction import Run
from queue_db.leased_job import LeasedJob

#: The most times that one call looks up the new versions of leases that another verb has extended.
EXTENSIONS = 5

#: How a transaction runs that only reads leases.
LOOK = Run("look", write=False, lazy=True, repeatable=True)

# The verbs that run in this process. A thread adds and removes its verb with one atomic method of the set. So there is no lock.
_running: set[Verbs] = set()


def jobs_in_verbs(but: Verbs | None = None) -> set[LeasedJob]:
    """The jobs on which a verb other than ``but`` runs. The heartbeat neither extends these jobs nor reports them as lost."""
    return {job for verb in _running.copy() if verb is not but for job in verb.jobs}


class Verbs:
    """Says, for a ``with`` block, that a verb runs on these jobs: see :func:`jobs_in_verbs`."""

    # Jobs are not locked: with locks, verbs could deadlock, since the verb of another thread may have locked database rows for
    # which this verb waits.

    def __init__(self, jobs: Iterable[LeasedJob]) -> None:
        self.jobs = [*jobs]

    def __enter__(self) -> Self:
        _running.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _running.discard(self)


def leases_in_motion(jobs: Mapping[int, LeasedJob], held: Mapping[int, int], own: Verbs) -> dict[int, tuple[int, str]]:
    """The leases of ``held`` (id → version) that a verb other than ``own`` may have extended: id → (version, token)."""
    # Look for verbs before the versions: a verb sets the version before it ends, so no extension is overlooked.
    in_verbs = jobs_in_verbs(own)
    moving = [job_id for job_id, version in held.items() if jobs[job_id] in in_verbs or jobs[job_id].version != version]
    return {job_id: (held[job_id], jobs[job_id].token) for job_id in moving}
