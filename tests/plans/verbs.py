"""The verbs whose cost must not grow with the queue, each with how it is run and watched."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from queue_db import Optimistic, QueueDB, UnsupportedError
from tests.marks import begin_anew
from tests.plans.touched import Touched, watch
from tests.races.interleaving import open_transaction

Open = Callable[..., QueueDB]
Verb = Callable[[Open, str], Touched]


def claim(limit: int, strategy: Callable[[], Any]) -> Verb:
    """A claim by a process that has claimed before."""

    def run(open_db: Open, name: str) -> Touched:
        try:
            db = open_db(strategy=strategy())
        except UnsupportedError:
            return Touched()
        with db:
            queue = db.queue(name)
            # Once a second a claim is a rescan, another statement: not here, however long anything takes.
            begin_anew(queue.core, queue.name, lambda: 0.0)
            queue.claim(limit)
            return watch(db, lambda: queue.claim(limit))

    return run


def claim_if_idle(open_db: Open, name: str) -> Touched:
    """A claim that asks whether anything is due in another queue, which has but delayed jobs."""
    with open_db() as db:
        other = f"{name} before"
        db.queue(other).enqueue_many([("k", None, {"delay": 3600})] * 20)
        for queue in (other, name):
            begin_anew(db.core, queue, lambda: 0.0)
        db.queue(name).claim(1)
        return watch(db, lambda: db.queue(name).claim_if_idle([other], 1, 60.0))


def first_claim(open_db: Open, name: str) -> Touched:
    """The first claim of a process, which knows nothing of the queue."""
    with open_db() as db:
        return watch(db, lambda: db.queue(name).claim(10))


def settle(verb: Callable[..., object], count: int, removal: str = "delete") -> Verb:
    """A settling verb over ``count`` jobs, undone again, so that its statements can be looked at with the jobs in place."""

    def run(open_db: Open, name: str) -> Touched:
        with open_db(removal=removal) as db:
            queue = db.queue(name)
            jobs = queue.claim(count)
            assert len(jobs) == count

            def act() -> None:
                with open_transaction(db) as connection:
                    verb(queue, jobs, connection)
                    connection.rollback()

            return watch(db, act)

    return run


def complete(queue: Any, jobs: Any, connection: Any) -> None:
    assert all(queue.complete_many(jobs, using=connection))


def enqueue(queue: Any, jobs: Any, connection: Any) -> None:
    queue.enqueue_many([("k", None, {"unique_key": f"k{number}"}) for number in range(100)], using=connection)


def optimistic(pick: str) -> Callable[[], Optimistic]:
    # The same places in the window each time: what is compared is the size of the queue.
    return lambda: Optimistic(window=10, pick=pick, rng=random.Random(1))  # type: ignore[arg-type]


VERBS: dict[str, Verb] = {
    "claim 1": claim(1, lambda: "adaptive"),
    "claim 100": claim(100, lambda: "adaptive"),
    "first claim": first_claim,
    "claim 1 if idle": claim_if_idle,
    "claim 10, slice": claim(10, optimistic("slice")),
    "claim 10, skip_locked": claim(10, lambda: "skip_locked"),
    "claim 10, pessimistic": claim(10, lambda: "pessimistic"),
    "complete 1": settle(complete, 1),
    "complete 100": settle(complete, 100),
    "complete 100, lock_then_delete": settle(complete, 100, "lock_then_delete"),
    "complete 100, delete_mark": settle(complete, 100, "delete_mark"),
    "enqueue 100 with keys": settle(enqueue, 1),
}
