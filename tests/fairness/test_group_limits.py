"""Limits of groups hold over all claims, and leave nothing free that they allow."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from queue_db import Queue, QueueDB
from queue_db.errors import ArgumentError
from queue_db.fairness import permits, policy, store
from queue_db.fairness.tables import fairness_tables
from queue_db.limits.tables import limits_tables
from queue_db.monitoring import insights
from queue_db.store import worker_registry
from queue_db.store.low_water_marks import MOST_RANGES
from queue_db.testing import SettableClock
from tests.fairness.test_fair_queues import add, taken

OpenDB = Callable[..., QueueDB]


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that was at its limit is looked at by the next claim."""
    monkeypatch.setattr(permits, "REFUSED", 0.0)
    monkeypatch.setattr(permits, "LONGEST_REFUSED", 0.0)


@pytest.fixture
def fair(open_db: OpenDB, name: str, clock: SettableClock) -> Queue:
    queue = open_db(clock=clock).queue(name)
    queue.fair()
    return queue


def running(queue: Queue) -> Counter[str]:
    """How many jobs of each group run, as the database says in one statement, past the verbs."""
    jobs = queue.core.store.tables.jobs
    now = queue.core.store.clock() if queue.core.store.clock else queue.core.now()
    query = (
        select(jobs.c.group_key, func.count())
        .where(jobs.c.queue == queue.name, jobs.c.claim_token.is_not(None), jobs.c.available_at > now)
        .group_by(jobs.c.group_key)
    )
    with queue.core.database.engine.connect() as connection:
        return Counter({str(group): number for group, number in connection.execute(query)})


def drained(queue: Queue) -> None:
    """Claim until no claim gets a job."""
    while taken(queue, 5):
        pass


def test_each_group_has_a_limit_and_some_have_their_own(fair: Queue) -> None:
    fair.limit_groups(concurrency=2)
    fair.limit_groups(group="vip", concurrency=5)
    for group in ("a", "b", "vip"):
        add(fair, group, 10)
    drained(fair)
    assert running(fair) == {"a": 2, "b": 2, "vip": 5}


def test_a_limit_of_a_prefix_is_shared_beside_those_of_the_groups(fair: Queue) -> None:
    fair.limit_groups(concurrency=2)
    fair.limit_groups(prefix="acme:", concurrency=3)
    for group in ("acme:1", "acme:2", "other"):
        add(fair, group, 10)
    drained(fair)
    there = running(fair)
    assert there["acme:1"] + there["acme:2"] == 3
    assert max(there.values()) == 2
    assert there["other"] == 2


@pytest.mark.parametrize("way", ["complete", "fail", "release", "snooze", "bury", "cancel"])
def test_the_end_of_a_job_however_it_comes_frees_its_place(fair: Queue, way: str) -> None:
    fair.limit_groups(concurrency=1)
    add(fair, "g", 3)
    (job,) = fair.claim(3)
    assert taken(fair, 3) == []
    end = {"fail": lambda: job.fail("x", retry_in=60), "snooze": lambda: job.snooze(60), "bury": lambda: job.bury("x")}
    assert end.get(way, getattr(job, way))()
    assert taken(fair, 3) == ["g"]


def test_the_place_of_a_killed_worker_is_free_when_its_lease_ends(fair: Queue, clock: SettableClock) -> None:
    fair.limit_groups(concurrency=1)
    add(fair, "g", 2)
    fair.claim(1, lease=10)
    clock.advance(9)
    assert taken(fair, 2) == []
    clock.advance(2)
    assert taken(fair, 2) == ["g"]


def test_a_lease_that_is_extended_keeps_its_place(fair: Queue, clock: SettableClock) -> None:
    fair.limit_groups(concurrency=1)
    add(fair, "g", 2)
    (job,) = fair.claim(1, lease=10)
    clock.advance(9)
    assert job.extend(10)
    clock.advance(9)
    assert taken(fair, 1) == []


def test_a_value_can_change_while_jobs_run(open_db: OpenDB, fair: Queue) -> None:
    fair.limit_groups(concurrency=1)
    add(fair, "g", 6)
    (first,) = fair.claim(5)
    fair.limit_groups(concurrency=3)
    assert len(fair.claim(5)) == 2
    fair.limit_groups(concurrency=2)
    assert first.complete()
    assert taken(fair, 5) == []
    fair.limit_groups(concurrency=None)
    assert len(fair.claim(5)) == 3


def test_a_rate_of_each_host(fair: Queue, clock: SettableClock) -> None:
    fair.limit_groups(rate=10)
    fair.limit_groups(group="fast", rate=20, per=2)
    for group in ("host", "fast"):
        add(fair, group, 60)
    drained(fair)
    begun = running(fair)
    assert begun == {"host": 10, "fast": 20}, "after an idle time, as many as a span allows"
    for _ in range(10):
        clock.advance(0.1)
        drained(fair)
    assert running(fair) - begun == {"host": 10, "fast": 10}


def test_full_groups_do_not_hide_others(fair: Queue) -> None:
    fair.limit_groups(concurrency=1)
    for number in range(60):
        add(fair, f"full-{number:02}", 2)
    drained(fair)
    assert set(running(fair).values()) == {1}
    add(fair, "late", 1)
    assert [group for _ in range(3) for group in taken(fair, 1)] == ["late"]


def test_limits_are_fair_too(fair: Queue) -> None:
    fair.limit_groups(concurrency=100)
    add(fair, "many", 100)
    add(fair, "one", 1)
    assert "one" in taken(fair, 10)


def test_jobs_without_a_group_have_no_limit(fair: Queue) -> None:
    fair.limit_groups(concurrency=1)
    add(fair, None, 5)
    assert len(fair.claim(5)) == 5


def test_limits_hold_with_more_priorities_than_turns_have(fair: Queue) -> None:
    fair.limit_groups(concurrency=1)
    fair.enqueue_many([("k", None, {"group": "g", "priority": number}) for number in range(MOST_RANGES + 8)])
    for number in range(MOST_RANGES + 8):
        fair.enqueue("k", None, priority=number, group="g")  # this process knows the priority
    assert fair.core.marks[fair.name].ranges() == ()
    drained(fair)
    assert running(fair) == {"g": 1}
    fair.enqueue("k", None, priority=MOST_RANGES + 8, group="late")
    fair.enqueue("k", None, priority=MOST_RANGES + 8)
    drained(fair)
    assert running(fair) == {"g": 1, "late": 1, "None": 1}, "a full group with many jobs hides no others"


@pytest.mark.parametrize("priority", [-1, 1])
def test_a_claim_under_limits_finds_a_priority_that_its_process_does_not_know(open_db: OpenDB, fair: Queue, priority: int) -> None:
    fair.limit_groups(concurrency=1)
    other = open_db(clock=fair.core.store.clock).queue(fair.name)
    other.core.policies.stale = True
    add(fair, "g", 1, priority=priority)
    assert taken(other, 1) == ["g"]


def test_permits_and_rows_of_limits_that_nothing_uses_are_pruned(fair: Queue, clock: SettableClock) -> None:
    fair.limit_groups(concurrency=1)
    for group in ("ended", "extended"):
        add(fair, group, 2)
    ended, extended = sorted((job for _ in range(2) for job in fair.claim(1, lease=10)), key=lambda job: str(job.group))
    clock.advance(9)
    assert ended.complete()
    assert extended.extend(100)
    clock.advance(9)
    fair.db.prune()
    tables = fairness_tables(fair.core.store.tables)
    with fair.core.database.engine.connect() as connection:
        for table in (limits_tables(fair.core.store.tables).permits, tables.spent):
            names = connection.execute(select(table.c.name).where(table.c.queue == fair.name)).scalars().all()
            assert names == ["extended"], table.name
    assert taken(fair, 2) == ["ended"], "the extended job keeps its place"


def test_limits_that_are_set_are_shown(fair: Queue) -> None:
    fair.limit_groups(concurrency=5)
    fair.limit_groups(group="vip", rate=10, per=2)
    fair.limit_groups(prefix="acme:", concurrency=8)
    fair.fair(weights={"vip": 3})
    shown = [(one.group, one.prefix, one.weight, one.concurrency, one.rate, one.per) for one in fair.group_limits()]
    assert shown == [(None, None, 1, 5, None, None), ("vip", None, 3, None, 10, 2.0), (None, "acme:", 1, 8, None, None)]
    fair.limit_groups(prefix="acme:", concurrency=None)
    assert len(fair.group_limits()) == 2


def test_what_is_wrong_is_refused(queue: Queue) -> None:
    with pytest.raises(ArgumentError, match=r"fair\(\) first"):
        queue.limit_groups(concurrency=5)
    queue.fair()
    for wrong in ({}, {"group": "g", "prefix": "g", "rate": 1}, {"concurrency": 0}, {"per": 2.0}, {"group": "", "rate": 1}):
        with pytest.raises(ArgumentError):
            queue.limit_groups(**wrong)  # type: ignore[arg-type]


def test_people_see_which_limits_are_reached(fair: Queue) -> None:
    fair.limit_groups(concurrency=1)
    fair.limit_groups(prefix="acme:", rate=1, per=60.0)
    for group in ("acme:1", "b", "c"):
        add(fair, group, 2)
    drained(fair)
    assert fair.db.core.read("full", store.full, fair.name) == ["acme:1", "b", "c", "acme:*"]
    heartbeat = {"host": "h", "pid": 1, "queues": json.dumps({fair.name: 9}), "counters": "{}", "stuck": 0, "state": "working"}
    fair.core.write("heartbeat", worker_registry.heartbeat, f"{fair.name}#1", {**heartbeat, "in_hand": 0})
    why = insights.why_due(fair.db, fair.name, overdue=False)
    assert why is not None
    assert "4 limits of its groups are reached: 'acme:1', 'b', 'c', … (queue-db queues limit-groups" in why.sentence
    assert fair.db.counters.refused >= 3


# --- races -----------------------------------------------------------------------------------------------------------------


def _work(queue: Queue, start: threading.Barrier, seen: list[Counter[str]], errors: list[BaseException]) -> None:
    try:
        start.wait()
        for _ in range(12):
            jobs = queue.claim(3)
            seen.append(running(queue))
            queue.complete_many(jobs)
    except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
        errors.append(error)


def test_eight_racing_connections_never_run_more_than_the_limits_allow(open_db: OpenDB, name: str) -> None:
    queues = [open_db().queue(name) for _ in range(8)]
    queues[0].fair()
    queues[0].limit_groups(concurrency=2)
    queues[0].limit_groups(prefix="acme:", concurrency=3)
    for group in ("acme:1", "acme:2", "b"):
        add(queues[0], group, 60)
    for queue in queues:
        queue.core.policies.stale = True
    start, seen, errors = threading.Barrier(8), [], []
    threads = [threading.Thread(target=_work, args=(queue, start, seen, errors)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert max(max(one.values(), default=0) for one in seen) == 2
    assert max(one["acme:1"] + one["acme:2"] for one in seen) == 3


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")
def test_without_the_lock_two_claims_exceed_the_limit(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: both count before either has taken a job."""
    queues = [open_db().queue(name) for _ in range(2)]
    queues[0].fair()
    queues[0].limit_groups(concurrency=1)
    add(queues[0], "g", 30)
    queues[0].claim(1)[0].complete()  # the row of the limit is there
    both, calls = threading.Barrier(2, timeout=20), iter(range(100))
    rooms = permits._rooms

    def counted(*of: Any) -> Any:
        found = rooms(*of)
        if next(calls) < 2:  # a loser tries again
            both.wait()
        return found

    monkeypatch.setattr(permits, "_rooms", counted)
    for queue in queues:
        monkeypatch.setattr(queue.core.store.dialect, "lock_rows", lambda rows, **_: rows)
        monkeypatch.setattr(policy.dialect_of(queue.core.store.dialect), "width", 15)
        queue.core.policies.stale = True
    places = itertools.count()
    monkeypatch.setattr(random, "randint", lambda low, high: min(high, low + next(places)))  # each chooses another job
    threads = [threading.Thread(target=queue.claim) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert running(queues[0])["g"] == 2
