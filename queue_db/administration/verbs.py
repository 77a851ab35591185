"""What people and programs do with queues, and with jobs that they have not claimed: behind verbs of ``Queue`` and ``QueueDB``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from secrets import compare_digest
from typing import NamedTuple

from queue_db import arguments
from queue_db.administration import job_rows, store
from queue_db.administration.store import Due, repeated
from queue_db.concurrency.queue_counters import LOST_IF_KNOWN
from queue_db.core import Core, read_within
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.errors import ArgumentError, JobDeadError, JobNotFoundError, JobStateError
from queue_db.leased_job import LeasedJob, Settler, own_token
from queue_db.model import MOST_VERSION, Group, Job, State, Verdict, to_micros
from queue_db.slices import slices
from queue_db.store import Transaction, controls, settle
from queue_db.store.portions import AT_ONCE
from queue_db.store.schema import NEVER
from queue_db.verbs.job_rows import job_from_row

# The highest id, and the highest version, of a column.
_HIGHEST = 2**63 - 1

# The most tries to change a job that other transactions change between our read and our write.
_CHANGE_ATTEMPTS = 5

# Seconds within which workers obey the controls of a queue.
_OBEY_WITHIN = 1.5

# Seconds between two looks for running jobs of a queue that was paused.
_BETWEEN_LOOKS = 0.05

# About the most jobs of each state that the first read of a look counts.
_LOOKED_AT = 1000


class Administration:
    """The verbs on queues and jobs, with the arguments, results and errors that ``Queue`` and ``QueueDB`` document."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # Whether the marked jobs of all queues were swept; from then on only those of the queue MARKED are.
        self._swept_everywhere = False

    # --- a job ------------------------------------------------------------------------------------------------------

    def get(self, job_id: int, queue: str | None = None, using: Using | None = None) -> Job:
        arguments.whole("job_id", job_id, 0, _HIGHEST)
        found = read_within(self._core, using, "get", job_rows.find, queue, job_id)
        if found is None:
            raise JobNotFoundError(job_id, "any queue" if queue is None else f"queue {queue!r}")
        row, state = found
        return job_from_row(row, state, self._core.codec)

    def cancel(self, job_id: int, queue: str | None, version: int | None) -> Verdict:
        return self._change(job_id, queue, version, lambda job: self._core.write("cancel", store.cancel, job))

    def reschedule(
        self,
        job_id: int,
        queue: str,
        *,
        run_at: datetime | None,
        delay: float | None,
        priority: int | None,
        version: int | None,
    ) -> Verdict:
        due = _due(run_at, delay)
        if priority is not None:
            arguments.whole("priority", priority, -(2**31))
        elif due is None:
            raise ArgumentError("nothing to change: give run_at, delay or priority")

        def change(job: Job) -> bool:
            _check_waiting(job, due)
            return self._core.write("reschedule", self._reschedule, job, due, priority)

        return self._change(job_id, queue, version, change)

    def _reschedule(self, tx: Transaction, job: Job, due: Due | None, priority: int | None) -> bool:
        group = Group(job.queue, job.group) if job.state is State.BLOCKED and job.group is not None else None
        new_priority = None if priority == job.priority else priority
        if not store.change_waiting(tx, job.id, job.version, due=due, priority=new_priority, group=group):
            return False
        if priority is not None:
            tx.after_commit(partial(self._core.marks[job.queue].add, priority))
        tx.wake(job.queue)
        return True

    def _change(self, job_id: int, queue: str | None, version: int | None, change: Callable[[Job], bool]) -> Verdict:
        """Read a live job and call ``change`` with the job. Try again while ``change`` returns False.

        False means that another transaction has changed the job since the read.

        :param version: change the job only if it still has this version.
        """
        if version is not None:
            arguments.whole("version", version, 0, MOST_VERSION)
        for _ in range(_CHANGE_ATTEMPTS):
            job = self.get(job_id, queue)
            if job.state is State.DEAD:
                raise JobDeadError(job_id)
            if version is not None and job.version != version:
                return Verdict.LOST
            if change(job):
                return Verdict.APPLIED
        return Verdict.LOST

    def leases(self, source: Settler, given: Iterable[object]) -> list[LeasedJob | None]:
        """The leased job of each lease ``(id, version, token)``, by position; None: the lease is lost, and counted as lost."""
        core, leases = self._core, [_lease(one) for one in given]
        if not leases:
            return []
        leased = core.read("settle.leased", settle.leased, source.name, sorted({lease.id for lease in leases}))
        jobs: list[LeasedJob | None] = []
        for lease in leases:
            row, token, worker = leased.get(lease.id, (None, "", None))
            held = row is not None and row.version == lease.version and _same(lease, token)
            jobs.append(LeasedJob(row, source, core.codec, token, worker) if row is not None and held else None)
        if lost := sum(job is None for job in jobs):
            counters = core.database.counters
            with core.database.counting:
                counters.lost += lost
            core.queue_counters.add(source.name, **{"lost" if leased else LOST_IF_KNOWN: lost})
        return jobs

    # --- a queue ----------------------------------------------------------------------------------------------------

    def pause(self, queue: str, wait: float | None) -> bool:
        patience = None if wait is None else arguments.seconds("wait", wait) / 1_000_000
        self.set_paused(queue, paused=True)
        if patience is None:
            return True
        until = time.monotonic() + patience
        # Workers may notice the pause _OBEY_WITHIN seconds late. So the queue is at rest only after no job has run for as long.
        # While no job runs, the end of `wait` does not end the loop.
        quiet_since: float | None = None
        while True:
            now = time.monotonic()
            running = self._runs(queue)
            quiet_since = None if running else quiet_since or now
            if quiet_since is not None and now - quiet_since > _OBEY_WITHIN:
                return True
            if running and now >= until:
                return False
            self._core.database.pause(_BETWEEN_LOOKS)

    def set_paused(self, queue: str, *, paused: bool) -> None:
        self._core.run(Run("controls.change", upserts=True), controls.change, queue, {"paused": int(paused)})

    def _runs(self, queue: str) -> bool:
        """Whether a job of ``queue`` runs. Reads the first jobs by due time, and all jobs only if the first jobs give no answer."""
        inspection = self._core.inspection
        stats = inspection.counted(queue, _LOOKED_AT)
        return bool(stats.running or ("running" in stats.capped and inspection.counted(queue).running))

    def purge(self, queue: str, using: Using | None = None) -> int:
        if using is not None:
            with self._core.joined(using, "purge") as tx:
                return _emptied(tx, queue)
        # Jobs that are enqueued during the purge must stay, such as the callback job of a batch. Their ids are above ``upto``.
        upto = self._core.read("purge", store.highest_id)
        deleted, above = 0, -1
        while True:
            gone, last = self._core.write("purge", store.delete_waiting, queue, above=above, upto=upto, limit=AT_ONCE)
            deleted += gone
            if last is None:
                return deleted
            above = last

    # --- all queues -------------------------------------------------------------------------------------------------

    def prune(self, errors_older_than: float) -> int:
        age = arguments.seconds("errors_older_than", errors_older_than)
        deletes: dict[str, Callable[..., int]] = {
            "administration.prune_finished": store.prune_finished,
            "administration.prune_errors": partial(store.prune_errors, age=age),
            "administration.prune_unique_keys": store.prune_unique_keys,
        }
        deletes |= {f"{name}.prune": part.prune for name, part in slices().items() if part.prune is not None}

        def prune(name: str, most: int) -> int:
            return self._core.write(name, deletes[name], limit=most)

        return sum(repeated(partial(prune, name)) for name in deletes)

    def sweep(self, limit: int | None) -> int:
        if limit is not None:
            arguments.whole("limit", limit, 0)
        self._core.ready()
        everywhere = not self._swept_everywhere
        swept = repeated(lambda most: self._core.write("sweep", store.delete_marked, most, everywhere=everywhere), limit)
        self._swept_everywhere = self._swept_everywhere or limit is None or swept < limit
        return swept


def _emptied(tx: Transaction, queue: str) -> int:
    """:meth:`Administration.purge` in one transaction."""
    upto, deleted, above = store.highest_id(tx), 0, -1
    while True:
        gone, last = store.delete_waiting(tx, queue, above=above, upto=upto, limit=AT_ONCE)
        deleted += gone
        if last is None:
            return deleted
        above = last


def _due(run_at: datetime | None, delay: float | None) -> Due | None:
    not_before = arguments.moment("run_at", run_at)
    after = None if delay is None else arguments.seconds("delay", delay)
    return None if not_before is None and after is None else Due(after or 0, not_before or 0)


def _check_waiting(job: Job, due: Due | None) -> None:
    """Check that the job can be rescheduled."""
    if job.state is State.RUNNING or to_micros(job.available_at) == NEVER:
        raise JobStateError(job.id, State.RUNNING, f"job {job.id} is running: its worker settles it; or cancel it")
    if job.state is State.BLOCKED and due is not None:
        where = "behind its parents in its graph" if job.group is None else f"in its group {job.group!r}"
        which = f"job {job.id} is blocked {where}"
        raise JobStateError(job.id, State.BLOCKED, f"{which}: it is due when those before it have left; its priority may change")


class _Lease(NamedTuple):
    id: int
    version: int
    token: str


def _lease(given: object) -> _Lease:
    """Check a lease that a caller gives.

    :raises ArgumentError: ``given`` is no ``(id, version, token)``.
    """
    if not isinstance(given, tuple | list) or len(given) != len(_Lease._fields):
        raise arguments.wrong("lease", given, ": must be (id, version, token)")
    lease = _Lease(*given)
    arguments.whole("job_id", lease.id, 0, _HIGHEST)
    arguments.whole("version", lease.version, 0, _HIGHEST)
    if not isinstance(lease.token, str):
        raise arguments.wrong("token", lease.token, ": must be a string")
    return lease


def _same(given: _Lease, stored: str) -> bool:
    """Whether the token is that of the claim, or the job's own one."""
    # Compare bytes, since compare_digest refuses strings with characters outside ASCII.
    token = given.token.encode("utf-8", "surrogatepass")
    return compare_digest(token, stored.encode()) or compare_digest(token, own_token(stored, given.id).encode())
