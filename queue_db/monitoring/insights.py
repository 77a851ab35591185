"""Finds stuck or slow queues, workers, schedules and groups, with the reasons. It only reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from queue_db.db import QueueDB
from queue_db.model import Controls
from queue_db.monitoring.model import WorkerInfo
from queue_db.monitoring.store import counts, insights
from queue_db.slices import load
from queue_db.store import controls, worker_registry
from queue_db.verbs.settle import UNKNOWN_GRACE

#: Seconds for which a due job or a due occurrence of a schedule may wait before it is overdue.
OVERDUE = 60.0

#: Seconds without a heartbeat after which a worker is probably dead.
SILENT = worker_registry.SILENT

#: Most queues in the findings; the queues whose jobs have waited longest come first.
MOST = 20

#: At most this many overdue jobs of a queue are counted.
MOST_COUNTED = 10_000

#: A job without a handler is due again within this many seconds.
PARKED = 90.0

#: At most this many due jobs, and as many scheduled jobs, are checked for a missing handler.
LOOKED_AT = 50_000


@dataclass(frozen=True, slots=True)
class Finding:
    """A queue, worker, schedule or group that makes no progress."""

    sentence: str
    #: True: it stays so until an operator acts. False: it is slow, or configured to wait.
    stuck: bool = False
    #: The queue of the finding; None: the finding is about a worker or a schedule.
    queue: str | None = None
    #: The kind of the jobs; None: jobs of any kind.
    kind: str | None = None


def findings(db: QueueDB) -> list[Finding]:
    """All queues, workers, schedules and groups that make no progress, with the reasons that the database shows."""
    return [*_queues(db), *_parked(db), *_workers(db.workers()), *_schedules(db), *_groups(db)]


def why_due(db: QueueDB, queue: str, *, overdue: bool) -> Finding | None:
    """Why workers do not claim the due jobs of a queue now, in the words of :func:`findings`; None: a worker may claim them.

    :param overdue: whether the jobs have waited longer than :data:`OVERDUE`. If not, the finding is not ``stuck``, does not call
        the workers too slow, and names a limit only if the database shows that it is reached.
    """
    of_queue = db.core.read("controls.read", controls.read, [queue]).get(queue, Controls())
    workers = [worker for worker in db.workers() if queue in worker.queues]
    why = _why(db, queue, of_queue, workers) if overdue else _obstacle(db, queue, _reached(of_queue, workers), workers)
    return None if why is None else Finding(f"queue {queue!r}: {why.sentence}", why.stuck and overdue, queue)


def controlled(db: QueueDB) -> dict[str, Controls]:
    """The pause and the limits of each queue that has a pause or a limit, in one read."""
    return db.core.read("controls.read", controls.read)


def _queues(db: QueueDB) -> Iterator[Finding]:
    overdue = db.core.read("monitoring.overdue", counts.overdue, round(OVERDUE * 1e6), MOST, MOST_COUNTED)
    if not overdue:
        return
    settings = db.core.read("controls.read", controls.read, [queue for queue, _, _ in overdue])
    workers = db.workers()
    for queue, jobs, age in overdue:
        why = _why(db, queue, settings.get(queue, Controls()), [worker for worker in workers if queue in worker.queues])
        have = "job has" if jobs == 1 else "jobs have"
        number = f"{jobs:,}" if jobs < MOST_COUNTED else f"{MOST_COUNTED:,} or more"
        waits = f"{number} {have} been due for more than a minute, the oldest for {_span(age / 1e6)}"
        yield Finding(f"queue {queue!r}: {waits}: {why.sentence}", why.stuck, queue)


def _parked(db: QueueDB) -> Iterator[Finding]:
    kinds: dict[tuple[str, str], tuple[int, float]] = {}
    for row in db.core.read("monitoring.parked", insights.parked, round(PARKED * 1e6), LOOKED_AT):
        jobs, longest = kinds.get((row.queue, row.kind), (0, 0.0))
        kinds[row.queue, row.kind] = jobs + row.jobs, max(longest, (row.read_at - row.since) / 1e6)
    for (queue, kind), (jobs, longest) in sorted(kinds.items(), key=lambda item: -item[1][1])[:MOST]:
        left = UNKNOWN_GRACE - longest
        when = (
            f"is dead in {left / 60:,.0f} min, with the default unknown_grace,"
            if left > 0
            else f"has waited {longest / 60:,.0f} min and is dead when the unknown_grace of its workers is over,"
        )
        yield Finding(
            f"queue {queue!r}: {_count(jobs, 'job')} of kind {kind!r} {'has' if jobs == 1 else 'have'} no handler; "
            f"the first {when} unless a worker with a handler starts",
            stuck=True,
            queue=queue,
            kind=kind,
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"


def _why(db: QueueDB, queue: str, controls: Controls, workers: list[WorkerInfo]) -> Finding:
    finding = _obstacle(db, queue, controls, workers)
    if finding is None:
        alive = sum(worker.silent < SILENT for worker in workers)
        finding = Finding(f"its {_count(alive, 'worker')} {'does' if alive == 1 else 'do'} not keep up")
    return finding


def _reached(controls: Controls, workers: list[WorkerInfo]) -> Controls:
    """Drop the limits that the database does not show to be reached: the rate, and a concurrency with fewer jobs in hand.

    Only workers of this queue alone count: the jobs in hand of a worker of several queues may be jobs of another queue.
    """
    in_hand = sum(worker.in_hand for worker in workers if worker.silent < SILENT and len(worker.queues) == 1)
    full = controls.concurrency is not None and in_hand >= controls.concurrency
    return replace(controls, rate=None, concurrency=controls.concurrency if full else None)


def _obstacle(db: QueueDB, queue: str, controls: Controls, workers: list[WorkerInfo]) -> Finding | None:
    """What keeps the workers of a queue from claiming its due jobs; None: the database shows no reason."""
    if controls.paused:
        return Finding(f"it is paused (queue-db queues resume {queue})")
    alive = [worker for worker in workers if worker.silent < SILENT]
    if not alive:
        return Finding("no registered worker serves it (clients over HTTP and loops of claim() do not register)", stuck=True)
    if all(worker.state != "working" for worker in alive):
        return Finding("all its workers are quiet or stopping", stuck=True)
    theirs, single = f"its {_count(len(alive), 'worker')}", len(alive) == 1
    limits = [] if controls.concurrency is None else [f"{controls.concurrency} at once"]
    limits += [] if controls.rate is None else [f"{controls.rate} in {controls.per:g} s"]
    if limits:
        held = f"{theirs} {'is' if single else 'are'} held to {' and '.join(limits)}"
        return Finding(f"{held} (queue-db queues limit {queue} --none removes that)")
    if all(worker.in_hand + worker.stuck >= sum(worker.queues.values()) for worker in alive):
        stuck = sum(worker.stuck for worker in alive)
        of_these = f", {stuck} of them stuck" if stuck else ""
        no_slot = (
            f"{theirs} {'has' if single else 'have'} no free slot{of_these}: more processes, more concurrency, or shorter jobs"
        )
        return Finding(no_slot, stuck=not any(worker.in_hand for worker in alive))
    return _full_groups(db, queue) if controls.fair else None


def _full_groups(db: QueueDB, queue: str) -> Finding | None:
    """The limits of groups that are reached, if any is."""
    full = db.core.read("fairness.full", load("fairness.store", "full"), queue)
    if full:
        of = f"{', '.join(map(repr, full[:3]))}{', …' if len(full) > 3 else ''}"
        limited = "1 limit of its groups is" if len(full) == 1 else f"{len(full):,} limits of its groups are"
        return Finding(f"{limited} reached: {of} (queue-db queues limit-groups {queue} changes that)")
    return None


def _workers(workers: list[WorkerInfo]) -> Iterator[Finding]:
    for worker in workers:
        if worker.stuck:
            hang = "handlers that have not come back after a timeout or a lost lease"
            how = "SIGUSR1 logs where they are; a restart frees the slots, by itself with exit_when_stuck="
            yield Finding(f"worker {worker.name!r} has {_count(worker.stuck, 'stuck slot')}: {hang} ({how})", stuck=True)
        if worker.silent >= SILENT:
            has = (
                f"what it has in hand ({worker.in_hand}) comes back with the leases" if worker.in_hand else "it had nothing in hand"
            )
            yield Finding(f"worker {worker.name!r} has sent no heartbeat for {_span(worker.silent)}: {has}")


def _groups(db: QueueDB) -> Iterator[Finding]:
    for row in db.core.read("monitoring.crowded", insights.crowded, MOST):
        yield Finding(
            f"group {row.group_key!r} of queue {row.queue!r}: {row.admitted} of its jobs may be claimed at once, and {row.allowed} "
            "should be: they were inserted with a group_key past enqueue (plain INSERT, a JDBC append), or the queue's limit was "
            "lowered meanwhile; they run beside each other until they have left",
            queue=row.queue,
        )


def _schedules(db: QueueDB) -> Iterator[Finding]:
    for row in db.core.read("schedules.late", load("schedules.store", "late"), round(OVERDUE * 1e6)):
        yield Finding(
            f"schedule {row.name!r} is {_span(row.late / 1e6)} late: no worker carries schedules out "
            "(Worker(…, schedules=True), or db.schedules.tick())",
            stuck=True,
        )
