"""Find leased jobs by their lease: id, version and token."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import compare_digest
from typing import NamedTuple

from queue_db import arguments
from queue_db.concurrency.queue_counters import LOST_IF_KNOWN
from queue_db.core import Core
from queue_db.leased_job import LeasedJob, Settler
from queue_db.store import settle

_HIGHEST = 2**63 - 1


class GivenLease(NamedTuple):
    """The id, version and token of a lease, as a caller gives them."""

    id: int
    version: int
    token: str


def given_lease(lease: object) -> GivenLease:
    """Check a lease that a caller gives.

    :raises ArgumentError: ``lease`` is no ``(id, version, token)``.
    """
    if not isinstance(lease, tuple | list) or len(lease) != len(GivenLease._fields):
        raise arguments.wrong("lease", lease, ": must be (id, version, token)")
    job_id, version, token = lease
    arguments.whole("job_id", job_id, 0, _HIGHEST)
    arguments.whole("version", version, 0, _HIGHEST)
    if not isinstance(token, str):
        raise arguments.wrong("token", token, ": must be a string")
    return GivenLease(job_id, version, token)


def find_leased(core: Core, source: Settler, leases: Sequence[GivenLease]) -> list[LeasedJob | None]:
    """Find the leased job of each lease, by position; None: the lease is lost. Lost leases are added to the counters."""
    if not leases:
        return []
    leased = core.read("settle.leased", settle.leased, source.name, sorted({lease.id for lease in leases}))
    jobs: list[LeasedJob | None] = []
    for lease in leases:
        row, token, worker = leased.get(lease.id, (None, "", None))
        held = row is not None and row.version == lease.version and _same(lease.token, token)
        jobs.append(LeasedJob(row, source, core.codec, token, worker) if row is not None and held else None)
    if lost := sum(job is None for job in jobs):
        counters = core.database.counters
        with core.database.counting:
            counters.lost += lost
        core.queue_counters.add(source.name, **{"lost" if leased else LOST_IF_KNOWN: lost})
    return jobs


def _same(given: str, stored: str) -> bool:
    # Compare bytes, since compare_digest refuses strings with characters outside ASCII.
    return compare_digest(given.encode("utf-8", "surrogatepass"), stored.encode())
