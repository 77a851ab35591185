"""Clients of queues: they enqueue, claim and settle."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from queue_db import Queue, QueueDB, QueueDBError, Snooze
from queue_db.leased_job import LeasedJob
from queue_db.worker import Worker
from queue_db.worker.events import JobEvent
from tests.chaos import broken, ledger
from tests.chaos.client import Client, RolledBack

#: Queues: of consumers and workers, and of the clients that overtake each other.
WORK, OVERTAKEN = "work", "overtaken"
#: Groups and unique keys of each round.
GROUPS, KEYS = 4, 6
#: Attempts of jobs that must not die, whatever happens to their clients.
NEVER_DIES = 10_000
#: Attempts of jobs that must.
DOOMED = 2
#: Seconds, of a retry and a snooze.
AGAIN = 0.1


def produce(client: Client) -> None:
    """Enqueue in all the ways there are."""
    queue = client.db.queue(WORK)
    while client.working:
        number = client.log.number + 1
        rng = client.rng(client.name, number)
        rng.choices([_one, _one_with_key, _one_in_group, _many, _within, _forked], [4, 3, 3, 3, 4, 0.3])[0](
            client, queue, rng, number
        )
        client.pause()


def _job(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """The kind and the options of a job."""
    kind = rng.choices(["plain", "inside", "outside", "steps", "doomed"], [5, 5, 1, 1, 0.5])[0]
    options: dict[str, Any] = {"max_attempts": DOOMED if kind == "doomed" else NEVER_DIES}
    if rng.random() < 0.1:
        options["delay"] = round(rng.uniform(0, 1.0), 2)
    if rng.random() < 0.2:
        options["priority"] = rng.choice([-1, 1])
    return kind, options


def _one(client: Client, queue: Queue, rng: random.Random, number: int) -> None:
    kind, options = _job(rng)
    job = {"mark": f"{client.name}-{number}", "kind": kind}
    client.do("enqueue", lambda: queue.enqueue(kind, job["mark"], **options), _ids, jobs=[job])


def _one_with_key(client: Client, queue: Queue, rng: random.Random, number: int) -> None:
    kind = rng.choice(["plain", "inside"])
    key, policy = f"key-{rng.randrange(KEYS)}", rng.choice(["skip", "raise"])
    job = {"mark": f"{client.name}-{number}", "kind": kind, "key": key}
    client.do(
        "enqueue",
        lambda: queue.enqueue(kind, job["mark"], unique_key=key, on_duplicate=policy, max_attempts=NEVER_DIES),
        _ids,
        jobs=[job],
        policy=policy,
    )


def _one_in_group(client: Client, queue: Queue, rng: random.Random, number: int) -> None:
    kind, group = rng.choice(["plain", "inside"]), f"group-{rng.randrange(GROUPS)}"
    job = {"mark": f"{client.name}-{number}", "kind": kind, "group": group}
    client.do("enqueue", lambda: queue.enqueue(kind, job["mark"], group=group, max_attempts=NEVER_DIES), _ids, jobs=[job])


def _many(client: Client, queue: Queue, rng: random.Random, number: int) -> None:
    jobs: list[dict[str, str]] = []
    rows: list[tuple[str, str, dict[str, Any]]] = []
    for at in range(rng.choice([2, 3, 5, 8, 30])):
        kind, options = _job(rng)
        job = {"mark": f"{client.name}-{number}.{at}", "kind": kind}
        if kind in {"plain", "inside"} and rng.random() < 0.2:
            job["group"] = options["group"] = f"group-{rng.randrange(GROUPS)}"
        jobs.append(job)
        rows.append((kind, job["mark"], options))
    client.do("enqueue", lambda: queue.enqueue_many(rows), jobs=jobs)


def _within(client: Client, queue: Queue, rng: random.Random, number: int) -> None:
    """In a transaction with the application's own row; some are given up."""
    kind, options = _job(rng)
    mark, gives_up, own = f"{client.name}-{number}", rng.random() < 0.2, rng.random() < 0.5
    if rng.random() < 0.2 and kind in {"plain", "inside"}:
        options["group"] = f"group-{rng.randrange(GROUPS)}"
    job = {"mark": mark, "kind": kind, **({"group": options["group"]} if "group" in options else {})}

    def call() -> int | None:
        with queue.transaction() if own else ledger.transaction(client.engine) as connection:
            ledger.write(connection, "enqueued", mark, client.name)
            job_id = queue.enqueue(kind, mark, using=connection, **options)
            if gives_up:
                raise RolledBack
        return job_id

    client.do("enqueue", call, _ids, interrupts=own, jobs=[job], within="the library's" if own else "the application's")


def _forked(client: Client, queue: Queue, rng: random.Random, number: int) -> None:
    """By a child that has the open connections of its parent."""
    kind = rng.choice(["plain", "inside"])
    mark, own = f"{client.name}-{number}", f"{client.name}-{number}-parent"

    def call() -> list[int | None]:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                client.disarm()
                status = 0 if queue.enqueue(kind, mark, max_attempts=NEVER_DIES) else 1
            finally:
                os._exit(status)
        try:
            second = queue.enqueue(kind, own, max_attempts=NEVER_DIES)
        except QueueDBError as error:
            raise ledger.InDoubt(str(error)) from error
        finally:
            _, ended = os.waitpid(pid, 0)
        if ended:
            raise ledger.InDoubt("the child did not enqueue")
        return [None, second]

    # Two transactions: either may have happened without the other.
    client.do("enqueue in a fork", call, jobs=[{"mark": mark, "kind": kind}, {"mark": own, "kind": kind}])


def _ids(job_id: int | None) -> list[int | None]:
    return [job_id]


# --- consumers ------------------------------------------------------------------------------------------------------


def consume(client: Client) -> None:
    """Claim and settle in all the ways there are."""
    _consume(client, WORK)


def drain(client: Client) -> None:
    """The queue of clients that overtake each other, when they have ended."""
    _consume(client, OVERTAKEN)


def _consume(client: Client, name: str) -> None:
    queue = client.db.queue(name)
    jobs: list[LeasedJob] = []
    while not client.stopping.is_set():
        rng = client.rng(client.name, client.log.number)
        limit, lease = rng.choice([1, 1, 3, 8]), client.order.lease
        finished = _work(client, queue, jobs)
        if finished and rng.random() < 0.5:
            answer = client.do(
                "complete_and_claim",
                lambda: queue.complete_and_claim(finished, limit, lease),  # noqa: B023 - it is called at once
                lambda answer: [[bool(verdict) for verdict in answer[0]], *_leases(answer[1])],
                settled=[_settled(job) for job in finished],
                verb="complete",
                lease=lease,
            )
            jobs = answer[1] if answer else []
        else:
            if finished:
                _settle(client, "complete", finished, lambda: queue.complete_many(finished))  # noqa: B023
            jobs = _claimed(client, queue, lease, limit)
        if not jobs:
            client.pause()


def _leases(jobs: Sequence[LeasedJob]) -> list[list[Any]]:
    return [[job.id, job.version, job.payload, job.attempts, job.group, job.lease_ends] for job in jobs]


def _settled(job: LeasedJob) -> list[Any]:
    return [job.id, job.version, job.payload]


def _settle(client: Client, verb: str, jobs: Sequence[LeasedJob], call: Callable[[], Any], **more: Any) -> Any:
    """Settle, and log the verdicts; for those that fail also whether they died."""

    def shown(verdicts: Any) -> list[Any]:
        listed = verdicts if isinstance(verdicts, list) else [verdicts]
        return [[bool(verdict) for verdict in listed], [job.dead for job in jobs]]

    return client.do("settle", call, shown, verb=verb, settled=[_settled(job) for job in jobs], **more)


def _work(client: Client, queue: Queue, jobs: Sequence[LeasedJob]) -> list[LeasedJob]:
    """Do the jobs, each by its fate; return those that are left to complete together."""
    together = []
    for job in jobs:
        rng = client.rng(job.payload, job.version)
        if job.kind == "doomed":
            _settle(client, "fail", [job], lambda: job.fail("doomed", retry_in=AGAIN))  # noqa: B023 - it is called at once
            continue
        fate = rng.choices(FATES, FATE_WEIGHTS)[0]
        if fate in {"fail", "snooze", "release"}:
            verb = {"fail": lambda: job.fail("again", AGAIN), "snooze": lambda: job.snooze(AGAIN), "release": job.release}[fate]  # noqa: B023
            _settle(client, fate, [job], verb)
            continue
        if fate == "late":
            client.stopping.wait(client.order.lease * 1.2)
        if fate == "extend":
            lease = client.order.lease
            client.do(
                "extend",
                lambda: job.extend(lease),  # noqa: B023
                lambda verdict: [bool(verdict), job.version, job.lease_ends],  # noqa: B023
                of=_settled(job),
            )
        if job.kind == "inside":
            _complete_inside(client, job, rng)
        elif job.kind in EFFECTS:
            if EFFECTS[job.kind](client, job):
                together.append(job)
        elif fate == "at once":
            _settle(client, "complete", [job], job.complete)
        else:
            together.append(job)
    return together


FATES = ["fail", "snooze", "release", "late", "extend", "at once", "together"]
FATE_WEIGHTS = [2, 1, 1, 0.08, 3, 8, 8]


def _complete_inside(client: Client, job: LeasedJob, rng: random.Random) -> bool:
    """With the effect in the same transaction."""
    own = rng.random() < 0.5

    def call() -> bool:
        if own:
            with job.transaction() as connection:
                ledger.write(connection, "inside", job.payload, client.name)
            return True
        with ledger.transaction(client.engine) as connection:
            ledger.write(connection, "inside", job.payload, client.name)
            job.complete(using=connection).require(job)
        return True

    return bool(_settle(client, "complete", [job], call, interrupts=own, within="the library's" if own else "the application's"))


def _effect_outside(client: Client, job: LeasedJob) -> bool:
    """With the effect before it."""

    def call() -> bool:
        with ledger.transaction(client.engine) as connection:
            ledger.write(connection, "outside", job.payload, client.name)
        return True

    return bool(client.do("effect", call, interrupts=False, mark=job.payload))


def _effect_in_a_step(client: Client, job: LeasedJob) -> bool:
    """With the effect in a step before it, whose record is in the transaction of the effect."""

    def call() -> bool:
        with ledger.transaction(client.engine) as connection:
            job.step("effect", ledger.write, connection, "steps", job.payload, client.name, using=connection)
        return True

    return bool(client.do("step", call, interrupts=False, mark=job.payload))


#: What is done before the completion, by the kind of the job.
EFFECTS = {"outside": _effect_outside, "steps": _effect_in_a_step}


# --- workers --------------------------------------------------------------------------------------------------------


class Handler:
    """The handler of all jobs of a worker, and its hook: what the worker reports of a job is the end of its settlement."""

    def __init__(self, client: Client) -> None:
        self.client = client
        # Job → number of its settlement in the log.
        self._open: dict[LeasedJob, int] = {}

    def handle(self, job: LeasedJob) -> Any:
        log, rng = self.client.log, self.client.rng(job.payload, job.version)
        log.end(log.invoke("begin"), "ok", [None, [job.id, job.version, job.payload, job.attempts, job.group, None]])
        fate = rng.choices(FATES, FATE_WEIGHTS)[0]
        if fate == "late":
            time.sleep(self.client.order.lease * 1.2)  # the heartbeat extends it
        if job.kind == "inside" and fate not in {"fail", "snooze"}:
            if _complete_inside(self.client, job, rng):
                return None
            raise RolledBack  # otherwise the worker would complete it
        if job.kind in EFFECTS and not EFFECTS[job.kind](self.client, job):
            raise RolledBack
        verb = "fail" if job.kind == "doomed" or fate == "fail" else "snooze" if fate == "snooze" else "complete"
        # By whatever lease the worker has then.
        self._open[job] = log.invoke("settle", verb=verb, settled=[[job.id, None, job.payload]])
        if verb == "fail":
            raise RolledBack
        return Snooze(AGAIN) if verb == "snooze" else None

    def note(self, event: JobEvent) -> None:
        if event.type == "started" or (number := self._open.pop(event.job, None)) is None:
            return
        if event.type in {"completed", "failed", "snoozed", "dead"}:
            self.client.log.end(number, "ok", [[True], [event.type == "dead"]])
        else:
            self.client.log.end(number, "unknown", error=str(event.type))


def work(client: Client) -> None:
    """A worker of the package."""
    # ``poll`` bounds how long it stays away from an idle queue.
    worker = Worker(client.db, WORK, concurrency=4, lease=client.order.lease, poll=0.2, grace=2.0)
    handler = Handler(client)
    for kind in ("plain", "inside", "outside", "steps", "doomed"):
        worker.handles(kind, backoff=lambda _: AGAIN)(handler.handle)
    worker.on(handler.note)
    with worker:
        client.stopping.wait()


# --- overtaken ------------------------------------------------------------------------------------------------------


def _enqueue_one(client: Client, queue: Queue, mark: str) -> None:
    client.do(
        "enqueue", lambda: queue.enqueue("plain", mark, max_attempts=NEVER_DIES), _ids, jobs=[{"mark": mark, "kind": "plain"}]
    )


def overtaken(client: Client) -> None:
    """One claims a job and lets its lease run out; another claims it; then both complete it."""
    first = client.db.queue(OVERTAKEN)
    lease = 0.2
    plays = 0
    with QueueDB(client.order.url, removal=broken.removal(client.order.broken)) as db:
        second = db.queue(OVERTAKEN)
        while not client.stopping.is_set():
            plays += 1
            if client.order.operations is not None and plays > MOST_PLAYS:
                return
            mark = f"{client.name}-{client.log.number + 1}"
            _enqueue_one(client, first, mark)
            slow = _claimed_at_last(client, first, lease, f"{client.name}-first")
            fast = _claimed_at_last(client, second, client.order.lease, f"{client.name}-second") if slow else []
            if slow and not fast:
                # The end of the round, or it is in the hands of a process that was killed.
                continue
            for jobs in (slow, fast):
                for one in jobs:
                    _settle(client, "complete", [one], one.complete)
            client.stopping.wait(1.0)


#: Plays of a round with a fixed number of operations.
MOST_PLAYS = 2


def _claimed(client: Client, queue: Queue, lease: float, limit: int = 1, worker: str | None = None) -> list[LeasedJob]:
    won = client.do("claim", lambda: queue.claim(limit, lease, worker=worker), lambda jobs: [None, *_leases(jobs)], lease=lease)
    return list(won or [])


def _claimed_at_last(client: Client, queue: Queue, lease: float, worker: str) -> list[LeasedJob]:
    """Claim until there is a job."""
    while not client.stopping.is_set():
        if jobs := _claimed(client, queue, lease, worker=worker):
            return jobs
        client.stopping.wait(0.05)
    return []
